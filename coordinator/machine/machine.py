"""The machine: all metadata of a cluster, a function of the log alone.

`apply` is total and deterministic: a refusal is an outcome like any other, and an exception is a
bug that stops the replica (P13). A command is first judged without touching anything, then
carried out without being able to fail; only a chunk is judged item by item, as each may be
refused alone. Nothing here reads a clock, draws a number or iterates over a set.

Positions grow; an incarnation's entries are numbered without a hole. Entries of an incarnation
that is not live change nothing: their commands are all refused with STALE_BROKER_EPOCH.

Queries are the tables themselves: `topics`, `partitions`, `incarnations`, `groups`,
`transactions`, `features`, `pins`, `objects`, `jobs`, `snapshots`, `exports`, `schemas`, `acls`,
`credentials`, `delegation_tokens`, `client_quotas`, `dynamic_configs`, `quota_usage`, `eras`, `losses`.
"""

from typing import assert_never

from coordinator.commands.config_commands import (
    AlterClientQuotas,
    ChangeConfigs,
    ConfigCommand,
    ReportUsage,
)
from coordinator.commands.credential_commands import CredentialCommand
from coordinator.commands.digest import DIGEST_ZERO, roll
from coordinator.commands.entries import (
    DONE,
    VOIDED,
    AllocateProducerIds,
    ChunkCommitted,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Entry,
    Open,
    Opened,
    Outcome,
    Pin,
    Pinned,
    PurgePartitions,
    Rejected,
    Tick,
    TopicCreated,
    Unpin,
    VoidEntry,
)
from coordinator.commands.group_commands import GroupCommand, SetTopicConfigs
from coordinator.commands.rights_commands import RightsCommand
from coordinator.commands.table_commands import (
    DeleteSubject,
    GrowTopic,
    RegisterSchema,
    ReportExport,
    SetSubjectRules,
)
from coordinator.commands.token_commands import TokenCommand
from coordinator.commands.transaction_commands import TransactionCommand
from coordinator.machine.job_applier import BoundingCommand, JobApplier
from coordinator.machine.transaction_applier import TransactionApplier
from coordinator.tables.administration.acls import Acls
from coordinator.tables.administration.client_quotas import ClientQuotas
from coordinator.tables.administration.credentials import Credentials
from coordinator.tables.administration.delegation_tokens import DelegationTokens
from coordinator.tables.administration.dynamic_configs import DynamicConfigs
from coordinator.tables.administration.quota_usage import QuotaUsage
from coordinator.tables.eras import EraRow, Eras
from coordinator.tables.exports import Exports
from coordinator.tables.features import Features
from coordinator.tables.groups import Groups, changed_configs
from coordinator.tables.incarnations import IncarnationRow, Incarnations
from coordinator.tables.jobs import Jobs
from coordinator.tables.losses import Losses
from coordinator.tables.objects import OBJECT_NUMBERS_AHEAD_MAX, Moment, Objects
from coordinator.tables.partitions import PURGE_ROWS_MAX, Partitions, Stamps
from coordinator.tables.pins import Pins
from coordinator.tables.producer_ids import ProducerIds
from coordinator.tables.schemas import Schemas
from coordinator.tables.snapshots import Snapshots
from coordinator.tables.topics import TOPIC_CONFIGS_MAX, Topic, Topics, topic_id_at
from coordinator.tables.transactions import Transactions
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Incarnation, Position, era_of
from storage.formats.spans import ObjectId

FENCED = Rejected(ErrorCode.STALE_BROKER_EPOCH, "the incarnation of the writer is not live")
AdministrativeCommand = RightsCommand | CredentialCommand | TokenCommand | ConfigCommand


class Machine:
    """All metadata of a cluster at one position of the log."""

    def __init__(self) -> None:
        self.position: Position = POSITION_ZERO
        """Of the newest entry applied."""
        self.time_ms = 0
        """The least of the newest wall clocks of the live incarnations; never goes back."""
        self.objects = Objects()
        self.incarnations = Incarnations()
        self.transactions = Transactions()
        self.partitions = Partitions(self.objects, self.transactions)
        self.pins = Pins()
        self.topics = Topics()
        self.groups = Groups(self.incarnations, self.topics)
        self.features = Features()
        self.producer_ids = ProducerIds()
        self._transaction_applier = TransactionApplier(
            transactions=self.transactions,
            partitions=self.partitions,
            groups=self.groups,
            incarnations=self.incarnations,
            features=self.features,
            producer_ids=self.producer_ids,
        )
        self.jobs = Jobs()
        self.snapshots = Snapshots()
        self.eras = Eras()
        self.losses = Losses()
        self.exports = Exports()
        self.schemas = Schemas()
        self.acls = Acls()
        self.credentials = Credentials()
        self.delegation_tokens = DelegationTokens()
        self.client_quotas = ClientQuotas()
        self.dynamic_configs = DynamicConfigs()
        self.quota_usage = QuotaUsage()
        self._job_applier = JobApplier(
            jobs=self.jobs,
            snapshots=self.snapshots,
            topics=self.topics,
            partitions=self.partitions,
            objects=self.objects,
            incarnations=self.incarnations,
            pins=self.pins,
            exports=self.exports,
            losses=self.losses,
        )
        self._digest = DIGEST_ZERO

    def apply(self, position: Position, entry: Entry) -> tuple[Outcome, ...]:
        """Carry out an entry; one outcome for each of its commands."""
        assert position > self.position
        self.position = position
        if entry.incarnation == INCARNATION_NONE:
            outcomes = self._begin(position, entry)
        else:
            outcomes = self._go_on(position, entry)
        self._digest = roll(self._digest, position, outcomes)
        if self.snapshots.is_beginning:
            self.snapshots.note(position, self._digest)
        return outcomes

    def void(self, position: Position, *, session: int, n: int) -> None:
        """Pass over an entry that an operator has voided, entry n of the session in the log.

        Its position and its number count, so that what its writer has appended after it follows. Where it
        was to open an incarnation there is none, and all that follows is refused.
        """
        assert position > self.position
        self.position = position
        writer = self.incarnations.by_session(session)
        if writer is not None:
            assert n == writer.last_n + 1
            writer.last_n = n
        self._digest = roll(self._digest, position, (VOIDED,))

    def begin_era(self, begun: Position, *, snapshot_key: str) -> None:
        """Go on in another era, behind what is left of the log of the one before (`coordinator.recovery`).

        Nobody of the era before lives, no group has members, no transaction is open, and no producer id is
        given twice. Records keep their offsets; where partitions end is kept for those who have read further.
        `snapshot_key`: where this machine is going to be found, as the only snapshot of the era.
        """
        assert era_of(begun) > era_of(self.position)
        self.position = begun
        for row in tuple(self.incarnations):
            self._end(row.incarnation)
        written = {(row.topic_id, row.partition): row for row in self.partitions.written()}
        ends = {place: row.end_offset for place, row in written.items()}
        stable = {place: row.last_stable for place, row in written.items()}
        opened = {place: offset for place, offset in stable.items() if offset < ends[place]}
        self.eras.begin(EraRow(begun, ends, opened))
        self.producer_ids.begin_era(era_of(begun))
        moment = Moment(begun, self.time_ms)
        self.groups.begin_era(moment)
        self._transaction_applier.begin_era(moment)
        self._digest = roll(self._digest, begun, ())
        self.snapshots.begin_era(begun, self._digest, snapshot_key)

    def digest(self) -> bytes:
        """16 bytes that roll over the outcomes of all entries (P13)."""
        return self._digest

    def object_length(self, object_id: ObjectId) -> int:
        """Bytes of the object. Raises KeyError when nothing points at it."""
        return self.objects.length(object_id)

    def next_purge(self) -> PurgePartitions | None:
        """What must be proposed next to get rid of deleted topics; None when nothing is left, but
        for pages that must be recalled first (`Partitions.to_recall`)."""
        for topic in self.partitions.deleted():
            first = self.partitions.first_left(topic.topic_id)
            if first is not None:
                count = min(topic.partition_count - first, PURGE_ROWS_MAX)
                return PurgePartitions(topic.topic_id, first, count)
        return None

    def _begin(self, position: Position, entry: Entry) -> tuple[Outcome, ...]:
        match entry.commands:
            case (Open() as command,) if entry.n == 0:
                return (self._open(position, command, entry.clock_ms),)
            case (VoidEntry(),) if entry.n == 0:
                return (DONE,)
            case _:
                reason = "an incarnation begins with one Open, number 0"
                rejected = Rejected(ErrorCode.INVALID_REQUEST, reason)
                return (rejected,) * len(entry.commands)

    def _go_on(self, position: Position, entry: Entry) -> tuple[Outcome, ...]:
        writer = self.incarnations.get(entry.incarnation)
        if writer is None:
            return (FENCED,) * len(entry.commands)
        assert entry.n == writer.last_n + 1
        writer.last_n = entry.n
        before_ms = writer.clock_ms
        if entry.clock_ms > before_ms:
            writer.clock_ms = entry.clock_ms
            if before_ms <= self.time_ms:  # Else it was not the least, and time stands still.
                self._advance_time()
        outcomes: list[Outcome] = []
        for index, command in enumerate(entry.commands):
            # An entry may hold the Close of its own writer.
            live = self.incarnations.get(entry.incarnation) is writer
            outcomes.append(
                self._apply_command(position, index, writer, command) if live else FENCED
            )
        return tuple(outcomes)

    def _apply_command(
        self, position: Position, index: int, writer: IncarnationRow, command: Command
    ) -> Outcome:
        if isinstance(command, CommitChunk):
            return self._commit_chunk(position, writer, command)
        moment = Moment(position, self.time_ms)
        if isinstance(command, GroupCommand):
            return self.groups.apply(command, writer=writer.incarnation, moment=moment)
        if isinstance(command, TransactionCommand):
            return self._transaction_applier.apply(command, writer=writer, moment=moment)
        if isinstance(command, BoundingCommand):
            return self._job_applier.apply(command, writer=writer, moment=moment)
        if isinstance(command, AdministrativeCommand):
            return self._administer(position, writer, command)
        match command:
            case Tick():
                return DONE
            case AllocateProducerIds():
                return self.producer_ids.allocate(command)
            case ReportExport() | RegisterSchema() | DeleteSubject() | SetSubjectRules():
                return self._change_tables(position, command)
            case (
                CreateTopic() | DeleteTopic() | PurgePartitions() | SetTopicConfigs() | GrowTopic()
            ):
                return self._change_topics(position, index, command)
            case Pin() | Unpin():
                return self._pin(position, command)
            case Open() | VoidEntry() | Close():
                return self._close(writer, command)
            case _:
                assert_never(command)

    def _administer(
        self, position: Position, writer: IncarnationRow, command: AdministrativeCommand
    ) -> Outcome:
        if isinstance(command, CredentialCommand):
            return self.credentials.apply(command)
        if isinstance(command, TokenCommand):
            return self.delegation_tokens.apply(command, position)
        if isinstance(command, AlterClientQuotas):
            return self.client_quotas.apply(command, position)
        if isinstance(command, ChangeConfigs):
            return self.dynamic_configs.apply(command, position)
        if isinstance(command, ReportUsage):
            return self.quota_usage.apply(command, writer.incarnation)
        return self.acls.apply(command, position)

    def _change_tables(
        self,
        position: Position,
        command: ReportExport | RegisterSchema | DeleteSubject | SetSubjectRules,
    ) -> Outcome:
        if isinstance(command, ReportExport):
            moment = Moment(position, self.time_ms)
            return self.exports.report(command, self.partitions, moment)
        return self.schemas.apply(command, position)

    # Incarnations and time.

    def _open(self, position: Position, command: Open, clock_ms: int) -> Outcome:
        if (rejected := self.incarnations.validate(command)) is not None:
            return rejected
        if (rejected := self.features.validate(command)) is not None:
            return rejected
        if (before := self.incarnations.by_node_name(command.node_name)) is not None:
            self._end(before.incarnation)
        row = self.incarnations.open(Incarnation(position), command, clock_ms)
        self.features.opened(command, position)
        self._advance_time()
        return Opened(row.incarnation, row.node_id, row.rank)

    def _close(self, writer: IncarnationRow, command: Open | VoidEntry | Close) -> Outcome:
        if not isinstance(command, Close):
            reason = f"{type(command).__name__} under an incarnation that has begun"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        row = self.incarnations.get(command.incarnation)
        if row is None:
            return DONE  # Several agents may see a session gone; the first one closed it.
        if row is not writer and row.last_n != command.last:
            reason = f"its newest entry is number {row.last_n}, not {command.last}"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        self._end(command.incarnation)
        self._advance_time()
        return DONE

    def _end(self, incarnation: Incarnation) -> None:
        self.incarnations.close(incarnation)
        self.groups.close(incarnation)
        self.jobs.close(incarnation)
        self.objects.close(incarnation)
        self.quota_usage.close(incarnation)

    def _advance_time(self) -> None:
        least_ms = min((row.clock_ms for row in self.incarnations), default=self.time_ms)
        self.time_ms = max(self.time_ms, least_ms)

    # Topics.

    def _change_topics(
        self,
        position: Position,
        index: int,
        command: CreateTopic | DeleteTopic | PurgePartitions | SetTopicConfigs | GrowTopic,
    ) -> Outcome:
        match command:
            case CreateTopic():
                return self._create_topic(position, index, command)
            case DeleteTopic():
                return self._delete_topic(command)
            case PurgePartitions():
                return self._purge_partitions(position, command)
            case SetTopicConfigs():
                return self._set_topic_configs(position, command)
            case GrowTopic():
                return self._grow_topic(command)
            case _:
                assert_never(command)

    def _create_topic(self, position: Position, index: int, command: CreateTopic) -> Outcome:
        rejected = self.topics.validate(command, partitions=len(self.partitions))
        if rejected is not None:
            return rejected
        topic = Topic(
            topic_id=topic_id_at(position, index),
            name=command.name,
            partition_count=command.partition_count,
            configs=dict(command.configs),
            created=position,
        )
        self.topics.add(topic)
        self.partitions.add_topic(topic.topic_id, topic.partition_count)
        return TopicCreated(topic.topic_id)

    def _delete_topic(self, command: DeleteTopic) -> Outcome:
        if self.topics.by_id(command.topic_id) is None:
            return Rejected(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of this id")
        self.topics.remove(command.topic_id)
        self.partitions.delete_topic(command.topic_id)
        self.exports.remove(command.topic_id)
        self.losses.forget(command.topic_id)
        return DONE

    def _grow_topic(self, command: GrowTopic) -> Outcome:
        topic = self.topics.by_id(command.topic_id)
        if topic is None:
            return Rejected(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of this id")
        count = command.partition_count
        rejected = self.topics.validate_growth(topic, count, partitions=len(self.partitions))
        if rejected is not None:
            return rejected
        self.topics.grow(command.topic_id, count)
        self.partitions.widen_topic(command.topic_id, count)
        return DONE

    def _set_topic_configs(self, position: Position, command: SetTopicConfigs) -> Outcome:
        topic = self.topics.by_id(command.topic_id)
        if topic is None:
            return Rejected(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of this id")
        configs = changed_configs(topic.configs, command.configs)
        if len(configs) > max(len(topic.configs), TOPIC_CONFIGS_MAX):
            reason = f"a topic has at most {TOPIC_CONFIGS_MAX} configs"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        self.topics.set_configs(command.topic_id, configs, position)
        return DONE

    def _purge_partitions(self, position: Position, command: PurgePartitions) -> Outcome:
        if self.topics.by_id(command.topic_id) is not None:
            return Rejected(ErrorCode.INVALID_REQUEST, "the topic has not been deleted")
        if command.count > PURGE_ROWS_MAX:
            reason = f"a slice has at most {PURGE_ROWS_MAX} partitions"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        self.partitions.purge(
            command.topic_id,
            first=command.first,
            count=command.count,
            moment=Moment(position, self.time_ms),
        )
        return DONE

    # Records.

    def _commit_chunk(
        self, position: Position, writer: IncarnationRow, command: CommitChunk
    ) -> Outcome:
        if not 0 < command.number - writer.chunk_last <= OBJECT_NUMBERS_AHEAD_MAX:
            reason = f"chunk {command.number} after chunk {writer.chunk_last}"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        for _, _, start, items in command.spans:
            end = start
            for item in items:
                end += item[0] + item[1]  # What is skipped, and its length.
            if end > command.length:
                return Rejected(ErrorCode.INVALID_REQUEST, "a span reaches over the chunk's end")
        writer.chunk_last = command.number
        slot = self.objects.slot(writer.incarnation)
        stamps = Stamps(slot, command.number, writer.clock_ms, self.time_ms)
        results, spans = self.partitions.commit(command.spans, stamps)
        moment = Moment(position, self.time_ms)
        self.objects.add(
            slot, command.number, length=command.length, references=spans, moment=moment
        )
        return ChunkCommitted(tuple(results))

    # Pins.

    def _pin(self, position: Position, command: Pin | Unpin) -> Outcome:
        if isinstance(command, Unpin):
            self.pins.remove(command.name)
            return DONE
        if (rejected := self.pins.validate(command, time_ms=self.time_ms)) is not None:
            return rejected
        row = self.pins.set(command, position=position, time_ms=self.time_ms)
        return Pinned(row.position, row.expires_ms)
