"""Random histories of any commands from a seed: what machines replay and snapshots keep.

Fields are drawn by their names and types, in view of the machine, so that most commands find what
they name. A command that is declared is drawn without a line here; it gets one when its fields have to
fit each other.

`python -m tests.coordinator.histories SEED` prints the digests on the way, and that of a snapshot in the
end: what a replica under another hash seed must reach as well.
"""

import random
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache, partial
from hashlib import blake2b, sha256
from itertools import takewhile
from types import UnionType
from typing import Any, Final, get_args, get_origin

from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.config_commands import (
    ConfigCommand,
)
from coordinator.commands.credential_commands import (
    CredentialCommand,
    DeleteScramCredential,
    UpsertScramCredential,
)
from coordinator.commands.entries import (
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Open,
    PurgePartitions,
    Tick,
)
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    GroupCommand,
    GroupKind,
    GroupMember,
)
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    DropRows,
    ForgetObjects,
    JobCommand,
    JobKind,
    NewPage,
    NewSpan,
    PublishSnapshot,
    RecallPage,
    Replacement,
    ReplaceRows,
    SpillRows,
)
from coordinator.commands.loss_commands import DeclareLost
from coordinator.commands.rights_commands import AclBinding
from coordinator.commands.table_commands import (
    DeleteSubject,
    ExpireHeldRecords,
    ExportEnd,
    GrowTopic,
    Reference,
    RegisterSchema,
    ReportExport,
    SchemaKind,
    SetSubjectRules,
    TableCommand,
)
from coordinator.commands.token_commands import (
    RemoveDelegationTokens,
    TokenCommand,
)
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    CommitTransactionOffsets,
    EndTransaction,
    ExpireTransactionalIds,
    InitProducer,
)
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump
from coordinator.tables.groups import shard_of
from coordinator.tables.partition import Partition
from coordinator.tables.transactions import TransactionRow
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Incarnation, Position, TopicId
from storage.formats.page import decode_rows, digest, digest_of_rows, encode_rows
from storage.formats.spans import Item, Page
from tests.coordinator.administrative import DRAWN, USERS
from tests.coordinator.machine.story import Story, opening
from tests.coordinator.values import bare_of, fields_of
from txn.producers import describe
from txn.transactions import NO_TRANSACTION, OF_EPOCH

TOPIC_NAMES = ("orders", "clicks", "orders.eu", "orders_eu", "bad name", "logs")
GROUP_IDS = ("billing", "audit", "search", "simple")
MEMBER_IDS = ("m1", "m2", "m3", "m4")
TRANSACTIONAL_IDS = ("pay", "ship", "bill")
SUBJECTS = ("events-value", "events-key", "common")

ACLS = tuple(
    AclBinding(ResourceType.TOPIC, pattern, name, "User:a", "*", Operation.READ, permission)
    for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    for name in ("", "a", "ab")
    for permission in (Permission.DENY, Permission.ALLOW)
)

ALL: Final[tuple[type, ...]] = get_args(Command)
OF_TABLES: Final = {*get_args(TableCommand)}
OF_JOBS: Final = {*get_args(JobCommand), ExpireHeldRecords}
OF_GROUPS: Final = {*get_args(GroupCommand), CommitTransactionOffsets}
OF_USERS: Final = {
    *get_args(CredentialCommand),
    *get_args(TokenCommand),
    *get_args(ConfigCommand),
}
WITHOUT_JOBS: Final = tuple(kind for kind in ALL if kind not in OF_TABLES | OF_JOBS | OF_USERS)
"""Rows stay where they were committed."""
WEIGHTS: Final[Mapping[type, float]] = {
    Open: 3,
    Close: 0.5,
    CommitChunk: 25,
    CreateTopic: 2,
    DeleteTopic: 0.3,
    ClaimShards: 3,
    ChangeGroup: 8,
    CommitOffsets: 8,
    InitProducer: 2,
    AddToTransaction: 5,
    CommitTransactionOffsets: 4,
    EndTransaction: 5,
    ExpireTransactionalIds: 0.3,
    ClaimJobs: 3,
    PublishSnapshot: 2,
    ReplaceRows: 12,
    DoomObjects: 2,
    ForgetObjects: 2,
    DropRows: 3,
    ReportExport: 4,
    RegisterSchema: 10,
    DeleteSubject: 6,
    SetSubjectRules: 3,
    GrowTopic: 2,
    ExpireHeldRecords: 3,
    UpsertScramCredential: 0.5,
    DeleteScramCredential: 0.2,
    RemoveDelegationTokens: 0.2,
}
"""How often a kind is drawn; the others 1."""


class History:
    """A story whose every step is drawn; all agents share the numbers of chunks."""

    def __init__(self, rng: random.Random, kinds: tuple[type, ...]) -> None:
        self.rng = rng
        self.kinds, self.weights = kinds, [WEIGHTS.get(kind, 1) for kind in kinds]
        self.story = Story()
        self.topics: list[TopicId] = [TopicId(bytes(16))]
        self.sequences: dict[tuple[TopicId, int, int], int] = {}
        self.sent: dict[tuple[TopicId, int], list[Item]] = {}
        self.bodies: dict[bytes, bytes] = {}
        """Of pages, by digest."""
        self.opened: list[Incarnation] = [self.story.open("agent-0")]
        self.look()

    @property
    def machine(self) -> Machine:
        return self.story.machine

    def step(self) -> None:
        """An entry: mostly of one command, and of an agent that may write it."""
        first = self._command()
        if isinstance(first, Open):
            self.story.try_open(first, clock_ms=self._clock())
            self.opened = [*self.story._n]
            return
        writer = self._writer(first)
        more = [self._command() for _ in range(self.rng.choice([0, 0, 0, 0, 1, 2]))]
        commands = [first, *[each for each in more if not isinstance(each, Open)]]
        self.story.do_all(writer, *commands, clock_ms=self._clock())

    def _writer(self, command: Command) -> Incarnation:
        live = [row.incarnation for row in self.machine.incarnations]
        if not live or self.rng.random() < 0.03:
            # Agents that were replaced or closed may still try.
            return self.rng.choice(self.opened)
        drawn = self.rng.choice(live)
        if self.rng.random() < 0.1:
            return drawn
        if type(command) in OF_GROUPS and not isinstance(command, ClaimShards):
            return self.machine.groups.holder(shard_of(self.group_id)) or drawn
        if type(command) in OF_JOBS:
            holders = [self.machine.jobs.get(kind).holder for kind in JobKind]
            return self.rng.choice([each for each in holders if each in live] or [drawn])
        return drawn

    def _clock(self) -> int:
        self.story.clock_ms += self.rng.randrange(-50, 200)
        return self.story.clock_ms

    # What a command is about.

    def look(self) -> None:
        """Draws what the fields of a command name together."""
        rng = self.rng
        self.place = self.any_place()
        self.group_id = rng.choice(GROUP_IDS)
        self.member = self._member()
        self.transactional_id = rng.choice(TRANSACTIONAL_IDS)
        self.transaction = self.machine.transactions.get(self.transactional_id)
        self.producer = (-1, -1)
        if self.transaction is not None:
            known = self.transaction.txn_metadata
            self.producer = (known.producer_id, known.epoch - (rng.random() < 0.05))

    @property
    def partition(self) -> Partition | None:
        return self.machine.partitions.get(*self.place)

    def any_place(self) -> tuple[TopicId, int]:
        topics = list(self.machine.topics)
        if not topics or self.rng.random() < 0.1:
            return self.topic_id(), self.rng.randrange(5)
        topic = self.rng.choice(topics)
        return topic.topic_id, self.rng.randrange(min(topic.partition_count, 2))

    def topic_id(self) -> TopicId:
        """Of a topic that exists, or did, or never."""
        self.topics[1:] = self.topics[1:][-4:]
        self.topics += [topic.topic_id for topic in self.machine.topics]
        return self.rng.choice(self.topics)

    def _member(self) -> tuple[str, int]:
        group = self.machine.groups.get(self.group_id)
        if group is None or not group.members:
            return "", EPOCH_NONE
        member_id = self.rng.choice(["m9", *group.members, *group.members])
        epoch = group.members[member_id].epoch if member_id in group.members else 1
        return member_id, epoch + self.rng.choice([0, 0, 0, 1])

    def instance(self, *, to_join: bool = False) -> int:
        if self.transaction is None:
            return 0
        behind = not self.transaction.is_ongoing if to_join else self.rng.random() < 0.1
        return self.transaction.txn_metadata.instance + behind

    def some_offset(self) -> int:
        """Where a row of the partition begins, or its end, or beyond."""
        row = self.partition
        if row is None:
            return self.rng.randrange(2)
        if not row.row_count or self.rng.random() < 0.2:
            return row.end_offset + self.rng.choice([0, 0, 1])
        return row.row(self.rng.randrange(row.row_count)).base_offset

    # Commands, by their fields.

    def _command(self) -> Command:
        self.look()
        (kind,) = self.rng.choices(self.kinds, self.weights)
        return FITTED[kind](self) if kind in FITTED else self._built(kind)

    def _built(self, kind: type) -> Any:
        fields = cached_fields(kind)
        if "partition" in fields and "topic_id" in fields:
            self.place = self.any_place()
        drawn = {name: self._drawn(hint, name, kind) for name, hint in fields.items()}
        return kind(**drawn)

    def _drawn(self, hint: Any, name: str, kind: type) -> Any:
        named = FIELDS.get(f"{kind.__name__}.{name}") or FIELDS.get(name)
        if named is not None:
            return named(self)
        bare = bare_of(hint)
        parts = get_args(bare)
        if get_origin(bare) is UnionType:
            return None if self.rng.random() < 0.4 else self._drawn(parts[0], "", kind)
        if get_origin(bare) is tuple:
            return tuple(self._drawn(parts[0], "", kind) for _ in range(self.rng.randrange(4)))
        if bare in BY_TYPE:
            return self.rng.choice(BY_TYPE[bare])
        if issubclass(bare, IntEnum):
            return self.rng.choice([*bare])
        return self._built(bare)

    # Commands whose fields fit each other.

    def producer_init(self) -> InitProducer:
        producer = self.rng.choice([(-1, -1), (-1, -1), self.producer])
        return InitProducer(self.transactional_id, 1000, *producer)

    def opening(self) -> Open:
        wanted = self.rng.choice([-1, -1, -1, self.rng.randrange(4)])
        name = f"agent-{self.rng.randrange(4)}"
        return opening(name, node_id=wanted, zone=self.rng.choice("xy"))

    def close(self) -> Command:
        rows = list(self.machine.incarnations)
        row = self.rng.choice(rows) if len(rows) > 1 else None
        return Close(row.incarnation, row.last_n) if row is not None else Tick()

    def purge(self) -> Command:
        return self.machine.next_purge() or PurgePartitions(self.topic_id(), 0, 2)

    def change_group(self) -> ChangeGroup:
        rng = self.rng
        group = self.machine.groups.get(self.group_id)
        before = GROUP_NEW if group is None else group.epoch
        known = [] if group is None else [*group.members]
        epoch = max(before, 0) + rng.choice([0, 1])
        put = [
            GroupMember(member_id, epoch, rng.randbytes(rng.randrange(9)))
            for member_id in rng.sample(MEMBER_IDS, rng.randrange(3))
        ]
        return ChangeGroup(
            group_id=self.group_id,
            kind=rng.choice([*GroupKind]),
            epoch_before=before + rng.choice([0, 0, 0, 0, 1]),
            epoch=epoch,
            body=rng.randbytes(rng.randrange(20)),
            put=tuple(put),
            removed=tuple(rng.sample(known, rng.randrange(len(known) + 1))),
        )

    def chunk(self) -> CommitChunk:
        rng = self.rng
        at = rng.randrange(3)
        spans = []
        for _ in range(rng.randrange(1, 4)):
            start = at
            place = self.any_place()
            items = tuple(self._item(place) for _ in range(rng.randrange(1, 5)))
            at += sum(item.skip + item.length for item in items)
            spans.append(ChunkSpan(*place, start, items))
        self.story.chunks += rng.choice([1, 1, 1, 3])
        return CommitChunk(self.story.chunks, at, tuple(spans))

    def _item(self, place: tuple[TopicId, int]) -> Item:
        rng = self.rng
        sent = self.sent.setdefault(place, [])
        if sent and rng.random() < 0.2:
            return rng.choice(sent[-7:])
        records = rng.randrange(1, 5)
        timestamp = rng.choice([-1, self.story.clock_ms, rng.randrange(10_000)])
        item = Item(rng.choice([0, 0, 0, 9]), rng.randrange(1, 99), records, timestamp)
        if rng.random() < 0.3:
            return item
        if (row := self.machine.transactions.get(rng.choice(TRANSACTIONAL_IDS))) is not None:
            sent.append(self._transactional(row, place, item))
            return sent[-1]
        producer_id, epoch = rng.randrange(3), int(len(sent) > 20)
        sequence = self.sequences.get((*place, producer_id), 0)
        if rng.random() < 0.05:
            sequence = rng.randrange(9)
        if epoch and not any(item[4:6] == (producer_id, 1) for item in sent):
            sequence = 0
        self.sequences[*place, producer_id] = sequence + records
        sent.append(Item(*item[:4], producer_id, epoch, sequence))
        return sent[-1]

    def _transactional(self, row: TransactionRow, place: tuple[TopicId, int], item: Item) -> Item:
        """Mostly what the producer would send next, in its transaction or outside."""
        known = row.txn_metadata
        partition = self.machine.partitions.get(*place)
        window = (partition.windows or {}).get(known.producer_id) if partition else None
        sequence = 0
        if window is not None and describe(window).epoch == known.epoch:
            sequence = describe(window).last_sequence + 1
        instances = [OF_EPOCH, OF_EPOCH, known.instance, known.instance, NO_TRANSACTION]
        instance = self.rng.choice(instances)
        return Item(*item[:4], known.producer_id, known.epoch, sequence, instance)

    def publication(self) -> Command:
        begun = self.machine.snapshots.begun
        if begun is None:
            return BeginSnapshot()
        return PublishSnapshot(begun.position, begun.digest, f"snapshots/{begun.position}")

    def moved(self) -> Command:
        """Up to four rows into a page or a span of a segment; or those of a page come back."""
        rng, machine = self.rng, self.machine
        written = [row for row in machine.partitions.written() if row.row_count]
        writer = machine.incarnations.get(machine.jobs.get(JobKind.MERGE).holder)
        if not written or writer is None:
            return ClaimJobs((*JobKind,))
        row = rng.choice(written)
        first = rng.randrange(row.row_count)
        found = [row.row(at) for at in range(first, min(first + 4, row.row_count))]
        place = (row.topic_id, row.partition)
        if isinstance(found[0], Page):
            return RecallPage(*place, found[0].base_offset, self.bodies[found[0].digest])
        rows = [*takewhile(lambda each: not isinstance(each, Page), found)]
        body = encode_rows(rows)
        base_offset, next_offset = rows[0].base_offset, rows[-1].next_offset
        named = (*place, base_offset, next_offset, len(rows))
        if rng.random() < 0.5:
            self.bodies[digest(body)] = body
            page = NewPage(*named, 3, len(body), digest(body))
            return SpillRows(writer.index_last + rng.choice([1, 1, 3]), len(body) + 3, (page,))
        spans = (NewSpan(0, 10, base_offset, rng.randrange(10_000)),)
        job = rng.choice([JobKind.MERGE, JobKind.COMPACT])
        clean_to = next_offset if job is JobKind.COMPACT else -1
        moved = Replacement(*named, digest(body), spans, clean_to)
        return ReplaceRows(job, writer.segment_last + rng.choice([1, 1, 2]), 10, (moved,))

    def lost(self) -> Command:
        """Up to three rows, whatever they are; rarely others than were seen."""
        rng, machine = self.rng, self.machine
        written = [row for row in machine.partitions.written() if row.row_count]
        writer = next(iter(machine.incarnations), None)
        if not written or writer is None:
            return Tick()
        row = rng.choice(written)
        found = row.rows_from(rng.randrange(row.end_offset), rng.randrange(1, 4))
        body = b""
        if isinstance(found[0], Page) and rng.random() < 0.5:
            body, page = self.bodies[found[0].digest], found[0]
            inside = decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)
            found = [*inside[rng.randrange(len(inside)) :][:2]]
        seen = rng.choice([bytes(16), *[digest_of_rows(found)] * 5])
        ends = found[0].base_offset, found[-1].next_offset
        named = (row.topic_id, row.partition, *ends, len(found), seen)
        return DeclareLost(*named, body, writer.segment_last + rng.choice([1, 1, 2]), 20, 4, 10)

    def doomed(self) -> DoomObjects:
        free = [each.object_id for each in self.machine.objects.unreferenced()]
        return DoomObjects(self.rng.choice([0, 0, 100]), tuple(free[:3]))

    def forgotten(self) -> ForgetObjects:
        return ForgetObjects(tuple(self.machine.objects.doomed())[: self.rng.randrange(3)])

    def schema(self) -> RegisterSchema:
        rng, machine = self.rng, self.machine
        references: tuple[Reference, ...] = ()
        if rng.random() < 0.3:
            to = rng.choice(SUBJECTS)
            versions = machine.schemas.versions(to, deleted=True)
            references = (Reference("a", to, rng.choice([1, *versions])),)
        body = rng.choice([b"a", b"bb", b"ccc", b"dddd", b"eeeee", b"ffffff"])
        seen = rng.choice([0, machine.position, machine.position, machine.position - 30])
        return RegisterSchema(
            rng.choice(SUBJECTS),
            rng.choice([*SchemaKind]),
            body,
            sha256(body + repr(references).encode()).digest(),
            references,
            Position(max(seen, 0)),
            schema_id=rng.choice([0, 0, 0, rng.randrange(9)]),
            version=rng.choice([0, 0, 0, rng.randrange(9)]),
        )


def _by_chance(draw: Callable[[random.Random], Command], history: History) -> Command:
    return draw(history.rng)


FITTED: Final[Mapping[type, Callable[[History], Command]]] = {
    Open: History.opening,
    Close: History.close,
    PurgePartitions: History.purge,
    ChangeGroup: History.change_group,
    InitProducer: History.producer_init,
    CommitChunk: History.chunk,
    PublishSnapshot: History.publication,
    ReplaceRows: History.moved,
    SpillRows: History.moved,
    RecallPage: History.moved,
    DeclareLost: History.lost,
    DoomObjects: History.doomed,
    ForgetObjects: History.forgotten,
    RegisterSchema: History.schema,
    **{kind: partial(_by_chance, draw) for kind, draw in DRAWN.items()},
}


def one_of(*values: Any) -> Callable[[History], Any]:
    return lambda history: history.rng.choice(values)


FIELDS: Final[Mapping[str, Callable[[History], Any]]] = {
    "ClaimJobs.jobs": one_of((*JobKind,)),
    "ClaimShards.shards": lambda history: tuple(range(history.rng.randrange(2), GROUP_SHARDS)),
    "CommitTransactionOffsets.epoch": one_of(EPOCH_NONE),
    "CommitTransactionOffsets.member_id": one_of(""),
    "CommitTransactionOffsets.instance": lambda history: history.rng.choice(
        [OF_EPOCH, history.instance()]
    ),
    "AddToTransaction.instance": lambda history: history.instance(to_join=True),
    "CreateTopic.configs": one_of((("a", "b"),)),
    "DeleteSubject.version": one_of(-1, 1, 2, 3, 4),
    "Expiry.retention_ms": one_of(-1, 10),
    "GrowTopic.partition_count": one_of(2, 3, 4, 5, 6),
    "VoidEntry.digest": one_of(bytes(16)),
    "ReportExport.ends": lambda history: (ExportEnd(history.place[1], history.some_offset()),),
    "bindings": lambda history: tuple(
        history.rng.choice(ACLS) for _ in range(history.rng.randrange(3))
    ),
    "challenged": lambda history: history.rng.random() < 0.9,
    "clock": lambda history: history.machine.position,
    "compatibility": one_of(None, "", "FULL", "NONE", "HALF"),
    "configs": lambda history: tuple(
        (name, history.rng.choice([None, "1", "2"])) for name in history.rng.sample("abc", 2)
    ),
    "connection": one_of(1),
    "count": one_of(0, 1, 1000),
    "epoch": lambda history: history.member[1],
    "feature": one_of("transaction.version"),
    "group_id": lambda history: history.group_id,
    "group_ids": lambda history: tuple(history.rng.sample(GROUP_IDS, history.rng.randrange(2))),
    "instance": History.instance,
    "jobs": lambda history: tuple(sorted(history.rng.sample([*JobKind], 2))),
    "leader_epoch": one_of(-1),
    "level": one_of(0, 1, 2, 3),
    "member_id": lambda history: history.member[0],
    "mode": one_of(None, "", "READONLY"),
    "name": one_of(*TOPIC_NAMES),
    "offset": History.some_offset,
    "partition": lambda history: history.place[1],
    "partition_count": one_of(0, 1, 2, 3, 5),
    "partitions": lambda history: tuple(
        history.any_place() for _ in range(history.rng.randrange(4))
    ),
    "producer_epoch": lambda history: history.producer[1],
    "producer_id": lambda history: history.producer[0],
    "producer_ids": one_of((0, 1, 2, 3, 4, 5)),
    "retention_bytes": one_of(-1, 10),
    "retention_ms": one_of(10, 1000),
    "seen": lambda history: history.machine.position,
    "shards": lambda history: tuple(sorted(history.rng.sample(range(GROUP_SHARDS), 30))),
    "subject": one_of("", *SUBJECTS),
    "successor": lambda history: history.rng.choice([INCARNATION_NONE, *history.opened]),
    "topic_id": lambda history: history.place[0],
    "user": one_of(*USERS),
    "transactional_id": lambda history: history.transactional_id,
    "transactional_ids": one_of(TRANSACTIONAL_IDS),
}
"""What has a meaning, by field of a kind, or of any."""
BY_TYPE: Final[Mapping[Any, tuple[Any, ...]]] = {
    int: (0, 1, 5, 10, 1000, 5000),
    bool: (False, True),
    str: ("", "", "tag"),
    bytes: (b"", b"body"),
    Position: (POSITION_ZERO,),
    Incarnation: (INCARNATION_NONE,),
}

cached_fields = cache(fields_of)


def history(seed: int, *, steps: int, kinds: tuple[type, ...] = ALL) -> Story:
    drawn = History(random.Random(seed), kinds)
    for _ in range(steps):
        drawn.step()
    return drawn.story


def snapshot_digest(machine: Machine) -> str:
    return blake2b(b"".join(dump(machine))).hexdigest()


def main() -> None:
    machine = Machine()
    for place, entry in history(int(sys.argv[1]), steps=400).log:
        machine.apply(place, decode_entry(encode_entry(entry)))
        print(machine.digest().hex())
    print(snapshot_digest(machine))


if __name__ == "__main__":
    main()
