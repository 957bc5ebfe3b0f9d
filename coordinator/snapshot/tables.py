"""The small tables of a snapshot: topics, incarnations, pins, transactions, jobs and the like.

A friend of these modules: it reads their fields and sets all of them. Maps that follow from rows
(topics by name, transactional ids by producer) are made again and not written.

Partitions that take part in an open transaction must be the objects that the table of partitions
has, so transactions come after partitions.
"""

from collections.abc import Callable, Generator
from typing import Final

from coordinator.commands.job_commands import JobKind
from coordinator.commands.layout import (
    Layout,
    UInt63,
    fields_of,
    layout_of,
    list_of,
    member_of,
    optional,
    tuple_of,
)
from coordinator.commands.runs import Places
from coordinator.snapshot.rows import (
    FLAG,
    INCARNATION,
    INT,
    POSITION,
    STRING,
    UINT,
    Fields,
    read,
    read_fields,
    write,
    write_fields,
)
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.features import Features
from coordinator.tables.incarnations import IncarnationRow, Incarnations
from coordinator.tables.jobs import JobRow, Jobs
from coordinator.tables.partition import Partition
from coordinator.tables.pins import PinRow, Pins
from coordinator.tables.producer_ids import ProducerIds
from coordinator.tables.snapshots import Begun, Published, Snapshots
from coordinator.tables.topics import Topic, Topics, _folded
from coordinator.tables.transactions import TransactionRow, Transactions
from protocol.types import TopicId
from txn.transactions import Adds, Connection, State, TransactionMetadata

_FEATURES: Final[Fields] = {"transaction_version": UINT, "epoch": POSITION, "_begun": FLAG}
_PRODUCER_IDS: Final[Fields] = {"next": UINT}
_TOPIC: Final[Layout[Topic]] = layout_of(Topic)
_TOPICS: Final[Fields] = {"version": UINT}
_INCARNATION: Final[Layout[IncarnationRow]] = layout_of(IncarnationRow)
_NODE_ID: Final = layout_of(tuple[str, UInt63])
_PIN: Final[Layout[PinRow]] = layout_of(PinRow)
_CONNECTION: Final = optional(fields_of(Connection, incarnation=INCARNATION, number=INT))
_TXN_METADATA: Final = fields_of(
    TransactionMetadata,
    producer_id=UINT,
    epoch=INT,
    last_epoch=INT,
    previous_id=INT,
    state=member_of(State),
    instance=UINT,
    adds=fields_of(
        Adds, owner=_CONNECTION, newest_by=_CONNECTION, newest_at=POSITION, others_at=POSITION
    ),
    given_up=FLAG,
)
_TRANSACTION: Final = tuple_of(
    {
        ".transactional_id": STRING,
        ".txn_metadata": _TXN_METADATA,
        ".timeout_ms": INT,
        ".started_ms": INT,
        ".changed_ms": INT,
        ".ended_at": POSITION,
        ".partitions": layout_of(Places),
        ".group_ids": list_of(STRING),
    }
)
_TRANSACTIONS: Final[Fields] = {"participants": UINT, "size": UINT}
_JOB: Final[Layout[JobRow]] = layout_of(JobRow)
_BEGUN: Final[Layout[Begun]] = layout_of(Begun)
_PUBLISHED: Final[Layout[Published]] = layout_of(Published)

# Features and producer ids.


def dump_features(out: BlockWriter, features: Features, producer_ids: ProducerIds) -> None:
    write_fields(out, (features, _FEATURES), (producer_ids, _PRODUCER_IDS))


def restore_features(parts: BlockReader, features: Features, producer_ids: ProducerIds) -> None:
    read_fields(parts, (features, _FEATURES), (producer_ids, _PRODUCER_IDS))


# Topics.


def dump_topics(out: BlockWriter, topics: Topics) -> None:
    write_fields(out, (topics, _TOPICS))
    write(out, topics, len(topics), _TOPIC)


def restore_topics(parts: BlockReader, topics: Topics) -> None:
    read_fields(parts, (topics, _TOPICS))
    topics._by_id, topics._by_name, topics._by_folded_name = {}, {}, {}
    for topic in read(parts, _TOPIC):
        topics._by_id[topic.topic_id] = topic
        topics._by_name[topic.name] = topic
        topics._by_folded_name[_folded(topic.name)] = topic.name


# Incarnations.


def dump_incarnations(out: BlockWriter, incarnations: Incarnations) -> None:
    write(out, incarnations, len(incarnations), _INCARNATION)
    write(out, incarnations._node_ids.items(), len(incarnations._node_ids), _NODE_ID)


def restore_incarnations(parts: BlockReader, incarnations: Incarnations) -> None:
    incarnations._live = {row.incarnation: row for row in read(parts, _INCARNATION)}
    incarnations._node_ids = dict(read(parts, _NODE_ID))


# Pins.


def dump_pins(out: BlockWriter, pins: Pins) -> None:
    write(out, pins._rows.values(), len(pins._rows), _PIN)


def restore_pins(parts: BlockReader, pins: Pins) -> None:
    pins._rows = {row.name: row for row in read(parts, _PIN)}


# Transactions.


def dump_transactions(out: BlockWriter, transactions: Transactions) -> None:
    write_fields(out, (transactions, _TRANSACTIONS))
    write(out, transactions, len(transactions), _TRANSACTION)
    write(out, transactions.ongoing, len(transactions.ongoing), STRING)


def restore_transactions(
    parts: BlockReader, transactions: Transactions, partition: Callable[[TopicId, int], Partition]
) -> Generator[None, None, None]:
    """In steps of a row. `partition` gives the row of a place, also of a deleted topic."""
    read_fields(parts, (transactions, _TRANSACTIONS))
    transactions._rows, transactions._by_producer = {}, {}
    for fields in read(parts, _TRANSACTION):
        transactional_id, txn_metadata, *times, ended_at, places, group_ids = fields
        row = TransactionRow(transactional_id, txn_metadata)
        row.timeout_ms, row.started_ms, row.changed_ms = times
        row.ended_at = ended_at
        if row.is_ongoing:
            row.partitions = {place: partition(*place) for place in places}
            row.group_ids = dict.fromkeys(group_ids)
        transactions._rows[row.transactional_id] = row
        yield
        for producer_id in (row.txn_metadata.previous_id, row.txn_metadata.producer_id):
            if producer_id != -1:
                transactions._by_producer[producer_id] = row
    transactions._ongoing = {name: transactions._rows[name] for name in read(parts, STRING)}


# Jobs and snapshots.


def dump_jobs(out: BlockWriter, jobs: Jobs, snapshots: Snapshots) -> None:
    rows = jobs._rows.values()
    write(out, rows, len(rows), _JOB)
    begun = () if snapshots.begun is None else (snapshots.begun,)
    write(out, begun, len(begun), _BEGUN)
    write(out, snapshots.published, len(snapshots.published), _PUBLISHED)


def restore_jobs(parts: BlockReader, jobs: Jobs, snapshots: Snapshots) -> None:
    jobs._rows.update({kind: JobRow(kind) for kind in JobKind})
    jobs._rows.update({row.kind: row for row in read(parts, _JOB)})
    snapshots.begun = None
    for begun in read(parts, _BEGUN):
        snapshots.begun = begun
    snapshots.published = tuple(read(parts, _PUBLISHED))
    snapshots.is_beginning = False
