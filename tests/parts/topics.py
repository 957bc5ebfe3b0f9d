"""Topics for tests with real clients, and how such tests ask for changes."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

T = TypeVar("T")

PATIENCE_S: Final = 30.0


def patiently(change: Callable[[], T], *refusals: type[Exception]) -> T:
    """What the call returns, which is made again for 30 s while it raises one of these.

    An agent that stood still, as it may on a busy machine, refuses what changes something (P17);
    librdkafka's and Python's admin clients do not send again by themselves.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return change()
        except refusals:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def create_topic(
    admin: AdminClient, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """Create it, within 30 s."""

    def create() -> None:
        topic = NewTopic(name, partitions, 1, config=dict(configs or {}))
        told(admin.create_topics([topic])[name])

    patiently(create, NotNowError)


class NotNowError(Exception):
    """The agent refuses for the moment."""


def told(future: Future[T]) -> T:
    """What librdkafka's admin client is told. Raises NotNowError when it should ask again."""
    try:
        return future.result(PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() in (
            KafkaError.NOT_CONTROLLER,
            KafkaError.NOT_LEADER_FOR_PARTITION,
        ):
            raise NotNowError from error
        raise
