"""Random histories of commands from a seed, and a machine that has applied them.

`python -m tests.coordinator.machine.histories SEED` prints the digests on the way, and all of the state in
the end: what a replica under another hash seed must reach as well.
"""

import random
import sys

from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import (
    AllocateProducerIds,
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Pin,
    PurgePartitions,
    Tick,
    Unpin,
)
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupCommand,
    GroupKind,
    GroupMember,
    ReleaseShards,
    SetGroupConfigs,
    SetTopicConfigs,
)
from coordinator.commands.job_commands import JobKind
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    ClientProof,
    CommitTransactionOffsets,
    EndTransaction,
    ExpireProducers,
    ExpireTransactionalIds,
    GiveUpTransaction,
    InitProducer,
    PartitionProducers,
    SetFeatureLevel,
    TransactionCommand,
)
from coordinator.machine.machine import Machine
from coordinator.tables.groups import shard_of
from coordinator.tables.transactions import TransactionRow
from protocol.types import INCARNATION_NONE, Incarnation, TopicId
from storage.formats.spans import Item
from tests.coordinator.machine.story import Story, opening
from tests.coordinator.tables.group_model import group_state
from txn.producers import describe
from txn.transactions import NO_TRANSACTION, OF_EPOCH

TOPIC_NAMES = ("orders", "clicks", "orders.eu", "orders_eu", "bad name", "logs")
GROUP_IDS = ("billing", "audit", "search", "simple")
MEMBER_IDS = ("m1", "m2", "m3", "m4")
TRANSACTIONAL_IDS = ("pay", "ship", "bill")


class History:
    """A story whose every step is drawn; all agents share the numbers of chunks."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.story = Story()
        self.topics: list[TopicId] = [TopicId(bytes(16))]
        self.sequences: dict[tuple[TopicId, int, int], int] = {}
        self.sent: dict[tuple[TopicId, int], list[Item]] = {}
        self.opened: list[Incarnation] = [self.story.open("agent-0")]

    def step(self) -> None:
        rng, story = self.rng, self.story
        if rng.random() < 0.05:
            name = f"agent-{rng.randrange(4)}"
            wanted = rng.choice([-1, -1, -1, rng.randrange(4)])
            command = opening(name, node_id=wanted, zone=rng.choice("xy"))
            story.try_open(command, clock_ms=self._clock())
            self.opened = list(story._n)
            return
        # Also agents that were replaced or closed: they may still try.
        writer = rng.choice(self.opened)
        if rng.random() < 0.4:
            self._group_step(writer)
            return
        if rng.random() < 0.3:
            command = self._transaction_command(writer)
            if story.machine.incarnations.get(writer) is not None:
                story.do(writer, command, clock_ms=self._clock())
            return
        count = rng.choice([1, 1, 1, 2, 3])
        if story.machine.incarnations.get(writer) is None and rng.random() < 0.95:
            return
        story.do_all(writer, *[self._command(writer) for _ in range(count)], clock_ms=self._clock())

    def _group_step(self, writer: Incarnation) -> None:
        """A command about a group, mostly of the agent that holds its shard."""
        rng, story = self.rng, self.story
        groups = story.machine.groups
        group_id = rng.choice(GROUP_IDS)
        if rng.random() < 0.9:
            writer = groups.holder(shard_of(group_id)) or writer
        if story.machine.incarnations.get(writer) is not None:
            story.do(writer, self._group_command(group_id, writer), clock_ms=self._clock())

    def _group_command(self, group_id: str, writer: Incarnation) -> GroupCommand | SetTopicConfigs:
        rng = self.rng
        if self.story.machine.groups.holder(shard_of(group_id)) is None or rng.random() < 0.05:
            return ClaimShards(tuple(range(rng.randrange(2), GROUP_SHARDS)))
        changes = tuple((name, rng.choice([None, "1", "2"])) for name in rng.sample("abc", 2))
        places = tuple(self._place() for _ in range(rng.randrange(4)))
        match rng.randrange(16):
            case 0:
                shards = range(GROUP_SHARDS)
                successor = rng.choice([INCARNATION_NONE, *self.opened])
                return ReleaseShards(tuple(sorted(rng.sample(shards, 30))), successor)
            case 1:
                return DeleteGroup(group_id, only_without_offsets=rng.random() < 0.5)
            case 2:
                return DeleteOffsets(group_id, places)
            case 3:
                return ExpireOffsets(group_id, rng.randrange(5_000), places)
            case 4:
                return SetGroupConfigs(group_id, changes)
            case 5:
                return SetTopicConfigs(self._topic_id(), changes)
            case 6 | 7 | 8 | 9:
                return self._change_group(group_id)
            case _:
                return self._commit_offsets(group_id)

    def _change_group(self, group_id: str) -> ChangeGroup:
        rng = self.rng
        group = self.story.machine.groups.get(group_id)
        before = GROUP_NEW if group is None else group.epoch
        known = [] if group is None else [*group.members]
        epoch = max(before, 0) + rng.choice([0, 1])
        put = [
            GroupMember(member_id, epoch, rng.randbytes(rng.randrange(9)))
            for member_id in rng.sample(MEMBER_IDS, rng.randrange(3))
        ]
        return ChangeGroup(
            group_id=group_id,
            kind=rng.choice([*GroupKind]),
            epoch_before=before + rng.choice([0, 0, 0, 0, 1]),
            epoch=epoch,
            body=rng.randbytes(rng.randrange(20)),
            put=tuple(put),
            removed=tuple(rng.sample(known, rng.randrange(len(known) + 1))),
        )

    def _commit_offsets(self, group_id: str) -> CommitOffsets:
        rng = self.rng
        group = self.story.machine.groups.get(group_id)
        by = ("", EPOCH_NONE)
        if group is not None and group.members:
            member_id = rng.choice(["m9", *group.members, *group.members])
            epoch = group.members[member_id].epoch if member_id in group.members else 1
            by = (member_id, epoch + rng.choice([0, 0, 0, 1]))
        offsets = tuple(
            CommittedOffset(*self._place(), rng.randrange(99), -1, rng.choice(["", "", "tag"]))
            for _ in range(rng.randrange(5))
        )
        return CommitOffsets(group_id, *by, offsets)

    def _transaction_command(self, writer: Incarnation) -> TransactionCommand:
        rng, machine = self.rng, self.story.machine
        transactional_id = rng.choice(TRANSACTIONAL_IDS)
        row = machine.transactions.get(transactional_id)
        draw = rng.randrange(16)
        if row is None or draw == 0:
            return InitProducer(transactional_id, 1000, -1, -1)
        txn_metadata = row.txn_metadata
        producer = (txn_metadata.producer_id, txn_metadata.epoch - rng.choice([0, 0, 0, 0, 1]))
        instance = txn_metadata.instance + rng.choice([0, 0, 0, 1])
        name = transactional_id
        match draw:
            case 1:
                return InitProducer(name, 1000, *producer)
            case 2 | 3 | 4:
                groups = tuple(rng.sample(GROUP_IDS, rng.randrange(2)))
                places = tuple(self._place() for _ in range(rng.randrange(3)))
                next_one = txn_metadata.instance + (not row.is_ongoing)
                return AddToTransaction(name, *producer, next_one, 1, places, groups)
            case 5 | 6 | 7:
                group_id = rng.choice(GROUP_IDS)
                offsets = tuple(
                    CommittedOffset(*self._place(), rng.randrange(99), -1, rng.choice(["", "tag"]))
                    for _ in range(rng.randrange(4))
                )
                seen = rng.choice([OF_EPOCH, instance])
                return CommitTransactionOffsets(group_id, "", EPOCH_NONE, *producer, seen, offsets)
            case 8 | 9:
                proof = ClientProof(instance, 1, machine.position, rng.random() < 0.9)
                return EndTransaction(name, *producer, rng.random() < 0.5, proof)
            case 10 | 11:
                return EndTransaction(name, *producer, rng.random() < 0.5, None)
            case 12:
                return GiveUpTransaction(name, *producer, instance, timed_out=True)
            case 13:
                return ExpireTransactionalIds(rng.choice([1, 5_000]), TRANSACTIONAL_IDS)
            case 14:
                rows = [PartitionProducers(*self._place(), tuple(range(6))) for _ in range(3)]
                return ExpireProducers(rng.choice([1, 2_000]), tuple(rows))
            case _:
                return SetFeatureLevel("transaction.version", rng.randrange(4))

    def _command(self, writer: Incarnation) -> Command:
        rng = self.rng
        machine = self.story.machine
        draw = rng.randrange(30)
        if draw < 21:
            return self._chunk()
        match draw:
            case 21 | 22:
                return CreateTopic(rng.choice(TOPIC_NAMES), rng.randrange(4), (("a", "b"),))
            case 23 if rng.random() < 0.3:
                return DeleteTopic(self._topic_id())
            case 24:
                purge = PurgePartitions(self._topic_id(), 0, 2)
                return machine.next_purge() or purge
            case 25:
                return AllocateProducerIds(rng.choice([0, 1, 1000]))
            case 26:
                return Pin(rng.choice("abc"), rng.choice([0, 10, 5_000]))
            case 27:
                return Unpin(rng.choice("abc"))
            case 28 if len(machine.incarnations) > 1:
                row = rng.choice(list(machine.incarnations))
                return Close(row.incarnation, row.last_n)
            case _:
                return Tick()

    def _chunk(self) -> CommitChunk:
        rng = self.rng
        at = rng.randrange(3)
        spans = []
        for _ in range(rng.randrange(1, 4)):
            start = at
            topic_id, partition = self._place()
            items = []
            for _ in range(rng.randrange(1, 5)):
                item = self._item(topic_id, partition)
                items.append(item)
                at += item.skip + item.length
            spans.append(ChunkSpan(topic_id, partition, start, tuple(items)))
        self.story.chunks += rng.choice([1, 1, 1, 3])
        return CommitChunk(self.story.chunks, at, tuple(spans))

    def _place(self) -> tuple[TopicId, int]:
        topics = list(self.story.machine.topics)
        if not topics or self.rng.random() < 0.1:
            return self._topic_id(), self.rng.randrange(5)
        topic = self.rng.choice(topics)
        return topic.topic_id, self.rng.randrange(min(topic.partition_count, 2))

    def _topic_id(self) -> TopicId:
        """Of a topic that exists, or did, or never."""
        self.topics[1:] = self.topics[1:][-4:]
        self.topics += [topic.topic_id for topic in self.story.machine.topics]
        return self.rng.choice(self.topics)

    def _item(self, topic_id: TopicId, partition: int) -> Item:
        rng = self.rng
        sent = self.sent.setdefault((topic_id, partition), [])
        if sent and rng.random() < 0.2:
            return rng.choice(sent[-7:])
        skip, length, records = rng.choice([0, 0, 0, 9]), rng.randrange(1, 99), rng.randrange(1, 5)
        timestamp = rng.choice([-1, self.story.clock_ms, rng.randrange(10_000)])
        if rng.random() < 0.3:
            return Item(skip, length, records, timestamp)
        if (row := self.story.machine.transactions.get(rng.choice(TRANSACTIONAL_IDS))) is not None:
            return self._transactional_item(
                row, (topic_id, partition), Item(skip, length, records, timestamp)
            )
        producer_id, epoch = rng.randrange(3), int(len(sent) > 20)
        place = (topic_id, partition, producer_id)
        sequence = self.sequences.get(place, 0) if rng.random() < 0.95 else rng.randrange(9)
        if epoch and not any(item[4:6] == (producer_id, 1) for item in sent):
            sequence = 0
        self.sequences[place] = sequence + records
        sent.append(Item(skip, length, records, timestamp, producer_id, epoch, sequence))
        return sent[-1]

    def _transactional_item(
        self, row: TransactionRow, place: tuple[TopicId, int], plain: Item
    ) -> Item:
        """Mostly what the producer would send next, in its transaction or outside."""
        txn_metadata = row.txn_metadata
        partition = self.story.machine.partitions.get(*place)
        window = (partition.windows or {}).get(txn_metadata.producer_id) if partition else None
        sequence = 0
        if window is not None and describe(window).epoch == txn_metadata.epoch:
            sequence = describe(window).last_sequence + 1
        instances = [
            OF_EPOCH,
            OF_EPOCH,
            txn_metadata.instance,
            txn_metadata.instance,
            NO_TRANSACTION,
        ]
        item = plain._replace(
            producer_id=txn_metadata.producer_id,
            producer_epoch=txn_metadata.epoch,
            first_sequence=sequence,
            instance=self.rng.choice(instances),
        )
        self.sent.setdefault(place, []).append(item)
        return item

    def _clock(self) -> int:
        self.story.clock_ms += self.rng.randrange(-50, 200)
        return self.story.clock_ms


def history(seed: int, *, steps: int) -> Story:
    drawn = History(random.Random(seed))
    for _ in range(steps):
        drawn.step()
    return drawn.story


def state(machine: Machine) -> object:
    """Everything that can be asked of a machine, as values that can be compared."""
    partitions = [
        (
            (row.log_start, row.last_stable, row.end_offset),
            (row.clean_to, row.sums()),
            row.rows_from(0, row.row_count),
            row.windows or {},
            list(row.open_transactions.items()),
            row.aborted(0, row.end_offset),
        )
        for topic in machine.topics
        for row in (
            machine.partitions.get(topic.topic_id, index) for index in range(topic.partition_count)
        )
        if row is not None
    ]
    return (
        machine.position,
        machine.time_ms,
        machine.digest(),
        machine.producer_ids.next,
        list(machine.topics),
        list(machine.incarnations),
        list(machine.pins.alive(machine.time_ms)),
        list(machine.objects.unreferenced()),
        list(machine.objects.doomed()),
        [machine.jobs.get(kind) for kind in JobKind],
        (machine.snapshots.begun, machine.snapshots.published),
        len(machine.objects),
        len(machine.partitions),
        sums(machine),
        (machine.features.transaction_version, machine.features.epoch),
        transaction_state(machine),
        list(machine.partitions.deleted()),
        machine.topics.version,
        group_state(machine.groups),
        partitions,
        list(machine.exports.items()),
        schema_state(machine),
    )


def schema_state(machine: Machine) -> object:
    table = machine.schemas
    subjects = ["", *table.subjects(deleted=True), "common", "events-key", "events-value"]
    return [
        *[(name, table.rules(name), table.changed(name)) for name in subjects],
        *[
            (table.version(name, number, deleted=True), table.referenced_by(name, number))
            for name in subjects
            for number in table.versions(name, deleted=True)
        ],
        *[(row, table.uses(row.schema_id), len(table)) for row in table.rows()],
        table.body_bytes,
    ]


def sums(machine: Machine) -> tuple[int, ...]:
    table = machine.partitions
    return (
        table.row_count,
        table.page_count,
        table.paged_row_count,
        table.data_bytes,
        table.segment_bytes,
        table.window_count,
        table.aborted_count,
    )


def transaction_state(machine: Machine) -> object:
    table = machine.transactions
    rows = [
        (
            row.transactional_id,
            row.txn_metadata,
            (row.timeout_ms, row.started_ms, row.changed_ms, row.ended_at),
            list(row.partitions),
            list(row.group_ids),
        )
        for row in table
    ]
    waiting = [
        (group.group_id, group.offsets.pending())
        for shard in range(GROUP_SHARDS)
        for group in machine.groups.of_shard(shard)
    ]
    return rows, list(table.ongoing), table.participants, table.size, waiting


def main() -> None:
    story = history(int(sys.argv[1]), steps=400)
    machine = Machine()
    for place, entry in story.log:
        machine.apply(place, decode_entry(encode_entry(entry)))
        print(machine.digest().hex())
    print(state(machine))


if __name__ == "__main__":
    main()
