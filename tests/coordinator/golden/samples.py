"""Samples of every kind of command and of outcome, whose bytes and digests are kept for ever.

Those of a kind are counted in the order in which they stand here: new ones go to the end of their
family.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from coordinator.commands.config_commands import (
    AlterClientQuotas,
    ChangeConfigs,
    ConfigKind,
    EntityPart,
    EntityType,
    Quota,
    QuotaChange,
    ReportUsage,
    UsageRow,
)
from coordinator.commands.credential_commands import (
    DeleteScramCredential,
    ScramMechanism,
    UpsertScramCredential,
)
from coordinator.commands.entries import (
    AllocateProducerIds,
    ChunkCommitted,
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Done,
    ItemResult,
    Listener,
    Open,
    Opened,
    Outcome,
    Pin,
    Pinned,
    ProducerIdsAllocated,
    PurgePartitions,
    Rejected,
    Tick,
    TopicCreated,
    Unpin,
    Voided,
    VoidEntry,
)
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupKind,
    GroupMember,
    OffsetsCommitted,
    ReleaseShards,
    SetGroupConfigs,
    SetTopicConfigs,
    ShardsClaimed,
)
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    DropRows,
    ExpireRecords,
    Expiry,
    ForgetObjects,
    JobKind,
    JobsClaimed,
    LogsTrimmed,
    NewPage,
    NewSpan,
    ObjectsDoomed,
    PublishSnapshot,
    RecallPage,
    ReleaseJobs,
    Replacement,
    ReplaceRows,
    ReportJob,
    RequestJob,
    RowsMoved,
    SpillRows,
    Trim,
    TrimLogs,
    Trimmed,
)
from coordinator.commands.loss_commands import DeclareLost
from coordinator.commands.rights_commands import (
    AclBinding,
    AclsDeleted,
    ConfirmRights,
    CreateAcls,
    DeleteAcls,
)
from coordinator.commands.table_commands import (
    DeleteSubject,
    ExpireHeldRecords,
    ExportEnd,
    GrowTopic,
    HeldExpiry,
    Reference,
    RegisterSchema,
    ReportExport,
    SchemaKind,
    SchemaRegistered,
    SetSubjectRules,
    SubjectDeleted,
)
from coordinator.commands.token_commands import (
    CreateDelegationToken,
    ExtendDelegationToken,
    RemoveDelegationTokens,
)
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    ClientProof,
    CommitTransactionOffsets,
    EndTransaction,
    ExpireProducers,
    ExpireTransactionalIds,
    GiveUpTransaction,
    InitProducer,
    Marked,
    PartitionProducers,
    ProducerInitialized,
    SetFeatureLevel,
    TransactionEnded,
)
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Incarnation, Position, TopicId, position
from storage.formats.spans import Item, ObjectId, ObjectKind
from tests.coordinator.values import DIGEST, INCARNATION, OTHER, TOPIC
from txn.transactions import NO_TRANSACTION, OF_EPOCH, State

NOW_MS = 1_700_000_000_000
FINGERPRINT = bytes(range(200, 232))

PLAIN_COMMANDS: tuple[Command, ...] = (
    Open(7587, "agent-0", -1, "eu-1a", (Listener("PLAIN", "10.0.0.1", 9092),), "0.1.0", 1),
    Close(INCARNATION, 41),
    Tick(),
    CreateTopic("events", 12, (("retention.ms", "1000"),)),
    DeleteTopic(TOPIC),
    PurgePartitions(TOPIC, 1000, 500),
    AllocateProducerIds(1000),
    CommitChunk(
        7,
        1000,
        (
            ChunkSpan(
                TOPIC,
                0,
                40,
                (
                    Item(0, 100, 10, 1_700_000_000_000, 5, 1, 20),
                    Item(0, 200, 300, 1_700_000_000_000, 5, 1, 30),
                    Item(5, 100, 1, 1_699_999_999_990, 6, 0, 2**31 - 1),
                    Item(0, 100, 1, -1),
                ),
            ),
            ChunkSpan(OTHER, 3, 0, (Item(0, 40, 2, -1),)),
        ),
    ),
    Pin("export-1", 600_000),
    Unpin("export-1"),
    VoidEntry(position(1, 42), DIGEST),
    DeclareLost(TOPIC, 3, 1000, 1_000_500, 20, DIGEST, b"the body of a page", 9, 300, 16, 61),
)
TRANSACTIONAL_CHUNK = CommitChunk(
    8,
    900,
    (
        ChunkSpan(
            TOPIC,
            0,
            0,
            (
                Item(0, 100, 10, 1_700_000_000_000, 5, 1, 0, OF_EPOCH),
                Item(0, 100, 10, 1_700_000_000_000, 5, 1, 10, OF_EPOCH),
                Item(0, 100, 10, 1_700_000_000_000, 5, 1, 20, NO_TRANSACTION),
                Item(0, 100, 10, 1_700_000_000_000, 6, 0, 0, 7),
                Item(0, 100, 10, 1_700_000_000_000, 6, 0, 10, 7),
                Item(0, 100, 10, 1_700_000_000_000, 6, 0, 20, 300),
            ),
        ),
        ChunkSpan(OTHER, 3, 600, (Item(0, 40, 2, -1, 6, 0, 0, 0),)),
    ),
)

MORE_COMMANDS: tuple[Command, ...] = (
    TRANSACTIONAL_CHUNK,
    Open(
        2**63 - 1,
        "agent-ß",
        300,
        "",
        (Listener("PLAINTEXT", "::1", 65_535), Listener("", "", 0)),
        "",
        2**31 - 1,
    ),
    CreateTopic("t", -1, ()),
    CreateTopic("t", 10_000, (("cleanup.policy", "compact"), ("empty", ""), ("ß", "\N{SNOWMAN}"))),
    Pin("", -1),
)
"""Others of the same kinds."""

GROUP_COMMANDS: tuple[Command, ...] = (
    ClaimShards((0, 5, 63)),
    ReleaseShards((5,), INCARNATION),
    ReleaseShards((0, 63), INCARNATION_NONE),
    ChangeGroup(
        "billing",
        GroupKind.CONSUMER,
        7,
        8,
        b"\x01\xff",
        (GroupMember("m-1", 8, b"body"), GroupMember("m-2", -2, b"")),
        ("m-0",),
    ),
    ChangeGroup("simple", GroupKind.CLASSIC, GROUP_NEW, 0, b"", (), ()),
    DeleteGroup("billing", only_without_offsets=False),
    DeleteGroup("billing", only_without_offsets=True),
    CommitOffsets(
        "billing",
        "m-1",
        8,
        (
            CommittedOffset(TOPIC, 0, 1_000_000, 0, ""),
            CommittedOffset(TOPIC, 1, 999_990, 0, "host-1"),
            CommittedOffset(TOPIC, 7, 0, -1, "host-1"),
            CommittedOffset(OTHER, 3, 2**63 - 1, 2**31 - 1, ""),
            CommittedOffset(TOPIC, 2, -1, -1, "ß"),
        ),
    ),
    CommitOffsets("simple", "", EPOCH_NONE, (CommittedOffset(TOPIC, 3, 5, -1, ""),)),
    DeleteOffsets("billing", ((TOPIC, 0), (TOPIC, 1), (OTHER, 9))),
    ExpireOffsets("billing", 604_800_000, ((OTHER, 9), (TOPIC, 5), (TOPIC, 2))),
    SetGroupConfigs("billing", (("consumer.session.timeout.ms", "50000"), ("x", None), ("y", ""))),
    SetTopicConfigs(TOPIC, (("retention.ms", "1000"), ("cleanup.policy", None))),
)

TRANSACTION_COMMANDS: tuple[Command, ...] = (
    InitProducer("orders", 60_000, -1, -1),
    InitProducer("orders", 900_000, 2**62, 32_766),
    AddToTransaction(
        "orders", 1000, 3, 7, 42, ((TOPIC, 0), (TOPIC, 1), (OTHER, 9)), ("billing", "audit")
    ),
    CommitTransactionOffsets(
        "billing",
        "m-1",
        8,
        1000,
        3,
        7,
        (CommittedOffset(TOPIC, 0, 1_000_000, 0, ""), CommittedOffset(OTHER, 3, 5, -1, "host-1")),
    ),
    CommitTransactionOffsets("billing", "", EPOCH_NONE, 1000, 3, OF_EPOCH, ()),
    EndTransaction("orders", 1000, 3, commit=True, proof=None),
    EndTransaction("orders", 1000, 3, commit=False, proof=None),
    EndTransaction(
        "orders",
        1000,
        3,
        commit=True,
        proof=ClientProof(7, 42, position(1, 900), challenged=False),
    ),
    EndTransaction(
        "orders",
        1000,
        3,
        commit=False,
        proof=ClientProof(7, 42, position(1, 900), challenged=True),
    ),
    GiveUpTransaction("orders", 1000, 3, 7, timed_out=True),
    GiveUpTransaction("orders", 1000, 3, 7, timed_out=False),
    ExpireTransactionalIds(604_800_000, ("orders", "payments")),
    ExpireProducers(
        86_400_000,
        (
            PartitionProducers(TOPIC, 0, (1000, 1001, 7)),
            PartitionProducers(TOPIC, 5, ()),
            PartitionProducers(OTHER, 0, (2**63 - 1,)),
        ),
    ),
    SetFeatureLevel("transaction.version", 2),
)

JOB_COMMANDS: tuple[Command, ...] = (
    ClaimJobs((JobKind.SNAPSHOT, JobKind.MERGE, JobKind.COLLECT)),
    ReleaseJobs((JobKind.RETENTION,), INCARNATION_NONE),
    ReleaseJobs((JobKind.SPILL, JobKind.COMPACT), INCARNATION),
    ReportJob(JobKind.MERGE, done=70_000, total=0, running=True, note="bytes"),
    ReportJob(JobKind.COMPACT, done=3, total=9, running=False, note=""),
    RequestJob(JobKind.SNAPSHOT),
    BeginSnapshot(),
    PublishSnapshot(position(1, 900), DIGEST, "snapshots/0001/manifest"),
    TrimLogs((Trim(TOPIC, 0, 5), Trim(TOPIC, 3, -1), Trim(OTHER, 1, 2**40))),
    ExpireRecords(
        position(1, 800),
        (Expiry(TOPIC, 0, 100, 604_800_000, -1), Expiry(OTHER, 9, 7, -1, 1 << 30)),
    ),
    DropRows(((TOPIC, 0), (TOPIC, 1), (OTHER, 4))),
    ReplaceRows(
        JobKind.MERGE,
        4,
        9000,
        (
            Replacement(TOPIC, 0, 10, 40, 5, DIGEST, (NewSpan(8, 700, 10, NOW_MS),)),
            Replacement(
                OTHER,
                2,
                0,
                2**40,
                600,
                DIGEST,
                (NewSpan(708, 90, 0, -1), NewSpan(798, 8000, 50, NOW_MS)),
            ),
        ),
    ),
    ReplaceRows(
        JobKind.COMPACT,
        5,
        80,
        (Replacement(TOPIC, 1, 5, 9, 2, DIGEST, (NewSpan(8, 61, 5, NOW_MS),), clean_to=9),),
        seen=position(1, 790),
    ),
    SpillRows(
        0,
        5000,
        (
            NewPage(TOPIC, 0, 0, 40, 64, 20, 900, DIGEST),
            NewPage(TOPIC, 1, 7, 10_000, 1000, 920, 4000, DIGEST),
        ),
    ),
    RecallPage(TOPIC, 1, 7, b"the body of a page"),
    DoomObjects(
        60_000,
        (
            ObjectId(INCARNATION, 3),
            ObjectId(INCARNATION, 4),
            ObjectId(INCARNATION, 1, ObjectKind.SEGMENT),
            ObjectId(Incarnation(77), 2**32 - 1, ObjectKind.INDEX),
        ),
    ),
    ForgetObjects((ObjectId(INCARNATION, 3), ObjectId(INCARNATION, 4))),
)

TABLE_COMMANDS: tuple[Command, ...] = (
    ReportExport(TOPIC, (ExportEnd(0, 5), ExportEnd(300, 2**40))),
    RegisterSchema("events-value", SchemaKind.AVRO, b"text", FINGERPRINT, (), POSITION_ZERO),
    RegisterSchema(
        "events-key",
        SchemaKind.PROTOBUF,
        b"more text",
        FINGERPRINT,
        (Reference("common.proto", "common", 3), Reference("a.proto", "other", 300)),
        position(1, 900),
        schema_id=70_000,
        version=9,
    ),
    DeleteSubject("events-value", -1, permanent=False),
    DeleteSubject("events-value", 7, permanent=True),
    SetSubjectRules("", "FULL", None),
    SetSubjectRules("events-value", None, ""),
    GrowTopic(TOPIC, 300),
    ExpireHeldRecords(
        position(1, 800),
        (
            HeldExpiry(TOPIC, 0, 100, 604_800_000, -1, 700_000_000),
            HeldExpiry(OTHER, 9, 7, -1, 5, 6),
        ),
    ),
)

CREDENTIAL_COMMANDS: tuple[Command, ...] = (
    UpsertScramCredential(
        "alice",
        ScramMechanism.SCRAM_SHA_256,
        4096,
        b"salt",
        bytes(range(32)),
        bytes(range(100, 132)),
    ),
    UpsertScramCredential(
        "User ß",
        ScramMechanism.SCRAM_SHA_512,
        16384,
        bytes(200),
        bytes(range(64)),
        bytes(range(100, 164)),
    ),
    DeleteScramCredential("alice", ScramMechanism.SCRAM_SHA_512),
)
ACL = AclBinding(
    ResourceType.TOPIC,
    PatternType.PREFIXED,
    "orders",
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
OTHER_ACL = AclBinding(
    ResourceType.CLUSTER,
    PatternType.LITERAL,
    "kafka-cluster",
    "User:CN=ß,O=c",
    "10.0.0.7",
    Operation.TWO_PHASE_COMMIT,
    Permission.DENY,
)
TOKEN_COMMANDS: tuple[Command, ...] = (
    CreateDelegationToken(
        "mA8x_token-id", "User:alice", "User:ß", ("User:bob", "User:c,d"), 100, 700_000_000, 1 << 41
    ),
    CreateDelegationToken("t", "User:a", "User:a", (), -1, 0, 0),
    ExtendDelegationToken("mA8x_token-id", 1_700_000_000_000),
    RemoveDelegationTokens(("mA8x_token-id", "t"), 1_700_000_000_000),
)
CONFIG_COMMANDS: tuple[Command, ...] = (
    AlterClientQuotas(
        (
            QuotaChange((EntityPart(EntityType.USER, "ß"),), Quota.PRODUCER_BYTE_RATE, 1024.0),
            QuotaChange(
                (EntityPart(EntityType.USER, None), EntityPart(EntityType.CLIENT_ID, "c,d")),
                Quota.REQUEST_PERCENTAGE,
                0.5,
            ),
            QuotaChange((EntityPart(EntityType.IP, "::1"),), Quota.CONNECTION_CREATION_RATE, None),
        )
    ),
    ChangeConfigs(
        ConfigKind.BROKER, "", (("log.retention.ms", "1000"), ("message.max.bytes", None))
    ),
    ChangeConfigs(ConfigKind.CLIENT_METRICS, "slow", (("metrics", "*"),)),
    ReportUsage(
        (
            UsageRow(Quota.PRODUCER_BYTE_RATE, "ß", "", 1024.0),
            UsageRow(Quota.REQUEST_PERCENTAGE, "", "c,d", 0.5),
        )
    ),
    ReportUsage(()),
)
RIGHTS_COMMANDS: tuple[Command, ...] = (
    CreateAcls((ACL, OTHER_ACL)),
    DeleteAcls((OTHER_ACL,)),
    ConfirmRights(position(1, 700)),
)

FAMILIES: Mapping[str, Sequence[Command]] = {
    "plain": PLAIN_COMMANDS,
    "groups": GROUP_COMMANDS,
    "transactions": TRANSACTION_COMMANDS,
    "jobs": JOB_COMMANDS,
    "tables": TABLE_COMMANDS,
    "credentials": CREDENTIAL_COMMANDS,
    "rights": RIGHTS_COMMANDS,
    "tokens": TOKEN_COMMANDS,
    "configs": CONFIG_COMMANDS,
}
COMMANDS = (*chain.from_iterable(FAMILIES.values()), *MORE_COMMANDS)

# Outcomes of one entry, no two alike: of every kind, and of each kind those that differ in one field.

NONE = ErrorCode.NONE
OTHER_ID = TopicId(bytes(15) + b"\1")
MARKED = Marked(TopicId(bytes(16)), 0, 5)

OUTCOMES: list[tuple[Outcome, ...]] = [
    (),
    (Done(),),
    (Done(), Done()),
    (Rejected(ErrorCode.INVALID_REQUEST),),
    (Rejected(ErrorCode.UNKNOWN_SERVER_ERROR),),
    (Opened(Incarnation(1), 2, 3),),
    (Opened(Incarnation(1), 3, 2),),
    (TopicCreated(TopicId(bytes(16))),),
    (TopicCreated(OTHER_ID),),
    (ProducerIdsAllocated(0, 10),),
    (ProducerIdsAllocated(10, 0),),
    (ChunkCommitted(()),),
    (ChunkCommitted((ItemResult(NONE, 0, 0),)),),
    (ChunkCommitted((ItemResult(NONE, 1, 0),)),),
    (ChunkCommitted((ItemResult(NONE, 0, 1),)),),
    (ChunkCommitted((ItemResult(NONE, 0, 0, duplicate=True),)),),
    (ChunkCommitted((ItemResult(NONE, 0, 0, timestamp_max=5),)),),
    (ChunkCommitted((ItemResult(NONE, 0, 0), ItemResult(NONE, 0, 0))),),
    (ChunkCommitted((ItemResult(NONE, 0, 0),)), ChunkCommitted((ItemResult(NONE, 0, 0),))),
    (Pinned(Position(5), 6),),
    (Pinned(Position(6), 5),),
    (ShardsClaimed(()),),
    (ShardsClaimed((0,)),),
    (ShardsClaimed((1, 63)),),
    (OffsetsCommitted(()),),
    (OffsetsCommitted((NONE,)),),
    (OffsetsCommitted((NONE, ErrorCode.UNKNOWN_TOPIC_ID)),),
    (OffsetsCommitted((ErrorCode.UNKNOWN_TOPIC_ID, NONE)),),
    (OffsetsCommitted((NONE,)), OffsetsCommitted((NONE,))),
    (ProducerInitialized(5, 0),),
    (ProducerInitialized(0, 5),),
    (ProducerInitialized(5, 0, (MARKED,)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT),),
    (TransactionEnded(5, 0, State.COMPLETE_ABORT),),
    (TransactionEnded(5, 1, State.COMPLETE_COMMIT),),
    (TransactionEnded(6, 0, State.COMPLETE_COMMIT),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED,)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED._replace(partition=1),)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED._replace(offset=6),)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED._replace(topic_id=OTHER_ID),)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED, MARKED)),),
    (JobsClaimed(()),),
    (JobsClaimed((JobKind.MERGE,)),),
    (JobsClaimed((JobKind.SPILL,)),),
    (LogsTrimmed(()),),
    (LogsTrimmed((Trimmed(NONE, 5),)),),
    (LogsTrimmed((Trimmed(NONE, 6),)),),
    (LogsTrimmed((Trimmed(ErrorCode.POLICY_VIOLATION, 5),)),),
    (LogsTrimmed((Trimmed(NONE, 5), Trimmed(NONE, 5))),),
    (RowsMoved(()),),
    (RowsMoved((NONE,)),),
    (RowsMoved((ErrorCode.INVALID_REQUEST,)),),
    (RowsMoved((NONE, NONE)),),
    (ObjectsDoomed(()),),
    (ObjectsDoomed((ObjectId(Incarnation(9), 5),)),),
    (ObjectsDoomed((ObjectId(Incarnation(9), 6),)),),
    (ObjectsDoomed((ObjectId(Incarnation(8), 5),)),),
    (ObjectsDoomed((ObjectId(Incarnation(9), 5, ObjectKind.SEGMENT),)),),
    (ObjectsDoomed((ObjectId(Incarnation(9), 5), ObjectId(Incarnation(9), 5))),),
    (SchemaRegistered(5, 1),),
    (SchemaRegistered(5, 2),),
    (SchemaRegistered(6, 1),),
    (SubjectDeleted(()),),
    (SubjectDeleted((1,)),),
    (SubjectDeleted((1, 2)),),
    (SubjectDeleted((1,)), SubjectDeleted((2,))),
    (AclsDeleted(()),),
    (AclsDeleted((True,)),),
    (AclsDeleted((False,)),),
    (AclsDeleted((True, False)),),
    (Voided(),),
]
