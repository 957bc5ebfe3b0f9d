"""Topics for tests with real clients."""

import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic


def create_topic(admin: AdminClient, name: str, partitions: int) -> None:
    """Create it, within 30 s.

    An agent that stood still, as it may on a busy machine, refuses what changes something (P17);
    librdkafka's admin client does not send again by itself.
    """
    deadline = time.monotonic() + 30
    while True:
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
            return
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError.NOT_CONTROLLER or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
