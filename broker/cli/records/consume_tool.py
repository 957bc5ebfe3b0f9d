"""`frazil consume`: records of topics, written to standard output.

Without a group each partition is read from a place to a place (`places`). With one, librdkafka shares the
partitions with the group's other members, and a record's offset is committed only once it was written out, so what
a broken pipe swallowed is read again.
"""

import secrets
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, BinaryIO, Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from broker.cli.arguments import FailedError, complain
from broker.cli.records import places
from broker.cli.records.client import Events, arrived, client_of, partitions_of, settings_of
from broker.cli.records.places import Bounds, Partition, Place
from broker.cli.records.progress import Progress
from broker.cli.records.reading import Reading
from broker.cli.records.record_text import ConsumedRecord, Headers, RecordError

BATCH: Final = 10_000
WAIT_S: Final = 0.1
"""For a first record, before it is looked at whether there are enough."""

Write = Callable[[ConsumedRecord], bytes]


def consume(options: Namespace, write: Write, out: BinaryIO) -> int:
    """Writes records until there are enough. Raises FailedError, SettingsError, BrokenPipeError."""
    events = Events()
    if options.group is None:
        # librdkafka looks for the coordinator of its made-up group, which nobody waits for.
        events.harmless = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
    consumer = client_of(Consumer, _settings(options, events))
    progress = Progress("read")
    try:
        reading = _begin(consumer, options, events)
        while not reading.is_done():
            _step(consumer, reading, (write, out), progress, events)
            if events.is_lost():
                complain(
                    options.name, f"no agent answers any more ({events.reason}); it is tried again"
                )
        if options.group is not None:
            _commit(consumer)
    finally:
        progress.end()
        consumer.close()
    return 0


def _settings(options: Namespace, events: Events) -> dict[str, Any]:
    found = {
        "allow.auto.create.topics": False,
        "auto.offset.reset": "latest" if options.begin.word == places.LATEST else "earliest",
        "enable.auto.commit": options.group is not None,
        "enable.auto.offset.store": False,
        "enable.metrics.push": False,
        "enable.partition.eof": True,
        # By default it sits idle for a second once what it has read ahead is enough.
        "fetch.queue.backoff.ms": 10,
        "group.id": options.group or f"frazil-{secrets.token_hex(8)}",
        "isolation.level": options.isolation_level,
    }
    return found | settings_of(options, events)


def _begin(consumer: Consumer, options: Namespace, events: Events) -> Reading:
    """Starts to read. Raises FailedError."""
    known = {
        topic: partitions_of(consumer, topic, events, timeout_ms=options.timeout_ms)
        for topic in options.topics
    }
    stops = options.until is not None
    if options.group is not None:
        reading = Reading(limit=options.count, stops=stops)
        consumer.subscribe(
            options.topics,
            on_assign=lambda _, given: reading.begin(_names(given)),
            on_revoke=lambda _, given: reading.leave(_names(given)),
            on_lost=lambda _, given: reading.leave(_names(given)),
        )
        return reading
    chosen = _chosen(known, options.partitions)
    timeout_s = options.timeout_ms / 1000
    try:
        bounds = {
            one: Bounds(*consumer.get_watermark_offsets(TopicPartition(*one), timeout=timeout_s))
            for one in chosen
        }
        begins = _offsets(consumer, options.begin, bounds, timeout_s)
        ends = _offsets(consumer, options.until, bounds, timeout_s) if stops else None
    except KafkaException as error:
        raise FailedError(
            f"the offsets of partitions are not told: {error.args[0].str()}"
        ) from error
    reading = Reading(limit=options.count, stops=stops, ends=ends)
    wanted = [one for one in chosen if ends is None or begins[one] < ends[one]]
    consumer.assign([TopicPartition(*one, begins[one]) for one in wanted])
    reading.begin(wanted)
    return reading


def _names(given: Sequence[TopicPartition]) -> list[Partition]:
    return [(one.topic, one.partition) for one in given]


def _chosen(known: Mapping[str, Sequence[int]], wanted: Collection[int] | None) -> list[Partition]:
    """Raises FailedError for a partition that there is not."""
    for topic, partitions in known.items():
        if lacking := sorted({*(wanted or ())} - {*partitions}):
            raise FailedError(
                f'topic "{topic}" has no partition {lacking[0]}, but 0 to {max(partitions)}'
            )
    return [
        (topic, partition)
        for topic, partitions in known.items()
        for partition in partitions
        if wanted is None or partition in wanted
    ]


def _offsets(
    consumer: Consumer, place: Place, bounds: Mapping[Partition, Bounds], timeout_s: float
) -> dict[Partition, int]:
    """Raises KafkaException."""

    def at_time(time_ms: int) -> dict[Partition, int | None]:
        asked = [TopicPartition(*one, time_ms) for one in bounds]
        found = {}
        for one in consumer.offsets_for_times(asked, timeout=timeout_s):
            if one.error is not None:
                raise KafkaException(one.error)
            found[one.topic, one.partition] = one.offset if one.offset >= 0 else None
        return found

    return places.offsets_at(place, bounds, at_time)


def _step(
    consumer: Consumer,
    reading: Reading,
    to: tuple[Write, BinaryIO],
    progress: Progress,
    events: Events,
) -> None:
    """Writes what has come. Raises FailedError, BrokenPipeError."""
    write, out = to
    bad = ""
    count = BATCH if reading.wanted is None else min(BATCH, reading.wanted)
    pieces: list[bytes] = []
    for message in arrived(consumer, count, WAIT_S):
        error = message.error()
        if error is not None:
            if error.code() not in events.harmless:
                _told(error, message, reading)
            continue
        record = _record(message)
        where = record.topic, record.partition
        if reading.takes(where, record.offset):
            try:
                pieces.append(write(record))
            except RecordError as error:
                reading.stops_at(where, record.offset)
                bad = str(error)
                break
    if pieces:
        text = b"".join(pieces)
        out.write(text)
        out.flush()
        progress.add(len(pieces), len(text))
        events.answered()
    if events.refusal:
        raise FailedError(events.refusal)
    _store(consumer, reading)
    if bad:
        # What came before it is written out, and committed when the consumer is closed.
        raise FailedError(bad)


def _told(error: KafkaError, message: Message, reading: Reading) -> None:
    """Raises FailedError for all but the end of a partition."""
    topic, partition = message.topic(), message.partition()
    if error.code() == KafkaError._PARTITION_EOF and topic is not None and partition is not None:  # noqa: SLF001
        reading.at_end((topic, partition))
        return
    where = f'topic "{topic}" cannot be read' if topic else "nothing can be read"
    raise FailedError(f"{where}: {error.str()} ({error.name()})")


def _record(message: Message) -> ConsumedRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return ConsumedRecord(
        topic,
        partition,
        offset,
        message.timestamp()[1],
        message.key(),
        message.value(),
        cast("Headers", message.headers() or ()),
    )


def _store(consumer: Consumer, reading: Reading) -> None:
    """Lets the group's next commit have what was written; without a group nobody commits it."""
    taken = [TopicPartition(*one, offset) for one, offset in reading.taken().items()]
    try:
        if taken:
            consumer.store_offsets(offsets=taken)
    except KafkaException as error:
        # They were given away meanwhile, with what was read of them: others read it again.
        if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001
            raise FailedError(f"offsets cannot be kept: {error.args[0].str()}") from error


def _commit(consumer: Consumer) -> None:
    """Raises FailedError."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:  # noqa: SLF001
            raise FailedError(f"offsets are not committed: {error.args[0].str()}") from error
