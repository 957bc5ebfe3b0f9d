"""A record batch's way: validated, acknowledged, read, learnt and cleaned, merged, and exported.

What a topic takes must go all the way: no job may fail of it. An export may refuse it with its own
error, which makes it a dead letter.
"""

import random
from collections.abc import Hashable
from functools import partial

from typing_extensions import override

from broker.config.kafka_settings import KafkaSettings
from broker.config.topic_configs import effective
from broker.produce.validation import InvalidBatch, Unread, ValidBatch, validate
from iceberg_export.errors import CorruptSpanError
from iceberg_export.plan.splits import PlannedSpan
from iceberg_export.records.rows import span_rows
from protocol import record_scan, records
from protocol.errors import ErrorCode, ProtocolError
from protocol.slices import advance
from protocol.types import Incarnation, position
from storage.cleaner import Cleaner, OffsetMap
from storage.formats.segment import merge_rows
from storage.formats.spans import ObjectId, Span
from storage.formats.walk import Aborted
from tests.fuzz import batches, mutation
from tests.fuzz.target import Target, WrongError, words

TOPICS = [
    effective(configs, KafkaSettings())
    for configs in (
        {},
        {"cleanup.policy": "compact"},
        {"compression.type": "gzip"},
        {"frazil.records.validate": "full"},
        {"message.timestamp.type": "LogAppendTime"},
        {"message.timestamp.before.max.ms": "1000", "compression.type": "uncompressed"},
    )
]
CHUNK = ObjectId(Incarnation(position(1, 77)), 3)
BASE = 1000
NOW_MS = batches.NOW_MS


class Batches(Target):
    name = "batches"
    fixed = 1500

    @override
    def generate(self, rng: random.Random) -> bytes:
        return batches.generate(rng, hostility=rng.choice((0.0, 0.05, 0.2, 0.5)))

    @override
    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        return self.sealed(mutation.mutated(rng, data, other))

    @override
    def sealed(self, data: bytes) -> bytes:
        return batches.sealed(data)

    @override
    def run(self, data: bytes) -> Hashable:
        view = memoryview(data)
        taken: list[ValidBatch] = []
        said: list[Hashable] = []
        self.stood_ms = 0.0
        for topic in TOPICS:
            verdict = self.timed(partial(validate, view, topic, version=9, now_ms=NOW_MS))
            if isinstance(verdict, Unread):
                work = verdict.work
                while (ended := self.timed(partial(advance, work))) is None:
                    pass
                verdict = ended.result
            if isinstance(verdict, InvalidBatch):
                said.append((verdict.error, words(verdict.message or "")))
            else:
                taken.append(verdict)
        if isinstance(records.check_batch(view), ErrorCode):
            return tuple(said)
        said.append(_read(data))
        for each in taken[:1] + [one for one in taken[1:] if one.data is not view]:
            said += [_clean(bytes(each.data), each), _export(bytes(each.data), each)]
        return tuple(said)


def _read(data: bytes) -> Hashable:
    header, newest = records.read_header(data), None
    try:
        found = [*records.iterate(data)]
        _, payload = records.payload(data)
    except ProtocolError as error:
        found, payload = None, b""
        newest = words(error)
    if found is None:
        return newest
    if len(found) != header.record_count:
        raise WrongError(f"{len(found)} records of {header.record_count}")
    record_scan.scan(bytes(payload), count=header.record_count, last_delta=header.last_offset_delta)
    record_scan.newest_timestamp(header, bytes(payload))
    return None


def _span(data: bytes, batch: ValidBatch) -> Span:
    return Span(CHUNK, 16, len(data), BASE, batch.header.last_offset_delta + 1, batch.timestamp_max)


def _clean(data: bytes, batch: ValidBatch) -> Hashable:
    span = _span(data, batch)
    offsets = OffsetMap(1 << 20)
    offsets.add(span, data, Aborted())
    cleaned = Cleaner(offsets, time_ms=NOW_MS, delete_retention_ms=0).clean([span], [data])
    merged = merge_rows([span], [data])
    for what, each in (("cleaned", cleaned), ("merged", merged)):
        if sum(map(len, each.parts)) != each.length:
            raise WrongError(f"{what}: {each.length} bytes are said")
    return len(offsets), cleaned.records == merged.records


def _export(data: bytes, batch: ValidBatch) -> Hashable:
    count = batch.header.last_offset_delta + 1
    span = PlannedSpan(0, CHUNK.key, 16, len(data), BASE, count, BASE, BASE + count)
    try:
        for each in span_rows(span, memoryview(data)):
            each.rows.validate(full=True)
    except CorruptSpanError as error:
        return words(str(error).rpartition(":")[2])
    return None
