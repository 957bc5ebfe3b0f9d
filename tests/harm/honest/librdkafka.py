"""Many partitions by librdkafka: `python -m tests.harm.honest.librdkafka BOOTSTRAP TOPICS PARTITIONS`.

All settings are librdkafka's own, but for `auto.offset.reset`: what was written before is to be read.
Any error that a client tells of ends it, and so does any line that it logs.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harm.honest.kit import tell

Place = tuple[str, int]
MEMBERS = 3
LONG_S = 60.0
"""That nothing happens for so long is an error."""


class Troubles(logging.Handler):
    """What clients complained of."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())

    def config(self, bootstrap: str) -> dict[str, Any]:
        logger = logging.getLogger("librdkafka")
        logger.propagate = False
        if self not in logger.handlers:
            logger.addHandler(self)
        return {
            "bootstrap.servers": bootstrap,
            "error_cb": lambda error: self.found.append(str(error)),
            "throttle_cb": lambda event: self.found.append(f"throttled: {event}"),
            "logger": logger,
        }


class Story:
    """The steps, in order."""

    def __init__(self, bootstrap: str, topics: int, partitions: int) -> None:
        self.troubles = Troubles()
        self._topics = [f"rd-{number}" for number in range(topics)]
        self._partitions = partitions
        self.places = [(name, index) for name in self._topics for index in range(partitions)]
        self._config = self.troubles.config(bootstrap)
        self._admin = AdminClient(self._config)

    def create(self) -> None:
        wanted = [NewTopic(name, self._partitions, 1) for name in self._topics]
        for future in self._admin.create_topics(wanted).values():
            future.result(LONG_S)

    def list_topics(self) -> None:
        found = self._admin.list_topics(timeout=LONG_S).topics
        for name in self._topics:
            assert len(found[name].partitions) == self._partitions, name

    def describe(self) -> None:
        described = self._admin.describe_topics(TopicCollection(self._topics))
        for name, future in described.items():
            assert len(future.result(LONG_S).partitions) == self._partitions, name

    def produce(self) -> None:
        producer = Producer(self._config)

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                self.troubles.found.append(f"not delivered: {error}")

        for name, index in self.places:
            producer.produce(name, f"{name}/{index}", partition=index, on_delivery=delivered)
        assert producer.flush(LONG_S) == 0

    def read_alone(self) -> None:
        self._read("rd-alone", 1)

    def read_together(self) -> None:
        self._read("rd-together", MEMBERS)

    def offsets_by_time(self) -> None:
        with self._consumer("rd-alone") as consumer:
            asked = [TopicPartition(name, index, 1) for name, index in self.places]
            found = consumer.offsets_for_times(asked, timeout=LONG_S)
            assert len(found) == len(self.places)
            assert all(each.error is None and each.offset == 0 for each in found)

    def committed(self) -> None:
        with self._consumer("rd-alone") as consumer:
            asked = [TopicPartition(*place) for place in self.places]
            found = consumer.committed(asked, timeout=LONG_S)
            assert all(each.error is None and each.offset == 1 for each in found)

    def describe_group(self) -> None:
        described = self._admin.describe_consumer_groups(["rd-alone", "rd-together"])
        for future in described.values():
            future.result(LONG_S)
        asked = [ConsumerGroupTopicPartitions("rd-together")]
        listed = self._admin.list_consumer_group_offsets(asked)["rd-together"].result(LONG_S)
        assert len(listed.topic_partitions) == len(self.places)

    def delete(self) -> None:
        for future in self._admin.delete_topics(self._topics).values():
            future.result(LONG_S)
        for future in self._admin.delete_consumer_groups(["rd-alone", "rd-together"]).values():
            future.result(LONG_S)

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer({**self._config, "group.id": group, "auto.offset.reset": "earliest"})
        try:
            yield consumer
        finally:
            consumer.close()

    def _read(self, group: str, members: int) -> None:
        """Every record is read by a group of so many members, and all is committed."""
        config = {**self._config, "group.id": group, "auto.offset.reset": "earliest"}
        consumers = [Consumer(config) for _ in range(members)]
        for consumer in consumers:
            consumer.subscribe(self._topics)
        left = set(self.places)
        due = time.monotonic() + LONG_S
        while left:
            assert time.monotonic() < due, f"{len(left)} records were not read"
            for consumer in consumers:
                for message in consumer.consume(1000, timeout=0.05):
                    assert message.error() is None, message.error()
                    place = (message.topic(), message.partition())
                    assert message.value() == f"{place[0]}/{place[1]}".encode()
                    left.discard(place)
        for consumer in consumers:
            consumer.close()  # It commits what it has read.

    def steps(self) -> list[Callable[[], None]]:
        return [
            *(self.create, self.list_topics, self.describe, self.produce, self.read_alone),
            *(self.offsets_by_time, self.committed, self.read_together, self.describe_group),
            self.delete,
        ]


def main(bootstrap: str, topics: int, partitions: int) -> None:
    story = Story(bootstrap, topics, partitions)
    for step in story.steps():
        begun = time.monotonic()
        step()
        tell(step.__name__, time.monotonic() - begun)
    if story.troubles.found:
        sys.exit("\n".join(story.troubles.found[:20]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
