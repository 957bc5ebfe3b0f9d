"""Applies the commands about transactions: one entry ends a transaction everywhere.

Where a transactional id goes is decided in `txn.transactions`; here that is done to the tables:
markers into the partitions that got records, pending offsets into the groups, or away. All of it
happens at one position, so no reader ever sees a part of a transaction
(docs/design/transactions.md §5).

Invariants: a command is judged before it touches anything. Topics and groups that are deleted
drop out of their transactions without a trace.
"""

from dataclasses import dataclass
from typing import Final, assert_never

from coordinator.commands.entries import DONE, Done, Rejected, too_many
from coordinator.commands.group_commands import OffsetsCommitted
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    CommitTransactionOffsets,
    EndTransaction,
    ExpireProducers,
    ExpireTransactionalIds,
    GiveUpTransaction,
    InitProducer,
    Marked,
    ProducerInitialized,
    SetFeatureLevel,
    TransactionCommand,
    TransactionEnded,
)
from coordinator.tables.features import Features
from coordinator.tables.groups import Groups
from coordinator.tables.incarnations import IncarnationRow, Incarnations
from coordinator.tables.objects import Moment
from coordinator.tables.partition import Partition
from coordinator.tables.partitions import Partitions
from coordinator.tables.producer_ids import ProducerIds
from coordinator.tables.transactions import TransactionRow, Transactions
from protocol.errors import ErrorCode
from txn.transactions import (
    OF_EPOCH,
    Connection,
    Markers,
    Proof,
    State,
    TransactionMetadata,
    Transition,
    add,
    begin,
    check,
    end,
    end_bumping,
    give_up,
    init,
    renew,
)

COMMAND_ROWS_MAX: Final = 1_000
"""Partitions, groups, ids or producers in one command (docs/design/log-and-sessions.md §10)."""


@dataclass(slots=True, eq=False, kw_only=True)
class TransactionApplier:
    """Applies commands of live writers to the tables of the machine."""

    transactions: Transactions
    partitions: Partitions
    groups: Groups
    incarnations: Incarnations
    features: Features
    producer_ids: ProducerIds

    def apply(
        self,
        command: TransactionCommand,
        *,
        writer: IncarnationRow,
        moment: Moment,
    ) -> Done | Rejected | OffsetsCommitted | ProducerInitialized | TransactionEnded:
        """For `apply`: judge the command of a live writer, then carry it out."""
        match command:
            case InitProducer():
                return self._init(command, writer, moment)
            case AddToTransaction():
                return self._add(command, writer, moment)
            case CommitTransactionOffsets():
                return self._commit_offsets(command, writer, moment)
            case EndTransaction():
                return self._end(command, writer, moment)
            case GiveUpTransaction():
                return self._give_up(command, writer, moment)
            case ExpireTransactionalIds():
                return self._expire_transactional_ids(command, moment)
            case ExpireProducers():
                return self._expire_producers(command, moment)
            case SetFeatureLevel():
                return self.features.apply(command, self.incarnations, moment.position)
            case _:
                assert_never(command)

    def begin_era(self, moment: Moment) -> None:
        """No transaction goes on from an era to the next: open ones are aborted, and every id is renewed."""
        for row in tuple(self.transactions):
            changed = renew(row.txn_metadata, fresh_id=self.producer_ids.next)
            self._change(row, changed, moment.time_ms, moment)
            row.started_ms = -1

    def _init(
        self, command: InitProducer, writer: IncarnationRow, moment: Moment
    ) -> ProducerInitialized | Rejected:
        transactional_id = command.transactional_id
        row = self.transactions.get(transactional_id)
        if (
            row is None
            and (rejected := self.transactions.validate_new(transactional_id)) is not None
        ):
            return rejected
        changed = init(
            row.txn_metadata if row is not None else None,
            producer_id=command.producer_id,
            epoch=command.producer_epoch,
            fresh_id=self.producer_ids.next,
        )
        if isinstance(changed, ErrorCode):
            return _refused(changed, row)
        if row is None:
            row = self.transactions.create(transactional_id, changed.after)
        marked = self._change(row, changed, writer.clock_ms, moment)
        row.timeout_ms = command.timeout_ms
        if not row.is_ongoing:
            row.started_ms = -1
        return ProducerInitialized(row.txn_metadata.producer_id, row.txn_metadata.epoch, marked)

    def _add(
        self, command: AddToTransaction, writer: IncarnationRow, moment: Moment
    ) -> Done | Rejected:
        count = len(command.partitions) + len(command.group_ids)
        if (rejected := too_many(count, COMMAND_ROWS_MAX)) is not None:
            return rejected
        partitions: list[Partition] = []
        for place in command.partitions:
            partition = self.partitions.get(*place)
            if partition is None:
                reason = f"there is no partition {place[1]} of topic {place[0].hex()}"
                return Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
            partitions.append(partition)
        row = self.transactions.get(command.transactional_id)
        after = add(
            row.txn_metadata if row is not None else None,
            producer_id=command.producer_id,
            epoch=command.producer_epoch,
            instance=command.instance,
            by=Connection(writer.incarnation, command.connection),
            at=moment.position,
        )
        if isinstance(after, ErrorCode):
            return _refused(after, row)
        assert row is not None
        rejected = self.transactions.validate_room(row, command.partitions, command.group_ids)
        if rejected is not None:
            return rejected
        self._transition_to(row, after, writer.clock_ms, moment)
        self.transactions.join(row, partitions, command.group_ids)
        return DONE

    def _commit_offsets(
        self,
        command: CommitTransactionOffsets,
        writer: IncarnationRow,
        moment: Moment,
    ) -> OffsetsCommitted | Rejected:
        """The order of the checks is Kafka's: coordinator, transaction, member."""
        holder = self.groups.validate_holder(command.group_id, writer.incarnation)
        if holder is not None:
            return holder
        row = self.transactions.by_producer(command.producer_id)
        after = _validate_offsets(command, row)
        if isinstance(after, ErrorCode):
            return _refused(after, row)
        assert row is not None
        group_ids = (command.group_id,)
        if (rejected := self.transactions.validate_room(row, (), group_ids)) is not None:
            return rejected
        judged = self.groups.validate_pending(command)
        if isinstance(judged, Rejected):
            return judged
        errors, accepted = judged
        if command.instance == OF_EPOCH:
            self._transition_to(row, after, writer.clock_ms, moment)
            self.transactions.join(row, [], group_ids)
        self.groups.put_pending(command, accepted, moment)
        return OffsetsCommitted(errors)

    def _end(
        self, command: EndTransaction, writer: IncarnationRow, moment: Moment
    ) -> TransactionEnded | Rejected:
        row = self.transactions.get(command.transactional_id)
        before = row.txn_metadata if row is not None else None
        if (proof := command.proof) is None:
            changed = end_bumping(
                before,
                producer_id=command.producer_id,
                epoch=command.producer_epoch,
                commit=command.commit,
                fresh_id=self.producer_ids.next,
            )
        else:
            changed = end(
                before,
                producer_id=command.producer_id,
                epoch=command.producer_epoch,
                commit=command.commit,
                proof=Proof(
                    instance=proof.instance,
                    connection=Connection(writer.incarnation, proof.connection),
                    clock=proof.clock,
                    challenged=proof.challenged,
                ),
            )
        return self._ended(row, changed, writer, moment)

    def _give_up(
        self, command: GiveUpTransaction, writer: IncarnationRow, moment: Moment
    ) -> TransactionEnded | Rejected:
        row = self.transactions.get(command.transactional_id)
        changed = give_up(
            row.txn_metadata if row is not None else None,
            producer_id=command.producer_id,
            epoch=command.producer_epoch,
            instance=command.instance,
            fresh_id=self.producer_ids.next,
        )
        return self._ended(row, changed, writer, moment)

    def _ended(
        self,
        row: TransactionRow | None,
        changed: Transition | ErrorCode,
        writer: IncarnationRow,
        moment: Moment,
    ) -> TransactionEnded | Rejected:
        if isinstance(changed, ErrorCode):
            return _refused(changed, row)
        assert row is not None
        marked = self._change(row, changed, writer.clock_ms, moment)
        txn_metadata = row.txn_metadata
        return TransactionEnded(
            txn_metadata.producer_id, txn_metadata.epoch, txn_metadata.state, marked
        )

    def _change(
        self,
        row: TransactionRow,
        changed: Transition,
        clock_ms: int,
        moment: Moment,
    ) -> tuple[Marked, ...]:
        """End the open transaction if it ends by this, and stand where `changed` says."""
        marked: tuple[Marked, ...] = ()
        if changed.markers is not None:
            row.ended_at = moment.position
            commit = changed.after.state is State.COMPLETE_COMMIT
            marked = self._mark(
                row,
                changed.markers,
                commit=commit,
                clock_ms=clock_ms,
                time_ms=moment.time_ms,
            )
            for group_id in row.group_ids:
                self.groups.end_pending(
                    group_id, changed.markers.producer_id, commit=commit, time_ms=moment.time_ms
                )
        self._transition_to(row, changed.after, clock_ms, moment)
        self.producer_ids.use(changed.after.producer_id)
        return marked

    def _mark(
        self, row: TransactionRow, markers: Markers, *, commit: bool, clock_ms: int, time_ms: int
    ) -> tuple[Marked, ...]:
        marked = []
        for (topic_id, number), partition in row.partitions.items():
            offset = self.partitions.mark(
                partition, markers, commit=commit, timestamp=clock_ms, time_ms=time_ms
            )
            if offset is not None:
                marked.append(Marked(topic_id, number, offset))
        return tuple(marked)

    def _transition_to(
        self,
        row: TransactionRow,
        after: TransactionMetadata,
        clock_ms: int,
        moment: Moment,
    ) -> None:
        self.transactions.transition_to(row, after, clock_ms=clock_ms, time_ms=moment.time_ms)

    def _expire_transactional_ids(
        self, command: ExpireTransactionalIds, moment: Moment
    ) -> Done | Rejected:
        if (rejected := too_many(len(command.transactional_ids), COMMAND_ROWS_MAX)) is not None:
            return rejected
        for transactional_id in command.transactional_ids:
            row = self.transactions.get(transactional_id)
            if (
                row is not None
                and not row.is_ongoing
                and row.changed_ms <= moment.time_ms - command.expiration_ms
            ):
                self.transactions.remove(row)
        return DONE

    def _expire_producers(self, command: ExpireProducers, moment: Moment) -> Done | Rejected:
        count = sum([len(row.producer_ids) for row in command.producers])
        if (rejected := too_many(count, COMMAND_ROWS_MAX)) is not None:
            return rejected
        for topic_id, number, producer_ids in command.producers:
            partition = self.partitions.get(topic_id, number)
            if partition is not None:
                self.partitions.expire_producers(
                    partition, producer_ids, old_ms=moment.time_ms - command.expiration_ms
                )
        return DONE


def _validate_offsets(
    command: CommitTransactionOffsets, row: TransactionRow | None
) -> TransactionMetadata | ErrorCode:
    """Where the transactional id stands with these offsets, or why they are not its."""
    producer_id, epoch = command.producer_id, command.producer_epoch
    if row is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if command.instance == OF_EPOCH:
        return begin(row.txn_metadata, producer_id=producer_id, epoch=epoch)
    error = check(row.txn_metadata, producer_id=producer_id, epoch=epoch, instance=command.instance)
    if error != ErrorCode.NONE:
        return error
    return (
        row.txn_metadata if command.group_id in row.group_ids else ErrorCode.TRANSACTION_ABORTABLE
    )


def _refused(error: ErrorCode, row: TransactionRow | None) -> Rejected:
    if row is None:
        return Rejected(error, "there is no such transactional id or producer")
    txn_metadata = row.txn_metadata
    reason = (
        f"'{row.transactional_id}' has producer {txn_metadata.producer_id}, epoch {txn_metadata.epoch};"
        f" transaction {txn_metadata.instance} is its newest, {txn_metadata.state.name.lower()}"
    )
    return Rejected(error, reason)
