"""A transaction that another producer ends, which was told its id and epoch: what Flink's sink does.

The producer that wrote speaks KIP-890; the one that resumes never initialised itself, so its EndTxn
is of the generation before, and it comes on a connection that has added nothing.
"""

from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from protocol.errors import ErrorCode
from tests.clients.raw import Connection, Place
from tests.clients.raw_txn import NEW_JAVA, Dialect, Producer, visible
from tests.clients.side_by_side import Pair
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

RESUMED = Dialect(add=3, produce=12, end=4)
PLACE: Place = ("resumed", 0)
STORY = {
    "commit": ErrorCode.NONE,
    "commit again": ErrorCode.NONE,
    "commit again elsewhere": ErrorCode.NONE,
    "abort after it": ErrorCode.INVALID_TXN_STATE,
    "the writer commits as well": ErrorCode.INVALID_TXN_STATE,
    "commit what its writer committed": ErrorCode.PRODUCER_FENCED,
    "abort what its writer committed": ErrorCode.PRODUCER_FENCED,
    "commit what was, while the next is open": ErrorCode.PRODUCER_FENCED,
    "commit what a newcomer aborted": ErrorCode.PRODUCER_FENCED,
    "commit nothing": ErrorCode.INVALID_TXN_STATE,
    "commit of an unknown id": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
"""What is done, and how it ends."""


def play(bootstrap: str) -> dict[str, ErrorCode]:
    """The whole story on one cluster, by what is done."""
    create_topic(AdminClient({"bootstrap.servers": bootstrap}), PLACE[0], 1)
    told: dict[str, ErrorCode] = {}
    with (
        Connection(bootstrap, seconds=30) as own,
        Connection(bootstrap, seconds=30) as other,
        Connection(bootstrap, seconds=30) as third,
    ):
        writer = Producer("resumed", NEW_JAVA)
        writer.init(own)
        writer.write(own, PLACE, "first")
        resumed = replace(writer, dialect=RESUMED)
        told["commit"] = resumed.end(other, commit=True)[-1]
        told["commit again"] = resumed.end(other, commit=True)[-1]
        told["commit again elsewhere"] = resumed.end(third, commit=True)[-1]
        told["abort after it"] = resumed.end(third, commit=False)[-1]
        told["the writer commits as well"] = writer.end(own, commit=True)[-1]
        writer.init(own)
        writer.write(own, PLACE, "second")
        resumed = replace(writer, dialect=RESUMED)
        assert writer.end(own, commit=True)[-1] == ErrorCode.NONE
        told["commit what its writer committed"] = resumed.end(other, commit=True)[-1]
        told["abort what its writer committed"] = resumed.end(other, commit=False)[-1]
        writer.write(own, PLACE, "third")
        told["commit what was, while the next is open"] = resumed.end(other, commit=True)[-1]
        resumed = replace(writer, dialect=RESUMED)
        newcomer = Producer("resumed", NEW_JAVA)
        newcomer.init(third)
        told["commit what a newcomer aborted"] = resumed.end(other, commit=True)[-1]
        resumed = replace(newcomer, dialect=RESUMED)
        told["commit nothing"] = resumed.end(other, commit=True)[-1]
        unknown = Producer("never seen", RESUMED, producer_id=12_345, epoch=0)
        told["commit of an unknown id"] = unknown.end(other, commit=True)[-1]
    return told


def test_a_resumed_transaction_ends_as_in_kafka(beside: Pair) -> None:
    for bootstrap in beside:
        assert play(bootstrap) == STORY
        assert visible(bootstrap, PLACE) == ["first", "second"]


def test_an_id_begins_at_epoch_0_and_never_has_it_again(beside: Pair) -> None:
    """By this Flink finds out which ids the attempt before has used: until one answers 0."""
    for bootstrap in beside:
        with Connection(bootstrap, seconds=30) as connection:
            epochs = []
            for _ in range(3):
                producer = Producer("probed", NEW_JAVA)
                producer.init(connection)
                epochs.append(producer.epoch)
        assert epochs == [0, 1, 2]
