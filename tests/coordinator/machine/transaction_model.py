"""Clients of both generations upon a machine, and the model of what they have done, beside it.

The model is a list of writes with the transaction of each, and how the transactions ended; what a
reader may see follows from that in ten lines. Everything that clients do goes through `World`,
which can also send anything of before once more.
"""

from dataclasses import dataclass, field

from coordinator.commands.entries import ChunkSpan, Command, CommitChunk, Done, Outcome, Rejected
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_SHARDS,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    OffsetsCommitted,
)
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    ClientProof,
    CommitTransactionOffsets,
    EndTransaction,
    GiveUpTransaction,
    InitProducer,
    ProducerInitialized,
    TransactionEnded,
)
from protocol.errors import ErrorCode
from protocol.types import TopicId
from storage.formats.spans import Item, Marker
from tests.coordinator.machine.story import Story
from txn.transactions import OF_EPOCH

PARTITIONS = 2
GROUP = "billing"
RECORD_BYTES = 10

Write = tuple[int | None, int | None]
"""The number of the transaction, if any, and a value; None: it is a marker."""


def read_committed(
    log: list[Write], ended: dict[int, bool], start: int, end: int
) -> list[tuple[int, int]]:
    """Offsets and values that a reader of [start, end) sees."""
    still_open = (at for at, (number, _) in enumerate(log) if number not in {None, *ended})
    stable = next(still_open, len(log))
    return [
        (at, value)
        for at, (number, value) in enumerate(log)
        if start <= at < min(end, stable)
        and value is not None
        and (number is None or ended[number])
    ]


def committed_offset(writes: list[Write], ended: dict[int, bool]) -> tuple[int | None, bool]:
    """The offset of a place, and whether a newer one waits: only a newer one overwrites."""
    waits = False
    for number, value in reversed(writes):
        if number is None or ended.get(number):
            return value, waits
        waits = waits or number not in ended
    return None, waits


@dataclass
class Client:
    """A transactional producer; TV1 adds its partitions and names instances, TV2 does not."""

    transactional_id: str
    old: bool
    producer_id: int = -1
    epoch: int = -1
    instance: int = 0
    number: int | None = None
    """Of its open transaction, in the model."""
    sequences: dict[int, int] = field(default_factory=dict)
    added: set[int | str] = field(default_factory=set)


class World:
    """A machine, its clients, and the model."""

    def __init__(self, clients: list[Client]) -> None:
        self.story = Story()
        self.agent = self.story.open()
        self.topic_id: TopicId = self.story.topic(self.agent, partitions=PARTITIONS)
        self.story.do(self.agent, ClaimShards(tuple(range(GROUP_SHARDS))))
        self.clients = clients
        self.logs: list[list[Write]] = [[] for _ in range(PARTITIONS)]
        self.places: list[list[Write]] = [[] for _ in range(PARTITIONS)]
        self.ended: dict[int, bool] = {}
        self.numbers = 0
        self.values = 0
        self.producers: list[dict[int, tuple[int, int]]] = [{} for _ in range(PARTITIONS)]
        """Per partition: first offset to producer id and records of transactional batches."""
        self.sent: list[Command] = []
        """What may come a second time."""
        self.held: list[tuple[int, ChunkSpan]] = []
        """Batches that were never sent, and the transaction of each."""
        for client in clients:
            self.init(client)

    def do(self, command: Command) -> Outcome:
        self.sent.append(command)
        return self.story.do(self.agent, command)

    # What clients do.

    def init(self, client: Client) -> None:
        """Take the id over, or with what it has (KIP-360)."""
        command = InitProducer(client.transactional_id, 1000, client.producer_id, client.epoch)
        outcome = self.story.do(self.agent, command)
        assert isinstance(outcome, ProducerInitialized)
        self._mark(client, outcome.marked, commit=False)
        client.producer_id, client.epoch = outcome.producer_id, outcome.producer_epoch
        client.sequences.clear()

    def take_over(self, client: Client) -> None:
        client.producer_id = client.epoch = -1
        self.init(client)

    def write(self, client: Client, partition: int, records: int) -> None:
        self._begin(client, partition)
        item = self._next(client, partition, records)
        offset = self._commit(partition, item)
        client.sequences[partition] = item.first_sequence + records
        self.producers[partition][offset] = (client.producer_id, records)
        self._append(partition, client.number, records)

    def hold(self, client: Client, partition: int) -> None:
        """A batch of the open transaction is under way for long: its client gives it up."""
        if client.number is not None and partition in client.added:
            item = self._next(client, partition, 1)
            self.held.append((client.number, ChunkSpan(self.topic_id, partition, 0, (item,))))

    def release(self, index: int) -> None:
        """A batch comes whose transaction has ended long since."""
        late = [span for number, span in self.held if number in self.ended]
        if late:
            span = late[index % len(late)]
            (result,) = self.story.commit(self.agent, span)
            assert result.duplicate or result.error != ErrorCode.NONE

    def write_plain(self, partition: int, records: int) -> None:
        item = Item(0, RECORD_BYTES * records, records, 500)
        self._commit(partition, item)
        self.sent.pop()  # A plain batch that comes twice is there twice.
        self._append(partition, None, records)

    def send_offset(self, client: Client, partition: int) -> None:
        self._begin(client, GROUP)
        self.values += 1
        offsets = (CommittedOffset(self.topic_id, partition, self.values, -1, ""),)
        command = CommitTransactionOffsets(
            GROUP,
            "",
            EPOCH_NONE,
            client.producer_id,
            client.epoch,
            self._instance(client),
            offsets,
        )
        assert self.do(command) == OffsetsCommitted((ErrorCode.NONE,))
        self.sent.pop()  # While its transaction is open it would be the newer one.
        self.places[partition].append((client.number, self.values))

    def commit_offset(self, partition: int) -> None:
        self.values += 1
        offsets = (CommittedOffset(self.topic_id, partition, self.values, -1, ""),)
        self.story.do(self.agent, CommitOffsets(GROUP, "", EPOCH_NONE, offsets))
        self.places[partition].append((None, self.values))

    def delete_offset(self, partition: int) -> None:
        self.story.do(self.agent, DeleteOffsets(GROUP, ((self.topic_id, partition),)))
        self.places[partition].clear()

    def delete_group(self) -> None:
        self.story.do(self.agent, DeleteGroup(GROUP, only_without_offsets=False))
        for writes in self.places:
            writes.clear()

    def end(self, client: Client, *, commit: bool) -> None:
        if client.number is None:
            return
        proof = None
        if client.old:
            position = self.story.machine.position
            proof = ClientProof(client.instance, self._connection(client), position, False)
        outcome = self.do(
            EndTransaction(client.transactional_id, client.producer_id, client.epoch, commit, proof)
        )
        assert isinstance(outcome, TransactionEnded)
        self._mark(client, outcome.marked, commit=commit)
        if not client.old:
            client.sequences.clear()
        client.producer_id, client.epoch = outcome.producer_id, outcome.producer_epoch

    def give_up(self, client: Client) -> None:
        """The cluster aborts it; the client notices and recovers."""
        row = self.story.machine.transactions.get(client.transactional_id)
        assert row is not None
        command = GiveUpTransaction(
            client.transactional_id,
            client.producer_id,
            client.epoch,
            row.txn_metadata.instance,
            timed_out=True,
        )
        outcome = self.do(command)
        if client.number is None:
            assert isinstance(outcome, Rejected)
            return
        assert isinstance(outcome, TransactionEnded)
        self._mark(client, outcome.marked, commit=False)
        self.init(client)
        assert client.epoch == outcome.producer_epoch

    def repeat(self, index: int) -> None:
        """Something of before comes a second time, in a chunk of its own if it is a batch."""
        if not self.sent:
            return
        command = self.sent[index % len(self.sent)]
        if isinstance(command, CommitChunk):
            command = self.story.chunk(*command.spans)
        self.story.do(self.agent, command)

    # What readers see.

    def found(self, partition: int, start: int, end: int) -> list[int]:
        """Offsets that a consumer gets from [start, end), as Kafka's clients find them."""
        row = self.story.partition(self.topic_id, partition)
        aborted = row.aborted(start, end)
        assert aborted == sorted(aborted, key=lambda each: each.first_offset)
        batches = self.producers[partition]
        markers = {
            each.base_offset: each
            for each in row.rows_from(0, row.row_count)
            if isinstance(each, Marker)
        }
        skipping: set[int] = set()
        seen = []
        producer_id, left = -1, 0
        for at in range(min(end, row.last_stable)):
            if at in batches:
                producer_id, left = batches[at]
            if at < start:
                left -= 1
                continue
            while aborted and aborted[0].first_offset <= at:
                skipping.add(aborted.pop(0).producer_id)
            if at in markers:
                skipping.discard(markers[at].producer_id)
            elif not (left > 0 and producer_id in skipping):
                seen.append(at)
            left -= 1
        return seen

    # Between the two.

    def _begin(self, client: Client, what: int | str) -> None:
        """The partition or group takes part; a TV1 client says so first."""
        if client.number is None:
            client.number = self.numbers
            self.numbers += 1
            client.instance += 1
            client.added.clear()
        if client.old and what not in client.added:
            is_group = isinstance(what, str)
            command = AddToTransaction(
                client.transactional_id,
                client.producer_id,
                client.epoch,
                client.instance,
                self._connection(client),
                () if is_group else ((self.topic_id, int(what)),),
                (str(what),) if is_group else (),
            )
            assert isinstance(self.do(command), Done)
        client.added.add(what)

    def _next(self, client: Client, partition: int, records: int) -> Item:
        return Item(
            0,
            RECORD_BYTES * records,
            records,
            500,
            client.producer_id,
            client.epoch,
            client.sequences.get(partition, 0),
            self._instance(client),
        )

    def _instance(self, client: Client) -> int:
        return client.instance if client.old else OF_EPOCH

    def _connection(self, client: Client) -> int:
        return self.clients.index(client)

    def _commit(self, partition: int, item: Item) -> int:
        command = self.story.chunk(ChunkSpan(self.topic_id, partition, 0, (item,)))
        outcome = self.do(command)
        (result,) = outcome.results  # type: ignore[union-attr]
        assert (result.error, result.duplicate) == (ErrorCode.NONE, False)
        assert result.base_offset == len(self.logs[partition])
        return int(result.base_offset)

    def _append(self, partition: int, number: int | None, records: int) -> None:
        for _ in range(records):
            self.values += 1
            self.logs[partition].append((number, self.values))

    def _mark(self, client: Client, marked: tuple[object, ...], *, commit: bool) -> None:
        """The client's transaction has ended: there is a marker wherever it wrote, nowhere else."""
        if client.number is None:
            assert marked == ()
            return
        expected = []
        for partition in [each for each in client.added if isinstance(each, int)]:
            if any(number == client.number for number, _ in self.logs[partition]):
                expected.append((self.topic_id, partition, len(self.logs[partition])))
                self.logs[partition].append((client.number, None))
        assert sorted(marked) == sorted(expected)  # type: ignore[type-var]
        self.ended[client.number] = commit
        client.number = None
