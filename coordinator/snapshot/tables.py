"""The small tables of a snapshot: topics, incarnations, pins, transactions, jobs and the like.

A friend of these modules: it reads their fields and sets all of them. Maps that follow from rows
(topics by name, transactional ids by producer) are made again and not written.

Partitions that take part in an open transaction must be the objects that the table of partitions
has, so transactions come after partitions.
"""

from collections.abc import Callable, Generator

from coordinator.commands.encoding import (
    put_bytes,
    put_signed,
    put_string,
    put_topic_id,
    put_varint,
    read_bytes,
    read_signed,
    read_string,
    read_topic_id,
    read_varint,
)
from coordinator.commands.entries import Listener
from coordinator.commands.job_commands import JobKind
from coordinator.commands.runs import put_places, read_places
from coordinator.snapshot.rows import put_strings, read, read_strings, write
from coordinator.snapshot.stream import In, Out
from coordinator.tables.features import Features
from coordinator.tables.incarnations import IncarnationRow, Incarnations
from coordinator.tables.jobs import JobRow, Jobs
from coordinator.tables.partition import Partition
from coordinator.tables.pins import PinRow, Pins
from coordinator.tables.producer_ids import ProducerIds
from coordinator.tables.snapshots import Begun, Published, Snapshots
from coordinator.tables.topics import Topic, Topics, _folded
from coordinator.tables.transactions import TransactionRow, Transactions
from protocol.types import Incarnation, Position, TopicId
from txn.transactions import Adds, Connection, Standing, State

# Features and producer ids.


def dump_features(out: Out, features: Features, producer_ids: ProducerIds) -> None:
    data = bytearray()
    put_varint(data, features.transaction_version)
    put_varint(data, features.epoch)
    put_varint(data, features._begun)
    put_varint(data, producer_ids.next)
    out.block(data)


def restore_features(parts: In, features: Features, producer_ids: ProducerIds) -> None:
    data = parts.bytes()
    features.transaction_version, at = read_varint(data, 0)
    epoch, at = read_varint(data, at)
    features.epoch = Position(epoch)
    begun, at = read_varint(data, at)
    features._begun = bool(begun)
    producer_ids.next, at = read_varint(data, at)


# Topics.


def dump_topics(out: Out, topics: Topics) -> None:
    data = bytearray()
    put_varint(data, topics.version)
    out.block(data)
    write(out, topics, len(topics), _put_topic)


def restore_topics(parts: In, topics: Topics) -> None:
    version, _ = read_varint(parts.bytes(), 0)
    topics._by_id, topics._by_name, topics._by_folded_name = {}, {}, {}
    for topic in read(parts, _read_topic):
        topics._by_id[topic.topic_id] = topic
        topics._by_name[topic.name] = topic
        topics._by_folded_name[_folded(topic.name)] = topic.name
    topics.version = version


def _put_topic(data: bytearray, topic: Topic) -> None:
    put_topic_id(data, topic.topic_id)
    put_string(data, topic.name)
    put_varint(data, topic.partition_count)
    put_strings(data, topic.configs)
    put_varint(data, topic.created)
    put_varint(data, topic.configs_changed)


def _read_topic(data: bytes, at: int) -> tuple[Topic, int]:
    topic_id, at = read_topic_id(data, at)
    name, at = read_string(data, at)
    partition_count, at = read_varint(data, at)
    configs, at = read_strings(data, at)
    created, at = read_varint(data, at)
    changed, at = read_varint(data, at)
    topic = Topic(
        topic_id=topic_id,
        name=name,
        partition_count=partition_count,
        configs=configs,
        created=Position(created),
        configs_changed=Position(changed),
    )
    return topic, at


# Incarnations.


def dump_incarnations(out: Out, incarnations: Incarnations) -> None:
    write(out, incarnations, len(incarnations), _put_incarnation)
    write(out, incarnations._node_ids.items(), len(incarnations._node_ids), _put_node_id)


def restore_incarnations(parts: In, incarnations: Incarnations) -> None:
    incarnations._live = {row.incarnation: row for row in read(parts, _read_incarnation)}
    incarnations._node_ids = dict(read(parts, _read_node_id))


def _put_incarnation(data: bytearray, row: IncarnationRow) -> None:
    put_varint(data, row.incarnation)
    put_signed(data, row.session)
    put_varint(data, row.node_id)
    put_string(data, row.node_name)
    put_string(data, row.zone)
    put_varint(data, len(row.listeners))
    for name, host, port in row.listeners:
        put_string(data, name)
        put_string(data, host)
        put_varint(data, port)
    put_varint(data, row.rank)
    put_string(data, row.software_version)
    put_varint(data, row.feature_level_max)
    put_signed(data, row.clock_ms)
    put_varint(data, row.last_n)
    put_signed(data, row.chunk_last)
    put_signed(data, row.segment_last)
    put_signed(data, row.index_last)


def _read_incarnation(data: bytes, at: int) -> tuple[IncarnationRow, int]:
    incarnation, at = read_varint(data, at)
    session, at = read_signed(data, at)
    node_id, at = read_varint(data, at)
    node_name, at = read_string(data, at)
    zone, at = read_string(data, at)
    listeners, at = _read_listeners(data, at)
    rank, at = read_varint(data, at)
    software_version, at = read_string(data, at)
    feature_level_max, at = read_varint(data, at)
    clock_ms, at = read_signed(data, at)
    last_n, at = read_varint(data, at)
    chunk_last, at = read_signed(data, at)
    segment_last, at = read_signed(data, at)
    index_last, at = read_signed(data, at)
    row = IncarnationRow(
        incarnation=Incarnation(incarnation),
        session=session,
        node_id=node_id,
        node_name=node_name,
        zone=zone,
        listeners=listeners,
        rank=rank,
        software_version=software_version,
        feature_level_max=feature_level_max,
        clock_ms=clock_ms,
        last_n=last_n,
        chunk_last=chunk_last,
        segment_last=segment_last,
        index_last=index_last,
    )
    return row, at


def _read_listeners(data: bytes, at: int) -> tuple[tuple[Listener, ...], int]:
    count, at = read_varint(data, at)
    listeners = []
    for _ in range(count):
        name, at = read_string(data, at)
        host, at = read_string(data, at)
        port, at = read_varint(data, at)
        listeners.append(Listener(name, host, port))
    return tuple(listeners), at


def _put_node_id(data: bytearray, row: tuple[str, int]) -> None:
    put_string(data, row[0])
    put_varint(data, row[1])


def _read_node_id(data: bytes, at: int) -> tuple[tuple[str, int], int]:
    name, at = read_string(data, at)
    node_id, at = read_varint(data, at)
    return (name, node_id), at


# Pins.


def dump_pins(out: Out, pins: Pins) -> None:
    write(out, pins._rows.values(), len(pins._rows), _put_pin)


def restore_pins(parts: In, pins: Pins) -> None:
    pins._rows = {row.name: row for row in read(parts, _read_pin)}


def _put_pin(data: bytearray, row: PinRow) -> None:
    put_string(data, row.name)
    put_varint(data, row.position)
    put_signed(data, row.expires_ms)


def _read_pin(data: bytes, at: int) -> tuple[PinRow, int]:
    name, at = read_string(data, at)
    position, at = read_varint(data, at)
    expires_ms, at = read_signed(data, at)
    return PinRow(name, Position(position), expires_ms), at


# Transactions.


def dump_transactions(out: Out, transactions: Transactions) -> None:
    data = bytearray()
    put_varint(data, transactions.participants)
    put_varint(data, transactions.size)
    out.block(data)
    write(out, transactions, len(transactions), _put_transaction)
    write(out, transactions.ongoing, len(transactions.ongoing), put_string)


def restore_transactions(
    parts: In, transactions: Transactions, partition: Callable[[TopicId, int], Partition]
) -> Generator[None, None, None]:
    """In steps of a row. `partition` gives the row of a place, also of a deleted topic."""

    def read_row(data: bytes, at: int) -> tuple[TransactionRow, int]:
        row, places, at = _read_transaction(data, at)
        if row.is_ongoing:
            row.partitions = {place: partition(*place) for place in places}
        return row, at

    data = parts.bytes()
    transactions.participants, at = read_varint(data, 0)
    transactions.size, _ = read_varint(data, at)
    transactions._rows, transactions._by_producer = {}, {}
    for row in read(parts, read_row):
        transactions._rows[row.transactional_id] = row
        yield
        for producer_id in (row.standing.previous_id, row.standing.producer_id):
            if producer_id != -1:
                transactions._by_producer[producer_id] = row
    transactions._ongoing = {name: transactions._rows[name] for name in read(parts, read_string)}


def _put_transaction(data: bytearray, row: TransactionRow) -> None:
    put_string(data, row.transactional_id)
    _put_standing(data, row.standing)
    put_signed(data, row.timeout_ms)
    put_signed(data, row.started_ms)
    put_signed(data, row.changed_ms)
    put_varint(data, row.ended_at)
    put_places(data, tuple(row.partitions))
    put_varint(data, len(row.group_ids))
    for group_id in row.group_ids:
        put_string(data, group_id)


def _read_transaction(
    data: bytes, at: int
) -> tuple[TransactionRow, tuple[tuple[TopicId, int], ...], int]:
    """The row, still without partitions, and the places of these."""
    transactional_id, at = read_string(data, at)
    standing, at = _read_standing(data, at)
    row = TransactionRow(transactional_id, standing)
    row.timeout_ms, at = read_signed(data, at)
    row.started_ms, at = read_signed(data, at)
    row.changed_ms, at = read_signed(data, at)
    ended_at, at = read_varint(data, at)
    row.ended_at = Position(ended_at)
    places, at = read_places(data, at)
    count, at = read_varint(data, at)
    group_ids: dict[str, None] = {}
    for _ in range(count):
        group_id, at = read_string(data, at)
        group_ids[group_id] = None
    if row.is_ongoing:
        row.group_ids = group_ids
    return row, places, at


def _put_standing(data: bytearray, standing: Standing) -> None:
    put_varint(data, standing.producer_id)
    put_signed(data, standing.epoch)
    put_signed(data, standing.last_epoch)
    put_signed(data, standing.previous_id)
    put_varint(data, standing.state)
    put_varint(data, standing.instance)
    _put_connection(data, standing.adds.owner)
    _put_connection(data, standing.adds.newest_by)
    put_varint(data, standing.adds.newest_at)
    put_varint(data, standing.adds.others_at)
    put_varint(data, standing.given_up)


def _read_standing(data: bytes, at: int) -> tuple[Standing, int]:
    producer_id, at = read_varint(data, at)
    epoch, at = read_signed(data, at)
    last_epoch, at = read_signed(data, at)
    previous_id, at = read_signed(data, at)
    state, at = read_varint(data, at)
    instance, at = read_varint(data, at)
    owner, at = _read_connection(data, at)
    newest_by, at = _read_connection(data, at)
    newest_at, at = read_varint(data, at)
    others_at, at = read_varint(data, at)
    given_up, at = read_varint(data, at)
    adds = Adds(owner, newest_by, Position(newest_at), Position(others_at))
    standing = Standing(
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        previous_id=previous_id,
        state=State(state),
        instance=instance,
        adds=adds,
        given_up=bool(given_up),
    )
    return standing, at


def _put_connection(data: bytearray, connection: Connection | None) -> None:
    put_varint(data, connection is not None)
    if connection is not None:
        put_varint(data, connection.incarnation)
        put_signed(data, connection.number)


def _read_connection(data: bytes, at: int) -> tuple[Connection | None, int]:
    there, at = read_varint(data, at)
    if not there:
        return None, at
    incarnation, at = read_varint(data, at)
    number, at = read_signed(data, at)
    return Connection(Incarnation(incarnation), number), at


# Jobs and snapshots.


def dump_jobs(out: Out, jobs: Jobs, snapshots: Snapshots) -> None:
    rows = jobs._rows.values()
    write(out, rows, len(rows), _put_job)
    begun = () if snapshots.begun is None else (snapshots.begun,)
    write(out, begun, len(begun), _put_begun)
    write(out, snapshots.published, len(snapshots.published), _put_published)


def restore_jobs(parts: In, jobs: Jobs, snapshots: Snapshots) -> None:
    jobs._rows.update({kind: JobRow(kind) for kind in JobKind})
    jobs._rows.update({row.kind: row for row in read(parts, _read_job)})
    snapshots.begun = None
    for begun in read(parts, _read_begun):
        snapshots.begun = begun
    snapshots.published = tuple(read(parts, _read_published))
    snapshots.is_beginning = False


def _put_job(data: bytearray, row: JobRow) -> None:
    put_varint(data, row.kind)
    put_varint(data, row.holder)
    put_varint(data, row.claimed)
    put_varint(data, row.requested)
    put_varint(data, row.done)
    put_varint(data, row.total)
    put_varint(data, row.running)
    put_string(data, row.note)
    put_signed(data, row.reported_ms)


def _read_job(data: bytes, at: int) -> tuple[JobRow, int]:
    kind, at = read_varint(data, at)
    holder, at = read_varint(data, at)
    claimed, at = read_varint(data, at)
    requested, at = read_varint(data, at)
    done, at = read_varint(data, at)
    total, at = read_varint(data, at)
    running, at = read_varint(data, at)
    note, at = read_string(data, at)
    reported_ms, at = read_signed(data, at)
    row = JobRow(
        kind=JobKind(kind),
        holder=Incarnation(holder),
        claimed=Position(claimed),
        requested=Position(requested),
        done=done,
        total=total,
        running=bool(running),
        note=note,
        reported_ms=reported_ms,
    )
    return row, at


def _put_begun(data: bytearray, begun: Begun) -> None:
    put_varint(data, begun.position)
    put_bytes(data, begun.digest)


def _read_begun(data: bytes, at: int) -> tuple[Begun, int]:
    position, at = read_varint(data, at)
    digest, at = read_bytes(data, at)
    return Begun(Position(position), digest), at


def _put_published(data: bytearray, published: Published) -> None:
    put_varint(data, published.position)
    put_bytes(data, published.digest)
    put_string(data, published.key)
    put_varint(data, published.published_at)


def _read_published(data: bytes, at: int) -> tuple[Published, int]:
    position, at = read_varint(data, at)
    digest, at = read_bytes(data, at)
    key, at = read_string(data, at)
    published_at, at = read_varint(data, at)
    return Published(Position(position), digest, key, Position(published_at)), at
