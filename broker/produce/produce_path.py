"""The produce path of an agent: open chunk, PUTs, commits in order, publication, answers.

    add ─▶ accumulator ─close─▶ PUT (several at once) ─▶ commit queue ─▶ log ─apply─▶ cache, answers

Where store and log are on this machine a small chunk that is alone goes to the log at once, whose thread
puts it first (`_send`): one hop instead of two. What cannot be put so is put as every other chunk is.

What holds: a batch is answered with success only when its chunk is durable and its entry applied
(P1), with the offset that `apply` gave it (P2). Nothing of one incarnation is proposed under
another (P3): what is not proposed when the session is lost fails. "Not done" is said only when it
is certain, a request whose time is up hears that its fate is open (P4). When a chunk is given up,
what would overtake it fails with it (P11, `broker.produce.commit_queue`). Bytes that wait are counted,
and at the bound `full` tells the server to stop reading; likewise while store and log have as much as
they take at once, and a whole chunk waits already (P15): more would only wait longer, here in the order
of coming and not, as in the server, in turn.

One task per chunk, none per request or batch. Left out: judging batches (`broker.produce.validation`),
requests and their answers (`broker.handlers.produce`).
"""

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from broker.config.settings import Settings
from broker.config.topic_rules import TopicRules
from broker.produce.chunk_limits import chunk_limits
from broker.produce.commit_queue import (
    CommitQueue,
    PendingChunk,
    Ticket,
    keys_of,
    order_key,
    refusal,
    ticket_of,
)
from broker.produce.failed_batches import FailedBatches
from broker.produce.publication import Publication
from broker.produce.stats import ProduceStats
from broker.transactions.batch_transactions import likely_instance
from coordinator.commands.entries import ChunkCommitted, CommitChunk, DeleteTopic, Outcome
from coordinator.log.metadata_log import LogError, LogUnavailableError
from coordinator.log_client import Applied, FirstNotDoneError, LogClient, NotDoneError
from protocol.errors import ErrorCode
from protocol.fault_codes import coded
from protocol.records import HEADER_BYTES, BatchHeader, read_header
from protocol.types import INCARNATION_NONE, Buffer, Incarnation, TopicId
from storage.accumulator import Accumulator, PendingBatch
from storage.formats.spans import ObjectId
from storage.reader import Reader
from storage.stores.object_store import StoreError
from storage.writer import PutFirst, Writer
from txn.transactions import NO_TRANSACTION

logger = logging.getLogger(__name__)

PUT_SECONDS_MAX: Final = 20.0
"""A chunk that is not durable by then is given up: less than clients wait (30 s), so that they
hear for certain that it did not happen."""
SWEEP_SECONDS: Final = 0.25
"""How precisely the time that a client grants is kept."""
ROUNDING_MS: Final = 0.001
CHUNKS_PER_PUT: Final = 2
"""For each PUT that may be in flight so many chunks are closed and not settled: while one is put
another is committed."""
ROUND_SHARE: Final = 0.125
"""Of the newest chunk in what chunks take, lately."""
SENT_BYTES_MAX: Final = 64 * 1024
"""A chunk of more is put beside the log and not by its thread, where everything else would wait."""
ROOM_SHARE: Final = 0.75
"""Reading goes on when the bytes waiting have fallen to this share of the bound."""

NO_SESSION: Final = "this agent has no proven session in the metadata log"


class DelayedProduce(Protocol):
    """A request that has batches under way."""

    deadline: float
    """In the loop's time."""

    def time_out(self) -> None:
        """Answer now; what is still under way may happen or not (P4)."""
        ...


class DeferredProduce(Protocol):
    """A request that names what this replica does not know (yet), or whose batches must be opened."""

    def needs_barrier(self) -> bool: ...

    def begin(self, *, reached: bool) -> None:
        """Go on, unless it has begun; when not `reached` refuse it all: nobody knows whether it could be done."""
        ...

    async def take_unread(self) -> None:
        """Go on with batches that have to be opened away from the loop, if it has any."""
        ...


class ProducePath:
    """Takes record batches and settles their tickets."""

    def __init__(
        self,
        settings: Settings,
        *,
        rules: TopicRules,
        log_client: LogClient,
        writer: Writer,
        reader: Reader,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Belongs to the running loop; `tasks` will own the PUTs. `run` must be going, too."""
        self.full = False
        """The bound of bytes waiting is reached: take no more requests from sockets (P15)."""
        self.stats = ProduceStats()
        self._log_client = log_client
        self._accumulator = Accumulator(chunk_limits(settings))
        self._writer = writer
        self._publication = Publication(log_client.machine.partitions, reader)
        self._tasks = tasks
        self.rules = rules
        self._buffer_bytes_max = settings.produce_buffer_bytes
        self._puts_in_flight_max = settings.puts_in_flight_max
        self._loop = asyncio.get_running_loop()
        self._queue = CommitQueue()
        self._failed_batches = FailedBatches()
        self._puts: dict[ObjectId, asyncio.Task[None]] = {}
        self._proposals: dict[ObjectId, asyncio.Future[Outcome]] = {}
        self._put_first: PutFirst | None = None
        """Of the chunk that was sent last."""
        self._incarnation = INCARNATION_NONE
        self._next_number = 0
        self._flush_soon = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._on_room: list[Callable[[], None]] = []
        self._waiting: dict[DelayedProduce, None] = {}
        self._deferred: dict[int, deque[DeferredProduce]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        log_client.on_applied(self._applied)
        log_client.on_incarnation(self._session_changed)

    def on_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `full` has become false."""
        self._on_room.append(callback)

    def add(
        self,
        ticket: Ticket,
        topic_id: TopicId,
        partition: int,
        data: Buffer,
        header: BatchHeader,
        *,
        timestamp_max: int,
        instance: int,
    ) -> None:
        """Take a sound batch of the transaction `instance` (as of `storage.formats.spans.Item`).

        `timestamp_max`: what counts as its newest timestamp (`broker.produce.validation`). Its bytes must
        not change until the ticket is settled.
        """
        self._accumulator.add(
            topic_id,
            partition,
            data,
            records=header.last_offset_delta + 1,
            timestamp_max=timestamp_max,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            first_sequence=header.base_sequence,
            instance=instance,
            token=ticket,
            now_ms=self._now_ms(),
        )
        if instance > NO_TRANSACTION:
            self._expect_back(topic_id, partition, header, instance)
        stats = self.stats
        stats.batches += 1
        stats.records += header.last_offset_delta + 1
        stats.batch_bytes += len(data)
        stats.waiting_bytes += len(data)
        if not self.full and (
            stats.waiting_bytes >= self._buffer_bytes_max
            or (self._accumulator.has_sealed and not self._may_put())
        ):
            self.full = True
            stats.full_count += 1
        if not self._flush_soon:
            # Whatever else arrives in this turn of the loop shares the chunk.
            self._flush_soon = True
            self._idle.clear()
            self._loop.call_soon(self._flush)

    def defer(self, connection: int, deferred: DeferredProduce) -> None:
        """Let a request wait for a barrier, or until its batches are read, and with it those of
        its connection behind it (P10)."""
        queue = self._deferred.get(connection)
        if queue is not None:
            queue.append(deferred)
            return
        self._deferred[connection] = deque([deferred])
        self._tasks.create_task(self._run_deferred(connection))

    def is_deferring(self, connection: int) -> bool:
        """A request of the connection waits: those behind it must, too."""
        return connection in self._deferred

    async def _run_deferred(self, connection: int) -> None:
        queue = self._deferred[connection]
        while queue:
            # Each one's barrier begins after it was read (P9); what one brought may do for others.
            if queue[0].needs_barrier():
                try:
                    await self._log_client.barrier()
                except LogUnavailableError:
                    # None of those behind it may overtake what is refused now.
                    while queue:
                        queue.popleft().begin(reached=False)
                    break
            deferred = queue.popleft()
            deferred.begin(reached=True)
            await deferred.take_unread()
        del self._deferred[connection]

    def overtakes(
        self, topic_id: TopicId, partition: int, header: BatchHeader, instance: int
    ) -> bool:
        """The batch must not be taken before one that failed comes again (`broker.produce.failed_batches`)."""
        if not self._failed_batches or header.producer_id < 0:
            return False
        row = self._log_client.machine.partitions.get(topic_id, partition)
        if row is not None and row.windows and header.producer_id in row.windows:
            self._failed_batches.forget(topic_id, partition, header.producer_id)
            return False
        return self._failed_batches.overtakes(
            topic_id, partition, header, self._now_ms(), instance=instance
        )

    def refused(
        self, topic_id: TopicId, partition: int, data: Buffer | None, *, version: int
    ) -> None:
        """A batch was not taken for a reason that will pass; what follows must not overtake it."""
        if data is None or len(data) < HEADER_BYTES:
            return
        header = read_header(data)
        instance = NO_TRANSACTION
        if header.is_transactional:
            transactions = self._log_client.machine.transactions
            instance = likely_instance(transactions, header.producer_id, version=version)
        self._failed_batches.note_refused(
            topic_id, partition, header, self._now_ms(), instance=instance
        )

    def time(self) -> float:
        """The loop's time, in which deadlines are given."""
        return self._loop.time()

    def watch(self, request: DelayedProduce) -> None:
        """Have `request.time_out()` called when its deadline has passed."""
        self._waiting[request] = None

    def unwatch(self, request: DelayedProduce) -> None:
        self._waiting.pop(request, None)

    async def run(self) -> None:
        """Keep the deadlines of requests, for ever: one coarse sweep instead of timers."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = self._loop.time()
            for request in [request for request in self._waiting if request.deadline <= now]:
                self.stats.requests_timed_out += 1
                request.time_out()

    async def drain(self) -> None:
        """Close the open chunk and wait until everything is settled, for leaving."""
        while self._accumulator.due_ms(0) is not None:
            self._close()
        await self._idle.wait()

    def _now_ms(self) -> int:
        # A timer set for ms / 1000 must find that ms when it fires, whatever the last bit says.
        return int(self._loop.time() * 1000 + ROUNDING_MS)

    # From the open chunk to the store.

    def _flush(self) -> None:
        """Close what is due, and come back when the next chunk will be."""
        self._flush_soon = False
        while self._may_put():
            due_ms = self._accumulator.due_ms(len(self._queue))
            if due_ms is None:
                break
            if due_ms > self._now_ms():
                self._come_back(due_ms)
                break
            self._close()
        self._look_for_room()
        self._check_idle()

    def _come_back(self, due_ms: int) -> None:
        """Have `_flush` called when the next chunk is due; sooner does no harm."""
        if self._timer is not None and self._timer_ms <= due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        # Half a millisecond late: seconds as floats may round to just before it is due.
        self._timer = self._loop.call_at((due_ms + 0.5) / 1000, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self._flush()

    def _may_put(self) -> bool:
        most = self._puts_in_flight_max
        return len(self._puts) < most and len(self._queue) < CHUNKS_PER_PUT * most

    def _close(self) -> None:
        """Close the oldest chunk and put it under the incarnation of now."""
        now_ms = self._now_ms()
        closed = self._accumulator.close(now_ms)
        self.stats.chunks += 1
        incarnation = self._log_client.incarnation()
        chunk = PendingChunk(self._name(incarnation), closed, closed_ms=now_ms)
        self._queue.close(chunk)
        if incarnation is None:
            self._give_up(chunk, ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_SESSION)
            return
        if not self._send(chunk, incarnation):
            self._begin_put(chunk)

    def _send(self, chunk: PendingChunk, incarnation: Incarnation) -> bool:
        """Have the log's thread put a small chunk first, if it is the only one: one hop for both."""
        closed = chunk.closed
        if (
            not self._log_client.takes_first
            or closed.length > SENT_BYTES_MAX
            or len(self._queue) > 1
        ):
            return False
        put = self._writer.put_first(
            chunk.chunk_id, closed, reached=self._log_client.machine.position
        )
        if put is None:
            return False
        self._queue.send(chunk)
        self._put_first = put
        command = chunk.command()
        assert command is not None
        self._watch_proposal(chunk, self._log_client.propose(command, incarnation, first=put))
        return True

    def _begin_put(self, chunk: PendingChunk) -> None:
        self._puts[chunk.chunk_id] = self._tasks.create_task(self._put(chunk))
        self.stats.puts_in_flight = len(self._puts)

    def _name(self, incarnation: Incarnation | None) -> ObjectId:
        """A name that no chunk had: numbers go on when a session is proven anew."""
        if incarnation is not None and incarnation != self._incarnation:
            self._incarnation = incarnation
            self._next_number = 0
        chunk_id = ObjectId(self._incarnation, self._next_number)
        self._next_number += 1
        return chunk_id

    async def _put(self, chunk: PendingChunk) -> None:
        error: StoreError | None = None
        try:
            deadline = self._loop.time() + PUT_SECONDS_MAX
            reached = self._log_client.machine.position
            await self._writer.put(chunk.chunk_id, chunk.closed, reached=reached, deadline=deadline)
        except StoreError as failure:
            error = failure
        finally:
            self._put_ended(chunk)
        if not self._queue.holds(chunk):
            # Given up while it was under way (the session was lost).
            self._release(chunk.closed.data_bytes)
        elif error is None:
            chunk.durable = True
        else:
            text = "chunk %s is given up: %s"
            logger.warning(text, chunk.chunk_id.key, error, extra=coded(error))
            self._give_up(
                chunk, ErrorCode.KAFKA_STORAGE_ERROR, f"the object store did not take it: {error}"
            )
        self._propose()
        self._flush()

    # From the store to the log.

    def _propose(self) -> None:
        """Propose what is durable, in the order of closing."""
        while True:
            self._reap()
            chunks = self._queue.advance()
            if not chunks:
                return
            for chunk in chunks:
                self._propose_one(chunk)

    def _propose_one(self, chunk: PendingChunk) -> None:
        command = chunk.command()
        if command is None:
            self._queue.settle(chunk.chunk_id)
            self._release(chunk.closed.data_bytes)
            return
        assert chunk.durable
        self._watch_proposal(chunk, self._log_client.propose(command, chunk.chunk_id.incarnation))
        self._reap()

    def _watch_proposal(self, chunk: PendingChunk, future: asyncio.Future[Outcome]) -> None:
        self._proposals[chunk.chunk_id] = future
        future.add_done_callback(functools.partial(self._proposal_ended, chunk.chunk_id))

    def _reap(self) -> None:
        """Learn of refused proposals before anything that would overtake them is proposed (P11)."""
        for chunk_id, future in list(self._proposals.items()):
            if future.done():
                self._proposal_ended(chunk_id, future)

    def _proposal_ended(self, chunk_id: ObjectId, future: asyncio.Future[Outcome]) -> None:
        if self._proposals.pop(chunk_id, None) is None or future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._settle(chunk_id, future.result())
        elif isinstance(error, FirstNotDoneError):
            chunk = self._queue.proposed(chunk_id)
            if chunk is not None:
                # The ordinary way repeats a PUT for as long as that may help, and tells why.
                self._queue.take_back(chunk)
                self._begin_put(chunk)
        elif isinstance(error, NotDoneError):
            chunk = self._queue.proposed(chunk_id)
            if chunk is not None:
                self._give_up(
                    chunk, ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not committed: {error.reason}"
                )
                self._propose()
        elif isinstance(error, LogError):
            # Open until the log's end is reached again; the requests' own time may tell them so (P4).
            logger.warning("the fate of chunk %s is unknown: %s", chunk_id.key, error)
            self._queue.doubt(chunk_id)
            self._propose()
        else:
            raise error

    def _session_changed(self, incarnation: Incarnation | None) -> None:
        """Nothing that was not proposed under a session is ever proposed under another (P3).

        Under a new one the log's end was reached, so what was in doubt and did not come is not in it.
        """
        for chunk in [] if incarnation is None else self._queue.doubted(incarnation):
            self._give_up(
                chunk, ErrorCode.NOT_LEADER_OR_FOLLOWER, "not committed: it is not in the log"
            )
        message = "the session in the metadata log was lost"
        lost = self._queue.give_up_unproposed()
        for chunk in lost:
            self.stats.chunks_given_up += 1
            put = self._puts.get(chunk.chunk_id)
            if put is None:
                self._release(chunk.closed.data_bytes)
            else:
                # Its bytes count until the PUT has let go of them (P15).
                put.add_done_callback(functools.partial(self._put_cancelled, chunk))
                put.cancel()
        withdrawn = self._accumulator.withdraw(lambda _batch: True)
        self._release(sum(batch.length for batch in withdrawn))
        for chunk in lost:
            self._refuse(chunk.live_batches(), ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
        self._refuse(withdrawn, ErrorCode.NOT_LEADER_OR_FOLLOWER, message)

    def _put_cancelled(self, chunk: PendingChunk, put: asyncio.Task[None]) -> None:
        if put.cancelled():
            # A task that is cancelled before its first step has not come to its `finally`.
            self._put_ended(chunk)
            self._release(chunk.closed.data_bytes)
            self._flush()

    def _put_ended(self, chunk: PendingChunk) -> None:
        self._puts.pop(chunk.chunk_id, None)
        self.stats.puts_in_flight = len(self._puts)

    # From the log to the clients.

    def _applied(self, applied: Applied) -> None:
        for command, outcome in zip(applied.entry.commands, applied.outcomes, strict=True):
            if isinstance(command, CommitChunk):
                self._settle(ObjectId(applied.incarnation, command.number), outcome)
            elif isinstance(command, DeleteTopic):
                self.rules.forget(command.topic_id)

    def _settle(self, chunk_id: ObjectId, outcome: Outcome) -> None:
        """The log has decided. Called when the entry is applied; again, it does nothing."""
        if not isinstance(outcome, ChunkCommitted):
            chunk = self._queue.proposed(chunk_id)
            if chunk is not None:
                message = f"not committed: {outcome}"
                self._give_up(chunk, ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
                self._propose()
            return
        was_sent = self._queue.is_sent(chunk_id)
        chunk = self._queue.settle(chunk_id)
        if chunk is None:
            return
        if was_sent:
            assert self._put_first is not None
            self._writer.was_put_first(chunk.closed, self._put_first)
            self._propose()
        self.stats.chunks_committed += 1
        self._took(self._now_ms() - chunk.closed_ms)
        rows = list(chunk.results(outcome))
        self._publication.publish(chunk.chunk_id, rows)
        for batch, item, result in rows:
            if item.error != ErrorCode.NONE:
                self.stats.batches_refused += 1
                if item.error == ErrorCode.NOT_ENOUGH_REPLICAS:
                    self._sent_back(batch)
            else:
                self.stats.batches_acknowledged += 1
                self.stats.batches_duplicate += item.duplicate
            ticket_of(batch).settle(result)
        self._release(chunk.closed.data_bytes)

    def _took(self, ms: int) -> None:
        """A chunk is in the log: what the next ones will take."""
        accumulator = self._accumulator
        before_ms = accumulator.round_ms or ms
        accumulator.round_ms = before_ms + (ms - before_ms) * ROUND_SHARE

    def _sent_back(self, batch: PendingBatch) -> None:
        """Another transaction is open than the batch named; it comes again as one of that."""
        transactions = self._log_client.machine.transactions
        row = transactions.by_producer(batch.producer_id)
        instance = batch.instance if row is None else row.txn_metadata.instance
        self._failed_batches.note_one(batch, instance, self._now_ms())

    def _expect_back(
        self, topic_id: TopicId, partition: int, header: BatchHeader, instance: int
    ) -> None:
        """The same is known of a batch that was just taken; one read behind it may name that one.

        If it is a repetition instead, the partition knows its producer, and this is forgotten.
        """
        row = self._log_client.machine.transactions.by_producer(header.producer_id)
        if row is not None and row.is_ongoing and row.txn_metadata.instance > instance:
            self._failed_batches.note_refused(
                topic_id, partition, header, self._now_ms(), instance=row.txn_metadata.instance
            )

    def _give_up(self, chunk: PendingChunk, error: ErrorCode, message: str) -> None:
        """`chunk` is not in the log and never will be, and what would overtake it neither."""
        self.stats.chunks_given_up += 1
        failed = self._queue.give_up(chunk)
        keys = keys_of(failed)
        withdrawn = self._accumulator.withdraw(lambda batch: order_key(batch) in keys)
        self._release(chunk.closed.data_bytes + sum(batch.length for batch in withdrawn))
        self._refuse(failed, error, message)
        self._refuse(withdrawn, error, message)

    def _refuse(self, batches: list[PendingBatch], error: ErrorCode, message: str) -> None:
        self._failed_batches.note(batches, self._now_ms())
        self.stats.batches_refused += len(batches)
        for batch in batches:
            ticket_of(batch).settle(refusal(batch, error, message))

    # Room.

    def _release(self, byte_count: int) -> None:
        self.stats.waiting_bytes -= byte_count
        assert self.stats.waiting_bytes >= 0
        if self._accumulator.waiting_bytes and not self._flush_soon:
            self._flush_soon = True
            self._loop.call_soon(self._flush)
        self._look_for_room()
        self._check_idle()

    def _look_for_room(self) -> None:
        if (
            self.full
            and self.stats.waiting_bytes <= ROOM_SHARE * self._buffer_bytes_max
            and not self._accumulator.has_sealed
        ):
            self.full = False
            for callback in self._on_room:
                callback()

    def _check_idle(self) -> None:
        if not self._puts and not len(self._queue) and self._accumulator.due_ms(0) is None:
            self._idle.set()
