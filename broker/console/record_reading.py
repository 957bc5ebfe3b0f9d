"""Reads the records of a page, by the agent's own fetches, within bounds of bytes, records and time.

    places ─▶ fetch (rights, isolation, quotas: `broker.calls.local_calls`) ─▶ batches opened ─▶ records ─▶ a page

What holds: a page takes at most `Bounds`, and one batch more of each partition, as fetches give whole batches; of a
compressed one that takes too much room its offsets are told instead. What cannot be read is a sentence and no error of
the page (P7). Large batches are decompressed in a thread, and records are looked at a slice of the loop at a time.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from broker.calls.local_calls import LocalCallError, LocalCalls
from broker.calls.requester import Requester
from broker.console.views.record_batches import (
    AbortedBatches,
    FoundRecord,
    Kept,
    marker_of,
    records_of,
)
from broker.console.views.record_questions import (
    PLACES_MAX,
    QuestionError,
    RecordsAsked,
    Start,
)
from broker.console.views.record_search import Place, Range, RangeToRead, RecordSearch
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition
from coordinator.tables.topics import Topic
from protocol import apis, records
from protocol.compression import Codec
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic, hot
from protocol.types import Buffer

MiB: Final = 1 << 20
FETCH: Final = 12
LIST_OFFSETS: Final = 7
"""Versions: those that name topics by their names."""
FETCH_BYTES_MAX: Final = MiB
"""Of one fetch, beyond its first batch."""
INFLATED_BYTES_MAX: Final = 16 * MiB
"""Of one batch, decompressed."""
NOTES_MAX: Final = 10
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class Bounds(NamedTuple):
    """Of one page."""

    records: int = 20_000
    """Looked at."""
    bytes: int = 4 * MiB
    """Fetched."""
    seconds: float = 3.0
    overrun: int = 4
    """So many times as much, but for the time, may be read to end what was begun (`RecordSearch.wanted`)."""


class Read(NamedTuple):
    """What a page has of a topic, and how far was looked for it."""

    records: list[FoundRecord]
    """In the order of reading."""
    further: dict[int, int]
    """Places where reading goes on; none: there is no more."""
    before: dict[int, int]
    """Places where the other way begins."""
    ranges: list[Range]
    looked: int
    """Records that were looked at..."""
    byte_count: int
    """...and bytes of their batches."""
    is_bounded: bool
    """A bound of the page has ended the search, not what was found."""
    notes: list[str]


class RecordReader:
    """For one page."""

    def __init__(
        self, calls: LocalCalls, requester: Requester, topic: Topic, *, committed: bool
    ) -> None:
        self._calls = calls
        self._requester = requester
        self._topic = topic
        self._committed = committed
        self._looked = 0
        self._bytes = 0
        self._notes: list[str] = []
        self._bounds = Bounds()
        self._until = 0.0
        self._rows: dict[int, Partition] = {}

    async def read(
        self, machine: Machine, asked: RecordsAsked, *, limit: int, bounds: Bounds
    ) -> Read:
        """Raises QuestionError for a partition that is not there."""
        self._bounds = bounds
        self._until = asyncio.get_running_loop().time() + bounds.seconds
        rows = _partitions_of(machine, self._topic, asked)
        self._rows = {row.partition: row for row in rows}
        places = await self._places(rows, asked)
        window_max = max(bounds.records // 4, 1)
        search = RecordSearch(
            places,
            goes_back=asked.goes_back,
            limit=limit,
            window=window_max if asked.search else min(limit, window_max),
            window_max=window_max,
            bytes_max=bounds.bytes,
        )
        needle = asked.search.encode(errors="replace").lower()
        while not self._is_over(bounds, factor=bounds.overrun):
            wanted = search.wanted(begins=not self._is_over(bounds))
            if not wanted:
                break
            try:
                await self._round(search, wanted, needle)
            except LocalCallError as error:
                self._note(str(error))
                break
        for number in search.unfinished:
            self._note(
                f"Partition {number} was not read to the end of what was begun, within the bounds of a page: ask again,"
                " or look at it by itself."
            )
        shown = search.page()
        further = search.further(shown)
        return Read(
            shown,
            further,
            search.before(),
            search.ranges(),
            self._looked,
            self._bytes,
            bool(further) and len(shown) < limit and self._is_over(bounds),
            self._notes,
        )

    def _is_over(self, bounds: Bounds, *, factor: int = 1) -> bool:
        return (
            self._looked >= bounds.records * factor
            or self._bytes >= bounds.bytes * factor
            or asyncio.get_running_loop().time() >= self._until
        )

    def _note(self, sentence: str) -> None:
        if len(self._notes) < NOTES_MAX and sentence not in self._notes:
            self._notes.append(sentence)

    # Where to begin.

    async def _places(self, rows: Sequence[Partition], asked: RecordsAsked) -> list[Place]:
        starts = dict(asked.at)
        if not starts and asked.start is Start.TIME:
            starts = await self._by_time([row.partition for row in rows], asked.number)
        elif not starts and asked.start is Start.OFFSET:
            starts = dict.fromkeys((row.partition for row in rows), asked.number)
        places = []
        for row in rows:
            end = row.last_stable if asked.committed else row.end_offset
            default = end if asked.goes_back else row.log_start
            at = starts.get(row.partition, default)
            places.append(Place(row.partition, row.log_start, end, at, row.bytes_between))
        return places

    async def _by_time(self, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """The first offsets at or after a time; beyond the end where there is none."""
        wanted = [
            ListOffsetsPartition(partition_index=each, timestamp=time_ms) for each in partitions
        ]
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED if self._committed else READ_UNCOMMITTED,
            topics=[ListOffsetsTopic(name=self._topic.name, partitions=wanted)],
        )
        answer = await self._ask(apis.LIST_OFFSETS, LIST_OFFSETS, request)
        found: dict[int, int] = {}
        for each in (row for topic in answer.topics for row in topic.partitions):
            if each.error_code:
                self._note(_sentence(each.partition_index, each.error_code))
            found[each.partition_index] = each.offset if each.offset >= 0 else 1 << 62
        return found

    async def _ask(self, api_key: int, version: int, request: Any) -> Any:
        left = max(self._until - asyncio.get_running_loop().time(), 0.1)
        return await self._calls.ask(self._requester, api_key, version, request, seconds=left)

    # Reading.

    async def _round(
        self, search: RecordSearch, wanted: Sequence[RangeToRead], needle: bytes
    ) -> None:
        """One fetch of all partitions that are read on. Raises LocalCallError."""
        by_number = {each.partition: each for each in wanted}
        answers = {each.partition_index: each for each in await self._fetch(wanted)}
        has_gone_on = False
        for number, one in by_number.items():
            answer = answers.get(number)
            if answer is not None and answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._pass_over(search, one)
                has_gone_on = True
            elif answer is None or answer.error_code:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code
                self._note(_sentence(number, code))
                search.give_up(number)
            elif answer.records:
                await self._scan(search, one, answer, needle)
                has_gone_on = True
        if not has_gone_on and wanted:
            # Nobody has anything: what is there by the log is given later, or to nobody.
            for one in wanted:
                self._note(
                    f"Of partition {one.partition} nothing was given from offset {one.offset} on."
                )
                search.give_up(one.partition)

    def _pass_over(self, search: RecordSearch, one: RangeToRead) -> None:
        """Go on behind the row of the log whose object cannot be read."""
        row = self._rows[one.partition]
        index = row.find(one.offset)
        reached = one.offset + 1 if index == row.row_count else row.row(index).next_offset
        self._note(
            f"Offsets {one.offset} to {reached - 1} of partition {one.partition} cannot be shown: an object of the"
            " store is missing, damaged or out of reach (frazil check tells)."
        )
        kept = Kept(one.offset, one.most, goes_back=search.goes_back)
        kept.reach(max(reached, one.offset + 1))
        search.took(one.partition, kept)

    async def _fetch(self, wanted: Sequence[RangeToRead]) -> list[hot.PartitionData]:
        each_max = max(FETCH_BYTES_MAX // len(wanted), 1)
        partitions = [
            hot.FetchPartition(
                partition=each.partition, fetch_offset=each.offset, partition_max_bytes=each_max
            )
            for each in wanted
        ]
        request = hot.FetchRequest(
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=READ_COMMITTED if self._committed else READ_UNCOMMITTED,
            topics=[hot.FetchTopic(topic=self._topic.name, partitions=partitions)],
        )
        answer: hot.FetchResponse = await self._ask(apis.FETCH, FETCH, request)
        if answer.error_code:
            raise LocalCallError(f"the agent refuses to read: {_name(answer.error_code)}")
        found = [row for topic in answer.responses for row in topic.partitions]
        if answer.throttle_time_ms and not any(each.records for each in found):
            raise LocalCallError(
                f"whoever asks has read more than a quota allows: wait {answer.throttle_time_ms} ms"
            )
        return found

    async def _scan(
        self, search: RecordSearch, one: RangeToRead, answer: hot.PartitionData, needle: bytes
    ) -> None:
        """Look through what was given of one partition."""
        data = memoryview(answer.records or b"")
        self._bytes += len(data)
        told = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        aborted = AbortedBatches(told)
        kept = Kept(one.offset, one.most, goes_back=search.goes_back)
        try:
            starts, _ = records.batch_positions(data)
            for at in starts:
                header = records.read_header(data, at)
                if at == 0:
                    kept.first = max(one.first, min(one.offset, header.base_offset))
                batch = data[at : at + header.size]
                if not aborted.hides(header, marker_of(batch, header)):
                    await self._look_into(batch, one, needle, kept)
                kept.reach(header.last_offset + 1)
                # Going back, a window counts when all of it was read.
                is_enough = not search.goes_back and self._is_over(self._bounds)
                if kept.is_full or kept.reached >= one.stop or is_enough:
                    break
        except ProtocolError as error:
            self._note(
                f"Partition {one.partition} has bytes that cannot be read from offset {kept.reached} on: {error}."
            )
            kept.reach(one.offset + 1)
        search.took(one.partition, kept)

    async def _look_into(self, batch: Buffer, one: RangeToRead, needle: bytes, kept: Kept) -> None:
        """Keep the records of one batch that are shown; a note instead where they cannot be read."""
        header = records.read_header(batch)
        try:
            if header.codec != Codec.NONE:
                batch = await asyncio.to_thread(_opened, batch)
            # Of a batch of 20,000 records a page of the newest has 50, and asks for them every two seconds.
            first = one.first if needle else kept.begins(header, one.first, one.stop)
            for found, looked in records_of(
                batch, one.partition, first=first, stop=one.stop, needle=needle
            ):
                self._looked += looked
                kept.add(found)
                if kept.is_full:
                    return
                await asyncio.sleep(0)
        except ProtocolError as error:
            self._note(
                f"Offsets {header.base_offset} to {header.last_offset} of partition {one.partition} cannot be"
                f" shown: {error}."
            )


def _opened(batch: Buffer) -> bytes:
    """The batch without compression. Raises ProtocolError."""
    header, content = records.payload(batch, bytes_max=INFLATED_BYTES_MAX)
    return records.recoded(header, bytes(content), Codec.NONE)


def _partitions_of(machine: Machine, topic: Topic, asked: RecordsAsked) -> list[Partition]:
    """Those of a page: the one that was asked for, those of its places, or the first that have anything. Raises
    QuestionError."""
    numbers: Iterable[int] = asked.at or range(topic.partition_count)
    if asked.partition is not None:
        numbers = (asked.partition,)
    found = []
    for number in numbers:
        row = machine.partitions.get(topic.topic_id, number)
        if row is None:
            raise QuestionError(f"there is no partition {number}")
        if asked.partition is not None or asked.at or row.end_offset > row.log_start:
            found.append(row)
        if len(found) == PLACES_MAX:
            break
    return found


def _sentence(partition: int, code: int) -> str:
    """Why a partition cannot be read."""
    said = _SENTENCES.get(code, f"cannot be read now: {_name(code)}")
    return f"Partition {partition} {said}."


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


_SENTENCES: Final[dict[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "may not be read by whoever asks",
    ErrorCode.OFFSET_OUT_OF_RANGE: "was cut before what was asked for, just now",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "is gone, just now",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "is not served by this agent now: it has no session in the log",
}
