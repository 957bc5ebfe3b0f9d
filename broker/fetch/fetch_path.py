"""The fetch path of an agent: sessions, long polls, reads.

A fetch whose records are in memory, or that has nothing to wait for, is answered in the call; one
that must wait is parked and woken when enough bytes have arrived, once per turn of the loop; only
one that needs a barrier or the object store gets a task. What is said is decided in
`broker.fetch.answers` (P7) and `broker.fetch.sessions` (KIP-227).

What holds: no refusal that a newer entry might undo is told without a barrier that began after
the fetch came (P8, P9). Before the first proven session nothing is served (P12). Without the log,
records below the known end are served, and at the end, after 10 s, NOT_LEADER_OR_FOLLOWER sends
the consumer elsewhere (P16). An object that is gone is asked for a second time only if it is still
in the plan behind a barrier; then KAFKA_STORAGE_ERROR. Rows are looked up anew whenever something
was waited for: jobs move them, and the log's start. What fetches read from the store at a time is
bounded, and so are parked ones (P15).

A consumer that tells a rack, the zone of other agents, is sent on to one of them (KIP-392). Whose rack
is this agent's zone is served here, whatever Metadata says; so is everybody while no session is proven,
since then nobody knows here who is live.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from broker.calls.call import Call
from broker.calls.shares import Owner, owner_of
from broker.cluster.placement import Placement, zone_of_client
from broker.config.settings import Settings
from broker.config.topic_rules import TopicRules
from broker.fetch.answers import (
    LOAD_BYTES_MAX,
    NOT_SERVING,
    Collected,
    Collector,
    FetchPartitionStatus,
    LoadedData,
    bytes_there,
    check_partition,
    sent_on,
)
from broker.fetch.purgatory import FetchPurgatory
from broker.fetch.sessions import FetchContext, FetchSessions
from broker.fetch.store_reads import LOAD_SECONDS_MAX, ReadBudget, read_missing
from coordinator.commands.entries import ChunkCommitted, Command, CommitChunk, DeleteTopic
from coordinator.commands.job_commands import ExpireRecords, LogsTrimmed, TrimLogs
from coordinator.commands.table_commands import ExpireHeldRecords
from coordinator.commands.transaction_commands import Marked, ProducerInitialized, TransactionEnded
from coordinator.log_client import Applied, LogClient, LogUnavailableError
from protocol.errors import ErrorCode
from protocol.fetch import (
    READ_COMMITTED,
    FetchRequest,
    FetchResponse,
    PartitionAnswer,
    TopicAnswer,
    encode_response,
)
from protocol.types import Incarnation, TopicId
from storage.formats.spans import MARKER_BYTES, ObjectId
from storage.reader import Reader
from storage.stores.object_store import ObjectNotFoundError, StoreError

logger = logging.getLogger(__name__)

INT32_MAX: Final = (1 << 31) - 1
CUT_OFF_MS: Final = 10_000
"""So long without a session a fetch waits at the end; then its client is sent elsewhere (P16)."""
RECHECK_MS: Final = 10_000
"""How often a long poll is looked at while it waits: is its client there, is there a session."""
ROUNDING_MS: Final = 0.001
ZSTD_FROM: Final = 10


@dataclass(slots=True)
class FetchStats:
    """Counters of the fetch path, read at each scrape."""

    fetches: int = 0
    partitions: int = 0
    """Of all fetches."""
    answered_bytes: int = 0
    """Of records."""
    own_rack_bytes: int = 0
    """Of them, to clients that tell this agent's zone as their rack."""
    other_rack_bytes: int = 0
    """To those that tell another."""
    sent_on: int = 0
    """Partitions whose client was sent to an agent of its zone."""
    parked: int = 0
    """How often a fetch was parked."""
    barriers: int = 0
    loads: int = 0
    """Fetches that needed the object store."""
    storage_errors: int = 0
    objects_gone: int = 0
    """Objects that were not there after planning anew: data that is lost."""


class _Fetch:
    """A fetch until it is answered."""

    __slots__ = (
        "bytes_max",
        "bytes_min",
        "call",
        "committed",
        "deadline_ms",
        "fetched",
        "gone",
        "rack",
        "unreachable",
        "verified",
    )

    def __init__(
        self,
        call: Call,
        request: FetchRequest,
        fetched: FetchContext,
        *,
        bytes_max: int,
        now_ms: int,
    ) -> None:
        self.call = call
        self.fetched = fetched
        self.bytes_max = min(request.max_bytes, bytes_max)
        self.bytes_min = min(request.min_bytes, self.bytes_max)
        self.deadline_ms = now_ms + max(0, request.max_wait_ms)
        self.committed = request.isolation_level == READ_COMMITTED
        self.rack = request.rack_id
        """Its consumer's zone, "" when not told."""
        if self.rack and request.replica_id >= 0:
            self.rack = ""
        self.verified = False
        """A barrier has passed since it came."""
        self.unreachable = False
        """The barrier failed."""
        self.gone: set[ObjectId] = set()
        """Objects that were not there; what is planned now was planned after that."""


class FetchPath:
    """Answers fetches."""

    def __init__(
        self,
        settings: Settings,
        *,
        log_client: LogClient,
        reader: Reader,
        placement: Callable[[str], Placement],
        tasks: asyncio.TaskGroup,
        rng: random.Random,
    ) -> None:
        """Belongs to the running loop; `tasks` will own reads and barriers.

        `placement`: of a listener, as its clients are told by Metadata.
        """
        self.stats = FetchStats()
        self.sessions = FetchSessions(
            slots=settings.kafka.max_incremental_fetch_session_cache_slots,
            draw_id=lambda: rng.randint(1, INT32_MAX),
        )
        self.parked: FetchPurgatory[_Fetch] = FetchPurgatory(owner_of=_owner_of)
        self._bytes_max = settings.kafka.fetch_max_bytes
        self._rules = TopicRules(settings.kafka)
        self._zone = settings.zone
        self._placement = placement
        self._log_client = log_client
        self._machine = log_client.machine
        self._reader = reader
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._recent: dict[ObjectId, int] = {}
        self._recent_bytes = 0
        self._recent_bytes_max = settings.cache_bytes // 2
        self._collector = Collector(
            self._machine,
            cached=reader.cached,
            cached_page=reader.cached_page,
            is_recent=self._recent.__contains__,
        )
        self._room = ReadBudget(settings.cache_bytes // 4)
        self._wake_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._has_served = log_client.incarnation() is not None
        log_client.on_applied(self._applied)
        log_client.on_incarnation(self._session_changed)

    def start(self, call: Call, request: FetchRequest) -> None:
        """Take a fetch; it is answered now or later."""
        now_ms = self._now_ms()
        fetched = self.sessions.open(call.version, request, now_ms, call.connection.peer)
        if isinstance(fetched, ErrorCode):
            call.answer(encode_response(call.version, FetchResponse(error=fetched)))
            return
        self.stats.fetches += 1
        self.stats.partitions += len(fetched.places)
        self._consider(_Fetch(call, request, fetched, bytes_max=self._bytes_max, now_ms=now_ms))

    def _now_ms(self) -> int:
        # A timer set for ms / 1000 must find that ms when it fires, whatever the last bit says.
        return int(self._loop.time() * 1000 + ROUNDING_MS)

    # Deciding.

    def _consider(self, fetch: _Fetch) -> None:
        """Answer, park, or start what must be waited for."""
        statuses = self._check_partitions(fetch)
        if self._is_unsure(fetch, statuses):
            self._tasks.create_task(self._verify(fetch))
            return
        if not self._should_wait(fetch, statuses):
            self._read(fetch, statuses)

    def _check_partitions(self, fetch: _Fetch) -> list[FetchPartitionStatus]:
        places = fetch.fetched.places
        if not self._has_served:
            return [NOT_SERVING] * len(places)
        version = fetch.call.version
        cut_off = self._log_client.session_lost_ms() >= CUT_OFF_MS
        machine = self._machine
        committed = fetch.committed
        statuses = [
            check_partition(machine, place, version=version, committed=committed, cut_off=cut_off)
            for place in places
        ]
        if fetch.unreachable:
            statuses = [NOT_SERVING if seen.unsure else seen for seen in statuses]
        if version < ZSTD_FROM:
            statuses = [self._without_zstd(seen) for seen in statuses]
        if fetch.rack and fetch.rack != self._zone:
            statuses = self._sent_on(fetch, statuses)
        return statuses

    def _sent_on(
        self, fetch: _Fetch, statuses: list[FetchPartitionStatus]
    ) -> list[FetchPartitionStatus]:
        """Name the agent of its zone to a client of another (KIP-392)."""
        call = fetch.call
        placement = self._placement(call.connection.listener)
        if not placement.has_zone(fetch.rack) or self._log_client.incarnation() is None:
            return statuses
        zone = zone_of_client(call.client_id)
        return [sent_on(seen, placement, rack=fetch.rack, zone=zone) for seen in statuses]

    def _is_unsure(self, fetch: _Fetch, statuses: Sequence[FetchPartitionStatus]) -> bool:
        """Something would be refused that a newer entry of the log might undo."""
        if fetch.verified or fetch.unreachable:
            return False
        return any(seen.unsure for seen in statuses)

    def _without_zstd(self, seen: FetchPartitionStatus) -> FetchPartitionStatus:
        """Before v10 a client does not know the codec that the topic is kept in (KIP-110)."""
        row = seen.row
        topic = None if row is None else self._machine.topics.by_id(row.topic_id)
        if topic is not None and self._rules.of(topic).compression_type == "zstd":
            return FetchPartitionStatus(None, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        return seen

    def _should_wait(self, fetch: _Fetch, statuses: Sequence[FetchPartitionStatus]) -> bool:
        """Park the fetch unless there is enough, something to tell, or no time left."""
        now_ms = self._now_ms()
        if not statuses or now_ms >= fetch.deadline_ms:
            return False
        missing = fetch.bytes_min
        watches = []
        for place, seen in zip(fetch.fetched.places, statuses, strict=True):
            row = seen.row
            if row is None or seen.at_once:
                return False
            there = bytes_there(seen, place, committed=fetch.committed)
            missing -= there
            left = max(0, place.wanted.partition_max_bytes - there)
            watches.append((row.topic_id, row.partition, left, row.last_stable))
        if missing <= 0:
            return False
        self.stats.parked += 1
        deadline_ms = min(fetch.deadline_ms, now_ms + RECHECK_MS)
        self.parked.park(
            fetch,
            watches,
            committed=fetch.committed,
            bytes_missing=missing,
            deadline_ms=deadline_ms,
        )
        self._set_timer()
        return True

    async def _verify(self, fetch: _Fetch) -> None:
        """Reach what the log held when the fetch was here, then look again (P8, P9)."""
        self.stats.barriers += 1
        try:
            await self._log_client.barrier()
        except LogUnavailableError:
            fetch.unreachable = True
        else:
            fetch.verified = True
        self._go_on(fetch)

    def _go_on(self, fetch: _Fetch) -> None:
        if not fetch.call.abandoned:
            self._consider(fetch)

    # Reading.

    def _read(self, fetch: _Fetch, statuses: Sequence[FetchPartitionStatus]) -> None:
        """Answer from memory, or have a task read what is not there."""
        collected = self._collect(fetch, statuses, None)
        if collected.is_whole:
            self._answer(fetch, collected)
        else:
            self.stats.loads += 1
            self._tasks.create_task(self._load(fetch, collected))

    def _collect(
        self, fetch: _Fetch, statuses: Sequence[FetchPartitionStatus], found: LoadedData | None
    ) -> Collected:
        return self._collector.collect(
            fetch.fetched.places,
            statuses,
            bytes_max=fetch.bytes_max,
            committed=fetch.committed,
            found=found,
        )

    async def _load(self, fetch: _Fetch, missing: Collected) -> None:
        """Read what is missing, in rounds, and answer; or look again behind a barrier."""
        found = LoadedData()
        room = LOAD_BYTES_MAX
        until = 0.0
        while True:
            # What was read is let go of before more room is waited for: it is in the cache.
            room = max(room, found.byte_count + missing.missing_bytes)
            found.forget_all()
            async with self._room.of(room, _owner_of(fetch)):
                until = until or self._loop.time() + LOAD_SECONDS_MAX
                while found.byte_count + missing.missing_bytes <= room:
                    if not fetch.call.abandoned:
                        await read_missing(self._reader, found, missing, until=until)
                    if fetch.call.abandoned:
                        return
                    statuses = self._check_partitions(fetch)
                    if self._must_look_again(fetch, statuses, found):
                        self._tasks.create_task(self._verify(fetch))
                        return
                    missing = self._collect(fetch, statuses, found)
                    if missing.is_whole:
                        self._answer(fetch, missing)
                        return
                    found.forget_unused()

    def _must_look_again(
        self, fetch: _Fetch, statuses: Sequence[FetchPartitionStatus], found: LoadedData
    ) -> bool:
        """A newer entry of the log may say otherwise: about a refusal, or where records are."""
        found.is_behind = fetch.unreachable
        if not found.gone <= fetch.gone:
            # The plan was older than what became of the object: look where it is now.
            fetch.gone |= found.gone
            return True
        # Meanwhile topics may have been deleted, and rows with them.
        return self._is_unsure(fetch, statuses)

    def _count_failures(self, fetch: _Fetch, failures: Sequence[StoreError]) -> None:
        for error in failures:
            self.stats.storage_errors += 1
            is_gone = isinstance(error, ObjectNotFoundError)
            self.stats.objects_gone += is_gone and not fetch.unreachable
            logger.warning("records cannot be read: %s", error)

    # Answering.

    def _answer(self, fetch: _Fetch, collected: Collected) -> None:
        if collected.failures:
            self._count_failures(fetch, collected.failures)
        call = fetch.call
        if call.abandoned:
            return
        topics: list[TopicAnswer] = []
        rows: list[PartitionAnswer] = []
        before: tuple[object, object] | None = None
        for place, answer in fetch.fetched.to_send(collected.answers):
            self.stats.answered_bytes += answer.records_bytes
            if before != (place.name, place.topic_id):
                before = (place.name, place.topic_id)
                rows = []
                topics.append((place.name, place.topic_id, rows))
            rows.append(answer)
        if fetch.rack:
            self._count_by_rack(fetch.rack, collected.answers)
        response = FetchResponse(topics, session_id=fetch.fetched.session_id)
        call.answer(encode_response(call.version, response))

    def _count_by_rack(self, rack: str, answers: Sequence[PartitionAnswer]) -> None:
        given = sum(answer.records_bytes for answer in answers)
        if rack == self._zone:
            self.stats.own_rack_bytes += given
        else:
            self.stats.other_rack_bytes += given
            self.stats.sent_on += sum(answer.preferred_read_replica >= 0 for answer in answers)

    # Waking.

    def _applied(self, applied: Applied) -> None:
        woken = False
        for command, outcome in zip(applied.entry.commands, applied.outcomes, strict=True):
            if isinstance(command, CommitChunk) and isinstance(outcome, ChunkCommitted):
                self._note_recent(ObjectId(applied.incarnation, command.number), command.length)
                if len(self.parked):
                    woken |= self._count_arrivals(command, outcome)
            elif isinstance(outcome, TransactionEnded | ProducerInitialized):
                if len(self.parked):
                    woken |= self._count_markers(outcome.marked)
            elif isinstance(outcome, LogsTrimmed):
                woken |= len(self.parked) > 0 and self._count_trimmed(command, outcome)
            elif isinstance(command, DeleteTopic):
                self._rules.forget(command.topic_id)
                woken |= self.parked.disturbed(command.topic_id)
        if woken and not self._wake_soon:
            self._wake_soon = True
            self._loop.call_soon(self._wake)

    def _count_arrivals(self, command: CommitChunk, outcome: ChunkCommitted) -> bool:
        woken = False
        first = 0
        for span in command.spans:
            end = first + len(span.items)
            if self.parked.is_watched(span.topic_id, span.partition):
                byte_count = records = 0
                base_offset = -1
                for item, result in zip(span.items, outcome.results[first:end], strict=True):
                    if not result.error and not result.duplicate:
                        byte_count += item.length
                        records += item.records
                        if base_offset < 0:
                            base_offset = result.base_offset
                if byte_count:
                    woken |= self.parked.arrived(span.topic_id, span.partition, byte_count)
                    woken |= self._count_stable(
                        span.topic_id, span.partition, (base_offset, records, byte_count)
                    )
            first = end
        return woken

    def _count_markers(self, marked: Sequence[Marked]) -> bool:
        woken = False
        for topic_id, partition, _ in marked:
            if self.parked.is_watched(topic_id, partition):
                woken |= self.parked.arrived(topic_id, partition, MARKER_BYTES)
                woken |= self._count_stable(topic_id, partition)
        return woken

    def _count_stable(
        self, topic_id: TopicId, partition: int, added: tuple[int, int, int] = (-1, 0, 0)
    ) -> bool:
        """Count what has become stable since the last time, for polls that wait for that.

        `added`: base offset, records and bytes that were appended, all that there is to count
        unless there are transactions.
        """
        counted = self.parked.counted(topic_id, partition)
        if counted is None:
            return False
        row = self._machine.partitions.get(topic_id, partition)
        if row is None or row.last_stable <= counted:
            return False
        base_offset, records, byte_count = added
        last_stable = base_offset + records
        if base_offset != counted or row.last_stable < last_stable:
            last_stable = row.last_stable
            # No fetch waits for more than the agent gives, so no more need be counted.
            byte_count = row.bytes_between(counted, last_stable, self._bytes_max)
        return self.parked.advanced(topic_id, partition, byte_count, last_stable)

    def _count_trimmed(self, command: Command, outcome: LogsTrimmed) -> bool:
        """Whoever waits where a log's start moved may be out of range now, and must look again."""
        woken = False
        places: list[tuple[TopicId, int]] = []
        if isinstance(command, TrimLogs):
            places = [(trim.topic_id, trim.partition) for trim in command.trims]
        elif isinstance(command, ExpireRecords | ExpireHeldRecords):
            places = [(expiry.topic_id, expiry.partition) for expiry in command.expiries]
        for place, trimmed in zip(places, outcome.results, strict=True):
            if not trimmed.error:
                woken |= self.parked.unsettled(*place)
        return woken

    def _note_recent(self, chunk: ObjectId, length: int) -> None:
        """Objects that are worth reading whole: others ask for their other partitions in a moment."""
        self._recent[chunk] = length
        self._recent_bytes += length
        while self._recent_bytes > self._recent_bytes_max:
            oldest = next(iter(self._recent))
            self._recent_bytes -= self._recent.pop(oldest)

    def _wake(self) -> None:
        self._wake_soon = False
        for fetch in self.parked.take_ready():
            self._finish(fetch)
        for fetch in self.parked.take_unsettled():
            self._go_on(fetch)

    def _set_timer(self) -> None:
        """One timer for all who wait, at the earliest deadline."""
        deadline_ms = self.parked.next_deadline_ms()
        if self._timer is not None:
            if deadline_ms is not None and self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            self._timer_ms = deadline_ms
            # Half a millisecond late: seconds as floats may round to just before the deadline.
            self._timer = self._loop.call_at((deadline_ms + 0.5) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        for fetch in self.parked.take_expired(now_ms):
            if now_ms < fetch.deadline_ms:
                self._go_on(fetch)
            else:
                self._finish(fetch)
        self._set_timer()

    def _finish(self, fetch: _Fetch) -> None:
        """Answer with what there is: enough has arrived, or the time is up."""
        if not fetch.call.abandoned:
            fetch.deadline_ms = 0
            self._consider(fetch)

    def _session_changed(self, incarnation: Incarnation | None) -> None:
        if incarnation is not None:
            self._has_served = True


def _owner_of(fetch: _Fetch) -> Owner:
    return owner_of(fetch.call.connection.peer)
