"""The fetch path of an agent: sessions, long polls, reads.

A fetch whose records are in memory, or that has nothing to wait for, is answered in the call; one
that must wait is parked and woken when enough bytes have arrived, once per turn of the loop; only
one that needs a barrier or the object store gets a task, and one of many partitions
(`PLACES_AT_ONCE`), which is looked at in slices of the loop (`broker.calls.slices`). What is said is
decided in `broker.fetch.statuses` and `broker.fetch.answers` (P7) and `broker.fetch.sessions` (KIP-227).

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
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from broker.calls.call import Call
from broker.calls.slices import AbandonedError, Slices
from broker.calls.untaken import UntakenAnswers
from broker.cluster.placement import Placement, zone_of_client
from broker.config.settings import Settings
from broker.config.topic_rules import TopicRules
from broker.fetch.answers import LOAD_BYTES_MAX, Collected, Collector
from broker.fetch.arrivals import Arrivals
from broker.fetch.fetches import Fetch, FetchStats, topics_of
from broker.fetch.loaded import LoadedData
from broker.fetch.permitted import permitted
from broker.fetch.purgatory import DelayedFetch, FetchPurgatory
from broker.fetch.sessions import CachedPartition, FetchSessions, PlaceKey, places_slices
from broker.fetch.statuses import (
    NOT_SERVING,
    FetchPartitionStatus,
    check_partition,
    sent_on,
    watches_of,
)
from broker.fetch.store_reads import LOAD_SECONDS_MAX, ReadBudget, count_failures, read_missing
from broker.fetch.woken import WokenFetches
from broker.rights.rights import Rights
from coordinator.commands.entries import ChunkCommitted, CommitChunk, DeleteTopic
from coordinator.commands.job_commands import LogsTrimmed
from coordinator.commands.rights_commands import CreateAcls, DeleteAcls
from coordinator.commands.transaction_commands import ProducerInitialized, TransactionEnded
from coordinator.log_client import Applied, LogClient, LogUnavailableError
from protocol import apis
from protocol.errors import ErrorCode, ProtocolError
from protocol.fetch import (
    FetchRequest,
    FetchResponse,
    encode_end,
    encode_head,
    encode_response,
    encode_topics,
    parse_request,
    parse_slices,
)
from protocol.messages.budgets import OverBudgetError, elements_max
from protocol.messages.codec import refusable
from protocol.types import Buffer, Incarnation, TopicId
from storage.formats.spans import ObjectId
from storage.reader import Reader

logger = logging.getLogger(__name__)

INT32_MAX: Final = (1 << 31) - 1
CUT_OFF_MS: Final = 10_000
"""So long without a session a fetch waits at the end; then its client is sent elsewhere (P16)."""
RECHECK_MS: Final = 10_000
"""How often a long poll is looked at while it waits: is its client there, is there a session."""
RECENT_AT_START_BYTES: Final = 16 << 20
"""Chunks of the log that an agent begins with which count as recent."""
ROUNDING_MS: Final = 0.001
PLACES_AT_ONCE: Final = 500
"""Partitions that one fetch looks at in the call; more are looked at a slice at a time."""
PLACES_PER_SLICE: Final = 250
"""They cost more than other elements of requests."""
REQUEST_BYTES_AT_ONCE: Final = 16 * 1024
"""Of a request that is parsed in the call: about 500 partitions."""
ZSTD_FROM: Final = 10


class FetchPath:
    """Answers fetches."""

    def __init__(
        self,
        settings: Settings,
        *,
        rules: TopicRules,
        log_client: LogClient,
        reader: Reader,
        placement: Callable[[str], Placement],
        slices: Slices,
        tasks: asyncio.TaskGroup,
        rng: random.Random,
        rights: Rights | None = None,
    ) -> None:
        """Belongs to the running loop; `tasks` will own reads and barriers.

        `placement`: of a listener, as its clients are told by Metadata.
        """
        self.stats = FetchStats()
        self.untaken = UntakenAnswers()
        self.sessions = FetchSessions(
            slots=settings.kafka.max_incremental_fetch_session_cache_slots,
            draw_id=lambda: rng.randint(1, INT32_MAX),
        )
        self.parked: FetchPurgatory[Fetch] = FetchPurgatory(owner_of=lambda fetch: fetch.owner)
        self._slices = slices
        self._rights = rights
        self._bytes_max = settings.kafka.fetch_max_bytes
        self._rules = rules
        self._zone = settings.zone
        self._placement = placement
        self._log_client = log_client
        self._machine = log_client.machine
        self._arrivals = Arrivals(self.parked, self._machine, bytes_max=self._bytes_max)
        self._reader = reader
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._recent: dict[ObjectId, int] = {}
        self._recent_bytes = 0
        self._recent_bytes_max = settings.cache_bytes // 2
        self._collector = Collector(
            self._machine,
            cached=reader.cached,
            cached_at=reader.cached_at,
            cached_page=reader.cached_page,
            is_recent=self._recent.__contains__,
            parts_of=reader.parts_of,
        )
        self._room = ReadBudget(settings.cache_bytes // 4)
        self._wake_soon = False
        self._woken = WokenFetches(self._go_on)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._has_served = log_client.incarnation() is not None
        log_client.on_applied(self._applied)
        log_client.on_incarnation(self._session_changed)

    def start(self, call: Call) -> None:
        """Take a fetch; it is answered now or later. Raises ProtocolError when malformed."""
        if len(call.body) > REQUEST_BYTES_AT_ONCE:
            self._tasks.create_task(self._open_slices(call))
            return
        request = parse_request(call.version, call.body)
        fetch = self._open(call, request)
        if fetch is not None:
            self._consider(fetch)

    def _open(
        self,
        call: Call,
        request: FetchRequest,
        asked: dict[PlaceKey, CachedPartition] | None = None,
    ) -> Fetch | None:
        """None: it was answered."""
        now_ms = self._now_ms()
        fetched = self.sessions.open(
            call.version, request, now_ms, call.connection.peer, asked=asked
        )
        if isinstance(fetched, ErrorCode):
            call.answer(encode_response(call.version, FetchResponse(error=fetched)))
            return None
        self.stats.fetches += 1
        self.stats.partitions += len(fetched.places)
        return Fetch(call, request, fetched, bytes_max=self._bytes_max, now_ms=now_ms)

    def _now_ms(self) -> int:
        # A timer set for ms / 1000 must find that ms when it fires, whatever the last bit says.
        return int(self._loop.time() * 1000 + ROUNDING_MS)

    # Deciding.

    def _consider(self, fetch: Fetch) -> None:
        """Answer, park, or start what must be waited for."""
        places = fetch.fetched.places
        if len(places) > PLACES_AT_ONCE:
            self._tasks.create_task(self._enter(fetch))
            return
        statuses = self._check_partitions(fetch, places)
        if self._is_unsure(fetch, statuses):
            self._tasks.create_task(self._verify(fetch))
            return
        if not self._should_wait(fetch, statuses):
            self._read(fetch, statuses)

    def _check_partitions(
        self, fetch: Fetch, places: Sequence[CachedPartition]
    ) -> list[FetchPartitionStatus]:
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
        if self._rights is not None:
            requester = fetch.call.connection.requester
            statuses = permitted(self._rights, requester, machine.topics, places, statuses)
        return statuses

    def _sent_on(
        self, fetch: Fetch, statuses: list[FetchPartitionStatus]
    ) -> list[FetchPartitionStatus]:
        """Name the agent of its zone to a client of another (KIP-392)."""
        call = fetch.call
        placement = self._placement(call.connection.listener)
        if not placement.has_zone(fetch.rack) or self._log_client.incarnation() is None:
            return statuses
        zone = zone_of_client(call.client_id)
        return [sent_on(seen, placement, rack=fetch.rack, zone=zone) for seen in statuses]

    def _is_unsure(self, fetch: Fetch, statuses: Sequence[FetchPartitionStatus]) -> bool:
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

    def _should_wait(self, fetch: Fetch, statuses: Sequence[FetchPartitionStatus]) -> bool:
        """Park the fetch unless there is enough, something to tell, or no time left."""
        now_ms = self._now_ms()
        if not statuses or now_ms >= fetch.deadline_ms:
            return False
        wanted = fetch.bytes_min
        if wanted <= 0:
            return False
        places, committed = fetch.fetched.places, fetch.committed
        watched = watches_of(places, statuses, committed=committed, enough=wanted)
        if watched is None:
            return False
        watches, there = watched
        self.stats.parked += 1
        deadline_ms = min(fetch.deadline_ms, now_ms + RECHECK_MS)
        parked = self.parked.park(
            fetch,
            watches,
            committed=committed,
            bytes_missing=wanted - there,
            deadline_ms=deadline_ms,
        )
        fetch.call.on_drop = partial(self.parked.take, parked)
        self._set_timer()
        return True

    async def _verify(self, fetch: Fetch) -> None:
        """Reach what the log held when the fetch was here, then look again (P8, P9)."""
        self.stats.barriers += 1
        try:
            await self._log_client.barrier()
        except LogUnavailableError:
            fetch.unreachable = True
        else:
            fetch.verified = True
        self._go_on(fetch)

    def _go_on(self, fetch: Fetch) -> None:
        # What many partitions are watched by must be let go of, whoever waits for the answer.
        if fetch.parked is not None or not fetch.call.abandoned:
            usage = fetch.call.usage
            if usage is not None:
                usage.begin()
            self._consider(fetch)
            if usage is not None:
                usage.end()

    # Reading.

    def _read(self, fetch: Fetch, statuses: Sequence[FetchPartitionStatus]) -> None:
        """Answer from memory, or have a task read what is not there."""
        fetch.given_max = self.untaken.allowance(fetch.bytes_max)
        collected = self._collector.collect(
            fetch.fetched.places, statuses, bytes_max=fetch.given_max, committed=fetch.committed
        )
        if collected.is_whole:
            self._answer(fetch, collected)
        else:
            self.stats.loads += 1
            self._tasks.create_task(self._load(fetch, collected))

    async def _load(self, fetch: Fetch, missing: Collected) -> None:
        """Read what is missing, in rounds, and answer; or look again behind a barrier."""
        found = LoadedData()
        found.idle = missing.idle
        room = LOAD_BYTES_MAX
        until = 0.0
        while True:
            # What was read is let go of before more room is waited for: it is in the cache.
            room = max(room, found.byte_count + missing.missing_bytes)
            found.forget_all()
            async with self._room.of(room, fetch.owner):
                until = until or self._loop.time() + LOAD_SECONDS_MAX
                fetch.given_max = self.untaken.allowance(fetch.bytes_max)
                while found.byte_count + missing.missing_bytes <= room:
                    if not fetch.call.abandoned:
                        await read_missing(self._reader, found, missing, until=until)
                    if fetch.call.abandoned:
                        return
                    collected = await self._collect(fetch, found)
                    if collected is None:
                        self._tasks.create_task(self._verify(fetch))
                        return
                    missing = collected
                    if missing.is_whole:
                        await self._answer_slices(fetch, missing)
                        return
                    found.forget_unused()

    async def _collect(self, fetch: Fetch, found: LoadedData | None) -> Collected | None:
        """Look at all partitions anew, a slice at a time; None: some must be verified first.

        What is said of a partition is of one moment; partitions may be of different ones.
        """
        turns = self._slices.of(fetch.call)
        places = fetch.fetched.places
        if found is None:
            fetch.given_max = self.untaken.allowance(fetch.bytes_max)
        collecting = self._collector.begin(fetch.given_max, committed=fetch.committed, found=found)
        step = PLACES_PER_SLICE if len(places) > PLACES_AT_ONCE else PLACES_AT_ONCE
        for first in range(0, len(places), step):
            if first:
                await turns.next()
            part = places[first : first + step]
            statuses = self._check_partitions(fetch, part)
            if found is None:
                if self._is_unsure(fetch, statuses):
                    return None
            elif self._must_look_again(fetch, statuses, found):
                return None
            self._collector.take(part, statuses, collecting)
        return collecting.collected

    def _must_look_again(
        self, fetch: Fetch, statuses: Sequence[FetchPartitionStatus], found: LoadedData
    ) -> bool:
        """A newer entry of the log may say otherwise: about a refusal, or where records are."""
        found.is_behind = fetch.unreachable
        if not found.gone <= fetch.gone:
            # The plan was older than what became of the object: look where it is now.
            fetch.gone |= found.gone
            return True
        # Meanwhile topics may have been deleted, and rows with them.
        return self._is_unsure(fetch, statuses)

    # Answering.

    def _answer(self, fetch: Fetch, collected: Collected) -> None:
        if collected.failures:
            count_failures(self.stats, collected.failures, is_known=not fetch.unreachable)
        call = fetch.call
        if call.abandoned or self._is_over_quota(fetch, collected):
            return
        topics = topics_of(fetch.fetched.to_send(collected.answers), self.stats)
        if fetch.rack:
            self.stats.count_by_rack(collected.answers, is_own=fetch.rack == self._zone)
        response = FetchResponse(topics, session_id=fetch.fetched.session_id)
        call.answer(encode_response(call.version, response))

    def _is_over_quota(self, fetch: Fetch, collected: Collected) -> bool:
        """Whether the client gets no records now, since it is over a quota: then it was answered."""
        call = fetch.call
        if call.usage is None:
            return False
        byte_count = sum(answer.records_bytes for answer in collected.answers)
        call.throttle_ms = call.usage.fetched(byte_count)
        if not call.throttle_ms:
            return False
        session_id = self.sessions.decline(fetch.fetched)
        response = FetchResponse(session_id=session_id, throttle_time_ms=call.throttle_ms)
        call.answer(encode_response(call.version, response))
        return True

    async def _answer_slices(self, fetch: Fetch, collected: Collected) -> None:
        """As `_answer`, a slice at a time when there is much to be told."""
        if len(collected.answers) <= PLACES_AT_ONCE:
            self._answer(fetch, collected)
            return
        if collected.failures:
            count_failures(self.stats, collected.failures, is_known=not fetch.unreachable)
        if self._is_over_quota(fetch, collected):
            return
        version = fetch.call.version
        turns = self._slices.of(fetch.call)
        news = fetch.fetched.to_send(collected.answers)
        parts: list[Buffer] = []
        topic_count = 0
        while some := list(islice(news, PLACES_PER_SLICE)):
            topics = topics_of(some, self.stats)
            topic_count += len(topics)
            parts += encode_topics(version, topics)
            if fetch.rack:
                self.stats.count_by_rack((row for _, row in some), is_own=fetch.rack == self._zone)
            await turns.next()
        response = FetchResponse(session_id=fetch.fetched.session_id)
        head = encode_head(version, response, topic_count)
        end = encode_end(version, response)
        fetch.call.answer([head, *parts, end] if end else [head, *parts])

    # Many partitions, a slice of the loop at a time.

    async def _open_slices(self, call: Call) -> None:
        """As `start`, of a long request."""
        try:
            most = elements_max(apis.FETCH, len(call.body))
            async with self._slices.enter(call, most) as entered:
                turns = self._slices.of(call)
                request = await turns.run(parse_slices(call.version, call.body))
                places = await turns.run(places_slices(request))
                entered.settle(len(places))
                fetch = self._open(call, request, places)
                if fetch is not None:
                    await self._consider_slices(fetch)
        except ProtocolError as error:
            self._refuse(call, error)
        except AbandonedError:
            assert call.abandoned

    def _refuse(self, call: Call, error: ProtocolError) -> None:
        if isinstance(error, OverBudgetError) and refusable(apis.FETCH, call.version):
            logger.info("%r from %s refused: %s", call, call.connection.peer, error)
            refused = FetchResponse(error=ErrorCode.INVALID_REQUEST)
            call.answer(encode_response(call.version, refused))
        else:
            call.close(f"malformed request: {error}")

    async def _enter(self, fetch: Fetch) -> None:
        """Look at a fetch that waited, or whose session has many partitions."""
        if fetch.parked is not None:
            await self._unwatch(fetch, fetch.parked)
        try:
            async with self._slices.enter(fetch.call, len(fetch.fetched.places)):
                await self._consider_slices(fetch)
        except AbandonedError:
            assert fetch.call.abandoned

    async def _consider_slices(self, fetch: Fetch) -> None:
        """As `_consider`."""
        if len(fetch.fetched.places) <= PLACES_AT_ONCE:
            self._consider(fetch)
            return
        if await self._park_slices(fetch):
            return
        collected = await self._collect(fetch, None)
        if collected is None:
            await self._verify(fetch)
        elif collected.is_whole:
            await self._answer_slices(fetch, collected)
        else:
            self.stats.loads += 1
            await self._load(fetch, collected)

    async def _park_slices(self, fetch: Fetch) -> bool:
        """As `_should_wait`: bytes are counted from the moment that a partition is looked at."""
        places = fetch.fetched.places
        now_ms = self._now_ms()
        if (
            now_ms >= fetch.deadline_ms
            or fetch.bytes_min <= 0
            or not self.parked.has_room(fetch, places)
        ):
            return False
        self.stats.parked += 1
        parked = fetch.parked = self.parked.park(
            fetch,
            (),
            committed=fetch.committed,
            bytes_missing=fetch.bytes_min,
            deadline_ms=min(fetch.deadline_ms, now_ms + RECHECK_MS),
        )
        self._set_timer()
        waits = False
        try:
            waits = await self._watch_slices(fetch, parked)
        finally:
            if not waits:
                self.parked.take(parked)
                await self._unwatch(fetch, parked)
        return waits

    async def _watch_slices(self, fetch: Fetch, parked: DelayedFetch[Fetch]) -> bool:
        """False when there is something to tell."""
        turns = self._slices.of(fetch.call)
        places = fetch.fetched.places
        for first in range(0, len(places), PLACES_PER_SLICE):
            await turns.next()
            if parked.taken:
                return True  # Woken: from now on it is somebody else's.
            part = places[first : first + PLACES_PER_SLICE]
            statuses = self._check_partitions(fetch, part)
            watched = watches_of(
                part, statuses, committed=fetch.committed, enough=parked.bytes_missing
            )
            if watched is None or not self.parked.watch(parked, *watched):
                return False
        return True

    async def _unwatch(self, fetch: Fetch, parked: DelayedFetch[Fetch]) -> None:
        fetch.parked = None
        while self.parked.forget(parked, PLACES_PER_SLICE):
            # To the end, whether anybody waits for the answer or not.
            with contextlib.suppress(AbandonedError):
                await self._slices.turn(fetch.call)

    # Waking.

    def _applied(self, applied: Applied) -> None:
        woken = False
        deleted: set[TopicId] = set()
        for command, outcome in zip(applied.entry.commands, applied.outcomes, strict=True):
            if isinstance(command, CommitChunk) and isinstance(outcome, ChunkCommitted):
                self._note_recent(ObjectId(applied.incarnation, command.number), command.length)
                if len(self.parked):
                    woken |= self._arrivals.chunk(command, outcome)
            elif isinstance(outcome, TransactionEnded | ProducerInitialized):
                if len(self.parked):
                    woken |= self._arrivals.markers(outcome.marked)
            elif isinstance(outcome, LogsTrimmed):
                woken |= len(self.parked) > 0 and self._arrivals.trimmed(command, outcome)
            elif isinstance(command, DeleteTopic):
                self._rules.forget(command.topic_id)
                deleted.add(command.topic_id)
            elif isinstance(command, CreateAcls | DeleteAcls) and self._rights is not None:
                woken |= self.parked.all_unsettled()
        if deleted:
            woken |= self.parked.disturbed(deleted)
        if woken and not self._wake_soon:
            self._wake_soon = True
            self._loop.call_soon(self._wake)

    def _note_recent(self, chunk: ObjectId, length: int) -> None:
        """Objects that are worth reading whole: others ask for their other partitions in a moment."""
        self._recent[chunk] = length
        self._recent_bytes += length
        # While the log is replayed nobody reads what is new.
        most = self._recent_bytes_max if self._has_served else RECENT_AT_START_BYTES
        while self._recent_bytes > most:
            oldest = next(iter(self._recent))
            self._recent_bytes -= self._recent.pop(oldest)

    def _wake(self) -> None:
        self._wake_soon = False
        ready = self.parked.take_ready()
        for fetch in ready:
            fetch.deadline_ms = 0  # Answered with what there is.
        self._woken.look_at(ready + self.parked.take_unsettled())

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
        self._woken.look_at(self.parked.take_expired(now_ms))
        self._set_timer()

    def _session_changed(self, incarnation: Incarnation | None) -> None:
        if incarnation is not None:
            self._has_served = True
