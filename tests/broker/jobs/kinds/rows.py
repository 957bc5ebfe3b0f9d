"""Partitions made of rows by hand, and topic settings, for tests of planners."""

from dataclasses import replace

from broker.config.kafka_settings import KafkaSettings
from broker.config.topic_configs import TopicSettings, effective
from coordinator.tables.objects import Moment, Objects
from coordinator.tables.partition import Partition
from protocol.types import Incarnation, TopicId, position
from storage.formats.page import digest, encode_rows
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Span
from txn.producers import advance
from txn.transactions import Markers

TOPIC = TopicId(b"t" * 16)
WRITER = Incarnation(position(1, 5))
MOMENT = Moment(position(1, 6), 0)


def settings(**changed: object) -> TopicSettings:
    return replace(effective({}, KafkaSettings()), **changed)


class Rows:
    """A partition that grows row by row, with spans of these timestamps to begin with; every span
    has an object of its own, unless told."""

    def __init__(self, *timestamps: int, **of_each: object) -> None:
        self.objects = Objects()
        self.partition = Partition(TOPIC, 0, self.objects)
        self._numbers = dict.fromkeys(ObjectKind, -1)
        for timestamp in timestamps:
            self.span(timestamp=timestamp, **of_each)

    def span(
        self,
        *,
        timestamp: int = 1000,
        length: int = 100,
        records: int = 10,
        kind: ObjectKind = ObjectKind.CHUNK,
        object_length: int | None = None,
    ) -> Span:
        self._numbers[kind] += 1
        slot = self.objects.slot(WRITER, kind)
        number = self._numbers[kind]
        self.objects.add(slot, number, length=object_length or length, references=1, moment=MOMENT)
        base_offset = self.partition.end_offset
        self.partition.append((slot, number, 0, length, base_offset, timestamp))
        self.partition.reach(base_offset + records)
        return Span(ObjectId(WRITER, number, kind), 0, length, base_offset, records, timestamp)

    def spans(self, count: int, **of_each: object) -> list[Span]:
        return [self.span(**of_each) for _ in range(count)]

    def marker(self, *, timestamp: int = 1000) -> Marker:
        partition = self.partition
        offset = partition.end_offset
        if partition.windows is None:
            partition.windows = {}
        partition.windows[1] = advance(
            None,
            epoch=0,
            first_sequence=0,
            records=1,
            base_offset=0,
            timestamp_max=0,
            updated_ms=0,
        )
        partition.open(1, offset)
        partition.mark(Markers(1, 0), commit=True, timestamp=timestamp, time_ms=0)
        return Marker(offset, 1, 0, commit=True, timestamp=timestamp)

    def page(self, first: int, end: int) -> Page:
        """Rows [first, end) become a page."""
        rows = [self.partition.row(index) for index in range(first, end)]
        body = encode_rows(rows)
        kind = ObjectKind.INDEX
        self._numbers[kind] += 1
        slot = self.objects.slot(WRITER, kind)
        number = self._numbers[kind]
        self.objects.add(slot, number, length=len(body), references=1, moment=MOMENT)
        page = Page(
            ObjectId(WRITER, number, kind),
            0,
            len(body),
            rows[0].base_offset,
            rows[-1].next_offset,
            len(rows),
            sum(row.length for row in rows if isinstance(row, Span)),
            max(row.timestamp if isinstance(row, Marker) else row.timestamp_max for row in rows),
            digest(body),
        )
        self.partition.spill(range(first, end), page)
        return page
