"""`frazil produce`: records from standard input or files, sent to a topic.

What was read is sent in order, and all of it is waited for: the command ends with 0 only when each record is
acknowledged. Records that are not are counted, and the first of them is told with its line.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from broker.cli.arguments import FAILED, FailedError, complain
from broker.cli.records.client import Events, client_of, partitions_of, settings_of
from broker.cli.records.progress import Progress
from broker.cli.records.record_text import (
    BY_SCHEMA,
    ENCODINGS,
    Headers,
    LineFormat,
    NewRecord,
    RecordError,
    Taken,
    record_of_json,
    record_of_line,
)
from protocol.fault_codes import Sentence, fault_of

QUEUED_KBYTES: Final = 128 * 1024
"""Of records that are not sent yet."""
TURN: Final = 1000
"""Of so many records librdkafka is asked what became of those before."""
READ_BYTES: Final = 1 << 20
WAIT_S: Final = 0.1


class Failures:
    """Of records that were read. Partitions fail in any order; the first is the one that was read first."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""
        self._number = 0

    def add(self, number: int, error: KafkaError | None, _message: Message) -> None:
        """librdkafka gave a record up."""
        self.count += 1
        if error is not None and (not self.first or number < self._number):
            self._number = number
            self.first = f"the first is record {number}: {error.str()} ({error.name()})"


def produce(options: Namespace, source: BufferedReader) -> int:
    """Sends what the source has. Raises FailedError, SettingsError."""
    events = Events()
    producer = client_of(Producer, _settings(options, events))
    partitions = partitions_of(producer, options.topic, events, timeout_ms=options.timeout_ms)
    if options.partition >= len(partitions):
        raise FailedError(
            f'topic "{options.topic}" has no partition {options.partition}, but 0 to {partitions[-1]}'
        )
    takes = _takes(options)
    failures = Failures()
    progress = Progress("sent")
    bad, read = "", 0
    try:
        size = 0
        for number, record in enumerate(records_of(options, source, takes), 1):
            try:
                _send(producer, options, record, partial(failures.add, number))
            except KafkaException as error:
                if error.args[0].code() == KafkaError._FATAL:  # noqa: SLF001
                    # Why all has ended is heard below.
                    break
                raise RecordError(f"record {number}: {error.args[0].str()}") from error
            read, size = number, size + len(record.value or b"") + len(record.key or b"")
            if number % TURN == 0:
                _heard(events, lambda: producer.poll(0))
                progress.add(TURN, size)
                size = 0
                if events.refusal:
                    break
    except RecordError as error:
        bad = str(error)
    finally:
        # What was read is sent, also before Ctrl-C ends it.
        while _heard(events, lambda: producer.flush(WAIT_S)) and not events.refusal:
            progress.add(0, 0)
        progress.end()
    if events.refusal:
        # What waits was given up, as is heard here.
        _heard(events, lambda: producer.poll(0))
    return _end(options, (read, len(producer)), failures, bad, events.refusal)


def _takes(options: Namespace) -> dict[str, Taken]:
    """How keys and values are written by schemas. Raises FailedError, SettingsError."""
    chosen = [vars(options)[f"{part}_{name}"] for part in ("key", "value") for name in _OF_SCHEMAS]
    if not ({options.key_format, options.value_format} & {*BY_SCHEMA} or any(chosen)):
        return {}
    from broker.cli.records.schema_values import writers_of

    takes = writers_of(options)
    if options.key is not None and "key" in takes:
        try:
            options.key = takes["key"].of_text(options.key)
        except RecordError as error:
            raise FailedError(f"--key: {error}") from error
    return takes


_OF_SCHEMAS: Final = ("schema_file", "schema_id", "message")


def _heard(events: Events, call: Callable[[], int]) -> int:
    """What a call of librdkafka's returns; 0 after what ends all, which is kept as a refusal."""
    try:
        return call()
    except KafkaException as error:
        events.told(error.args[0])
        return 0


def _end(
    options: Namespace, counts: tuple[int, int], failures: Failures, bad: str, refusal: str
) -> int:
    """Returns the exit code, after it was said what went wrong."""
    read, left = counts
    problem = bad or refusal
    lost = failures.count + left
    if problem:
        text = f"{problem}; {read - lost:,} records before it are in topic {options.topic}"
        complain(options.name, Sentence(text, fault_of(problem)))
    if failures.count and not refusal:
        complain(
            options.name,
            f"{failures.count:,} of {read:,} records are not in topic {options.topic}; {failures.first}",
        )
    return FAILED if problem or lost else 0


def _settings(options: Namespace, events: Events) -> dict[str, Any]:
    found = {
        "acks": options.acks,
        "compression.type": options.compression,
        "delivery.report.only.error": True,
        "enable.idempotence": options.acks == "all",
        "enable.metrics.push": False,
        "linger.ms": 5,
        "message.max.bytes": 100_000_000,
        "message.timeout.ms": 120_000,
        "queue.buffering.max.kbytes": QUEUED_KBYTES,
        "queue.buffering.max.messages": 1_000_000,
        # Equal keys go where Java's clients send them.
        "partitioner": "murmur2_random",
    }
    return found | settings_of(options, events)


def _send(producer: Producer, options: Namespace, record: NewRecord, failed: Any) -> None:
    """Raises KafkaException for what librdkafka does not take."""
    headers: Headers = [*options.header, *record.headers]
    chosen: dict[str, Any] = {"key": options.key if record.key is None else record.key}
    partition = options.partition if options.partition >= 0 else record.partition
    if partition >= 0:
        chosen["partition"] = partition
    if record.timestamp_ms is not None:
        chosen["timestamp"] = record.timestamp_ms
    if headers:
        chosen["headers"] = headers
    while True:
        try:
            producer.produce(options.topic, record.value, on_delivery=failed, **chosen)
        except BufferError:
            producer.poll(WAIT_S)
        else:
            return


def records_of(
    options: Namespace, source: BufferedReader, takes: Mapping[str, Taken]
) -> Iterator[NewRecord]:
    """Reads records as the arguments say. `takes`: what is written by a schema. Raises RecordError with the record's
    number, FailedError."""
    if options.whole:
        for file in options.whole:
            try:
                content = _content(file)
                value = takes["value"].of_text(content) if "value" in takes else content
            except RecordError as error:
                raise RecordError(f"{file}: {error}") from error
            yield NewRecord(None, value)
        return
    read_key, read_value = [
        takes[part].of_text if part in takes else ENCODINGS[vars(options)[f"{part}_format"]][1]
        for part in ("key", "value")
    ]
    how = LineFormat(options.key_separator, read_key, read_value, options.null)
    for number, line in enumerate(_lines(source, options.delimiter), 1):
        try:
            if options.json:
                yield record_of_json(line, keeps_place=options.keep_partitions, takes=takes)
            else:
                yield record_of_line(line, how)
        except RecordError as error:
            raise RecordError(f"record {number} of the input: {error}") from error


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise FailedError(f"cannot read {file}: {error.strerror}") from error


def _lines(source: BufferedReader, delimiter: bytes) -> Iterable[bytes]:
    """What lies between delimiters; nothing behind the last one is nothing."""
    if delimiter == b"\n":
        for line in source:
            yield line.removesuffix(b"\n")
        return
    rest = b""
    while data := source.read1(READ_BYTES):
        *lines, rest = (rest + data).split(delimiter)
        yield from lines
    if rest:
        yield rest
