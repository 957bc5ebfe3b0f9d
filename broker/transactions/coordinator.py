"""Transactions at one agent: proposals for handlers, and the job that ends what has timed out.

What holds:

* Nothing is proposed without a proven session (P5); then clients hear
  COORDINATOR_LOAD_IN_PROGRESS, which all of them take as "send it again, here".
* When the fate of a proposal stays open the connection is closed (P4). The other truthful answer,
  REQUEST_TIMED_OUT, ends the producer in librdkafka and in older Java clients, where it is not
  foreseen for these requests. All clients send again on a new connection, soon enough for their
  own timeouts; and what they repeat is told from what it repeats by epoch or instance.
* An add names the instance that the agent saw. When `apply` had another by then the machine here
  is as new as that, so it is seen again and the request begins anew: clients that do not repeat
  an add (kafkajs) would fail otherwise.

Left out: what the requests look like (`broker.handlers`), expiry of ids and producers.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.calls.call import Call
from broker.calls.clock import GroupClock
from broker.calls.outcomes import outcome_of, wait_for
from broker.calls.shares import Ledger, owner_of
from broker.calls.stalls import TICK_MS
from broker.config.settings import Settings
from broker.transactions import placement
from broker.transactions.stats import Ending, TransactionStats
from broker.transactions.timeouts import OpenTransactions
from coordinator.commands.entries import Outcome, Rejected
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    EndTransaction,
    GiveUpTransaction,
    InitProducer,
)
from coordinator.log_client import LogClient
from coordinator.proposer import InvalidCommandError
from coordinator.tables.transactions import (
    ALL_PARTICIPANTS_MAX,
    ID_SIZE_MAX,
    TRANSACTIONAL_IDS_MAX,
    TransactionRow,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.types import Incarnation, TopicId
from txn.transactions import State, TransactionMetadata

logger = logging.getLogger(__name__)

FATE_MS_MAX: Final = 10_000
"""So long a request waits for its outcome; every client's own timeout is longer."""
ATTEMPTS_MAX: Final = 5
"""So often a request whose transaction has moved is looked at again."""
ADD_ROWS_MAX: Final = 1_000
"""Partitions in one command (docs/design/log-and-sessions.md §10, small steps)."""
AT_ONCE_MAX: Final = 100
"""Timed out transactions under way at a time."""


class TransactionCoordinator:
    """`run` must be going for timeouts. All methods belong to its loop."""

    def __init__(
        self, log_client: LogClient, *, settings: Settings, boot_ms: Callable[[], int]
    ) -> None:
        self.stats = TransactionStats()
        self._log_client = log_client
        self._settings = settings
        self._clock = GroupClock(boot_ms, stall_ms_max=settings.stall_ms)
        self._looked_ms = self._clock.now_ms()
        self._now_ms = 0
        """What transactions are timed by: the clock, but for times without a proven session."""
        self._open = OpenTransactions()
        self._make_shares()

    def _make_shares(self) -> None:
        """What each client made here of what is bounded for the whole cluster."""
        table = self._log_client.machine.transactions

        def participants_of(transactional_id: str) -> int:
            row = table.get(transactional_id)
            return 0 if row is None else len(row.partitions) + len(row.group_ids)

        self._ids: Ledger[str] = Ledger(
            TRANSACTIONAL_IDS_MAX,
            "transactional ids",
            size_of=lambda transactional_id: table.get(transactional_id) is not None,
            used=lambda: len(table),
        )
        self._id_sizes: Ledger[str] = Ledger(
            ID_SIZE_MAX,
            "characters in transactional ids",
            size_of=lambda each: 0 if table.get(each) is None else len(each),
            used=lambda: table.size,
        )
        self._participants: Ledger[str] = Ledger(
            ALL_PARTICIPANTS_MAX,
            "partitions and groups in open transactions",
            size_of=participants_of,
            used=lambda: table.participants,
        )

    # For handlers.

    def incarnation(self) -> Incarnation:
        """The incarnation to write under. Raises KafkaError (P5)."""
        incarnation = self._log_client.incarnation()
        if incarnation is None:
            reason = "this agent has no session in the metadata log at the moment"
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason)
        return incarnation

    def coordinates(self, transactional_id: str) -> bool:
        """Whether this agent is the coordinator of the id, as far as it knows."""
        node_id = self._log_client.node_id()
        node_ids = [row.node_id for row in self._log_client.machine.incarnations]
        return node_id is not None and placement.coordinator(transactional_id, node_ids) == node_id

    def txn_metadata(self, transactional_id: str) -> TransactionMetadata | None:
        """Returns the metadata of the id that this agent's replica has."""
        row = self._log_client.machine.transactions.get(transactional_id)
        return None if row is None else row.txn_metadata

    async def propose(
        self,
        call: Call,
        command: InitProducer | AddToTransaction | EndTransaction | GiveUpTransaction,
        incarnation: Incarnation,
    ) -> Outcome:
        """The outcome of a command; `Rejected` is one, for its reasons.

        Raises KafkaError when it did not happen; closes the connection when it still may.
        """
        future = self._log_client.propose(command, incarnation)
        if future.done() and isinstance(future.exception(), InvalidCommandError):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an id that fits into no entry of the log")
        await wait_for([future], FATE_MS_MAX)
        try:
            outcome = outcome_of(future, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        except KafkaError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT:
                self.stats.open_fates += 1
                call.close(f"nobody knows yet what became of {call!r}")
            raise
        return outcome

    async def init(self, call: Call, command: InitProducer, incarnation: Incarnation) -> Outcome:
        """As `propose`. Raises KafkaError also when the client has no share of new ids left."""
        transactional_id = command.transactional_id
        if self.txn_metadata(transactional_id) is not None:
            return await self.propose(call, command, incarnation)
        owner = owner_of(call.connection.peer)
        ledgers = ((self._ids, 1), (self._id_sizes, len(transactional_id)))
        for ledger, size in ledgers:
            ledger.require(owner, size)
        for ledger, size in ledgers:
            ledger.begin(owner, size)
        made = False
        try:
            outcome = await self.propose(call, command, incarnation)
            made = not isinstance(outcome, Rejected)
        finally:
            row = self._log_client.machine.transactions.get(transactional_id)
            # The machine's own text, not one more that may be long.
            name = transactional_id if row is None else row.transactional_id
            for ledger, size in ledgers:
                ledger.settle(owner, name, size, made=made)
        return outcome

    async def add(
        self,
        call: Call,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        partitions: Sequence[tuple[TopicId, int]] = (),
        group_ids: tuple[str, ...] = (),
    ) -> ErrorCode:
        """Have partitions or groups take part; what apply says, in its own words.

        `producer`: id and epoch. More partitions than a command may have go as several; a refusal
        of a later one leaves the first ones in the transaction, where they do no harm without
        records. Raises KafkaError as `propose`.
        """
        owner = owner_of(call.connection.peer)
        count = len(partitions) + len(group_ids)
        if not self._participants.admits(owner, count):
            return ErrorCode.POLICY_VIOLATION
        self._participants.begin(owner, count)
        try:
            return await self._add(call, transactional_id, producer, partitions, group_ids)
        finally:
            self._participants.end(owner, count)
            row = self._log_client.machine.transactions.get(transactional_id)
            if row is not None:
                self._participants.note(owner, row.transactional_id)

    async def _add(
        self,
        call: Call,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[tuple[TopicId, int]],
        group_ids: tuple[str, ...],
    ) -> ErrorCode:
        parts = [
            tuple(partitions[at : at + ADD_ROWS_MAX])
            for at in range(0, len(partitions), ADD_ROWS_MAX)
        ]
        code = ErrorCode.NONE
        for _ in range(ATTEMPTS_MAX):
            incarnation = self.incarnation()
            instance = _instance_to_join(self.txn_metadata(transactional_id))
            for part in parts or [()]:
                command = AddToTransaction(
                    transactional_id,
                    *producer,
                    instance,
                    call.connection.number,
                    part,
                    group_ids,
                )
                outcome = await self.propose(call, command, incarnation)
                code = outcome.error if isinstance(outcome, Rejected) else ErrorCode.NONE
                if code is not ErrorCode.NONE:
                    break
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return code
            self.stats.moved += 1
        return code

    async def give_up(self, call: Call, row: TransactionRow) -> ErrorCode:
        """Abort exactly this open transaction because an admin wants it."""
        command = _giving_up(row, timed_out=False)
        outcome = await self.propose(call, command, self.incarnation())
        if isinstance(outcome, Rejected):
            return outcome.error
        self.ended(Ending.GIVEN_UP)
        return ErrorCode.NONE

    def ended(self, ending: Ending) -> None:
        """A command of this agent has ended a transaction."""
        self.stats.ended[ending] += 1

    # For the metrics.

    @property
    def open_count(self) -> int:
        """Open transactions of the cluster, as far as this agent knows."""
        return len(self._log_client.machine.transactions.ongoing)

    def oldest_open_ms(self) -> int:
        """For how long this agent has seen the oldest of them open; 0 when there is none."""
        return self._open.oldest_ms(self._log_client.machine.transactions.ongoing, self._now_ms)

    # Timeouts.

    async def run(self) -> None:
        """End what has timed out, for ever."""
        kafka = self._settings.kafka
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._observe_often(), name="transactions' clock")
            while True:
                interval_ms = kafka.transaction_abort_timed_out_transaction_cleanup_interval_ms
                await asyncio.sleep(interval_ms / 1000)
                await self.sweep()

    async def _observe_often(self) -> None:
        """Often enough that no stall passes for time, and none is noted late."""
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.observe()

    def observe(self) -> None:
        """Note what has begun, and let time pass if this agent's session is proven."""
        now_ms = self._clock.now_ms()
        if self._log_client.incarnation() is not None:
            self._now_ms += now_ms - self._looked_ms
        self._looked_ms = now_ms
        self._open.observe(self._log_client.machine.transactions.ongoing, self._now_ms)

    async def sweep(self) -> None:
        """Propose the end of every transaction that has timed out and is this agent's to end."""
        self.observe()
        incarnation = self._log_client.incarnation()
        if incarnation is None:
            return
        ongoing = self._log_client.machine.transactions.ongoing
        due = self._open.overdue(ongoing, self._now_ms, self._before_this_agent)
        # Made before anything is waited for: a row may stand at another transaction then.
        wanted = [_giving_up(row, timed_out=True) for row in due]
        for at in range(0, len(wanted), AT_ONCE_MAX):
            commands = wanted[at : at + AT_ONCE_MAX]
            futures = [self._log_client.propose(each, incarnation) for each in commands]
            await wait_for(futures, FATE_MS_MAX)
            for command, future in zip(commands, futures, strict=True):
                self._timed_out(command, future)

    def _timed_out(self, command: GiveUpTransaction, future: asyncio.Future[Outcome]) -> None:
        try:
            outcome = outcome_of(future, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        except KafkaError as error:
            logger.info("a transaction that has timed out waits: %s", error)
            return
        if not isinstance(outcome, Rejected):
            self.ended(Ending.TIMED_OUT)
            logger.info(
                "transaction %d of %r has timed out and was aborted",
                command.instance,
                command.transactional_id,
            )

    def _before_this_agent(self, transactional_id: str) -> int:
        """How many agents come before this one when something is to be done for the id."""
        node_ids = [row.node_id for row in self._log_client.machine.incarnations]
        node_id = self._log_client.node_id()
        return placement.turn(transactional_id, node_ids, -1 if node_id is None else node_id)


def _instance_to_join(txn_metadata: TransactionMetadata | None) -> int:
    """The open transaction, or the next one to start."""
    if txn_metadata is None:
        return 1  # This agent has not heard of its producer yet; its first transaction it is.
    return (
        txn_metadata.instance if txn_metadata.state is State.ONGOING else txn_metadata.instance + 1
    )


def _giving_up(row: TransactionRow, *, timed_out: bool) -> GiveUpTransaction:
    txn_metadata = row.txn_metadata
    return GiveUpTransaction(
        row.transactional_id,
        txn_metadata.producer_id,
        txn_metadata.epoch,
        txn_metadata.instance,
        timed_out,
    )
