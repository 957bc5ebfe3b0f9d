"""The words of the scripts about transactions: commands in text, tables in text.

    init ID [PRODUCER] [timeout=MS]
    add ID PRODUCER #INSTANCE on CONNECTION [PLACE ...] [group=GROUP ...]
    send offsets GROUP [MEMBER@EPOCH] by PRODUCER [#INSTANCE] PLACE=OFFSET[:METADATA] ...
    end ID PRODUCER commit|abort [#INSTANCE on CONNECTION [clock=-ENTRIES] [challenged]]
    give up ID PRODUCER #INSTANCE
    expire ids MS ID ... · expire producers MS PLACE=ID[,ID ...] ... · feature NAME LEVEL
    show transactions | features | windows PLACE | aborted PLACE FROM TO

PRODUCER: ID:EPOCH. With an instance it is a TV1 client that speaks, without one a TV2 client. The
clock of an end is that of the newest entry, or lies so many entries before it.
"""

from collections.abc import Callable, Iterator, Mapping

from coordinator.commands.entries import Outcome
from coordinator.commands.group_commands import EPOCH_NONE, CommittedOffset
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
    TransactionCommand,
    TransactionEnded,
)
from coordinator.machine.machine import Machine
from coordinator.tables.transactions import TransactionRow
from protocol.types import Position, TopicId
from tests.coordinator.machine.story import REVISIONS_PER_ENTRY
from txn.producers import describe
from txn.transactions import OF_EPOCH

TopicIds = Mapping[str, TopicId]


def transaction_command(
    text: str, *, topics: TopicIds, machine: Machine
) -> TransactionCommand | None:
    """None: the text is not about transactions."""
    makers: dict[str, Callable[[list[str]], TransactionCommand]] = {
        "init": _init,
        "add": lambda words: _add(words, topics),
        "send offsets": lambda words: _send_offsets(words, topics),
        "end": lambda words: _end(words, machine.position),
        "give up": lambda words: GiveUpTransaction(
            words[0], *_producer(words[1]), _instance(words[2]), timed_out=True
        ),
        "expire ids": lambda words: ExpireTransactionalIds(int(words[0]), tuple(words[1:])),
        "expire producers": lambda words: _expire_producers(words, topics),
        "feature": lambda words: SetFeatureLevel(words[0], int(words[1])),
    }
    words = text.split()
    for length in (2, 1):
        if (make := makers.get(" ".join(words[:length]))) is not None:
            return make(words[length:])
    return None


def _producer(word: str) -> tuple[int, int]:
    producer_id, _, epoch = word.partition(":")
    return int(producer_id), int(epoch)


def _instance(word: str) -> int:
    assert word.startswith("#"), word
    return int(word[1:])


def _place(word: str, topics: TopicIds) -> tuple[TopicId, int]:
    name, _, partition = word.rpartition("/")
    return topics[name], int(partition)


def _init(words: list[str]) -> InitProducer:
    transactional_id, *words = words
    producer, timeout_ms = (-1, -1), 60_000
    for word in words:
        if word.startswith("timeout="):
            timeout_ms = int(word.removeprefix("timeout="))
        else:
            producer = _producer(word)
    return InitProducer(transactional_id, timeout_ms, *producer)


def _add(words: list[str], topics: TopicIds) -> AddToTransaction:
    transactional_id, producer, instance, on, connection, *words = words
    assert on == "on"
    groups = [word.removeprefix("group=") for word in words if word.startswith("group=")]
    places = [_place(word, topics) for word in words if not word.startswith("group=")]
    return AddToTransaction(
        transactional_id,
        *_producer(producer),
        _instance(instance),
        int(connection),
        tuple(places),
        tuple(groups),
    )


def _send_offsets(words: list[str], topics: TopicIds) -> CommitTransactionOffsets:
    group_id, *words = words
    member_id, epoch = "", EPOCH_NONE
    if words[0] != "by":
        member_id, _, text = words.pop(0).rpartition("@")
        epoch = int(text)
    by, producer, *words = words
    assert by == "by"
    instance = OF_EPOCH
    if words and words[0].startswith("#"):
        instance = _instance(words.pop(0))
    offsets = []
    for word in words:
        place, _, rest = word.partition("=")
        offset, _, metadata = rest.partition(":")
        offsets.append(CommittedOffset(*_place(place, topics), int(offset), -1, metadata))
    return CommitTransactionOffsets(
        group_id, member_id, epoch, *_producer(producer), instance, tuple(offsets)
    )


def _end(words: list[str], now: Position) -> EndTransaction:
    transactional_id, producer, result, *words = words
    assert result in {"commit", "abort"}
    proof = None
    if words:
        instance, on, connection, *words = words
        assert on == "on"
        back = [int(word.removeprefix("clock=-")) for word in words if word.startswith("clock=")]
        proof = ClientProof(
            instance=_instance(instance),
            connection=int(connection),
            clock=Position(now - REVISIONS_PER_ENTRY * sum(back)),
            challenged="challenged" in words,
        )
    return EndTransaction(
        transactional_id, *_producer(producer), commit=result == "commit", proof=proof
    )


def _expire_producers(words: list[str], topics: TopicIds) -> ExpireProducers:
    rows = []
    for word in words[1:]:
        place, _, ids = word.partition("=")
        producer_ids = tuple(int(producer_id) for producer_id in ids.split(","))
        rows.append(PartitionProducers(*_place(place, topics), producer_ids))
    return ExpireProducers(int(words[0]), tuple(rows))


# What is told.


def told_transaction(outcome: Outcome, topics: TopicIds) -> str | None:
    """None: the outcome is not about transactions."""
    match outcome:
        case ProducerInitialized(producer_id, epoch, marked):
            return f"producer {producer_id}:{epoch}{_told_marked(marked, topics)}"
        case TransactionEnded(producer_id, epoch, state, marked):
            told = _told_marked(marked, topics)
            return f"{state.name.lower()}, goes on as {producer_id}:{epoch}{told}"
        case _:
            return None


def _told_marked(marked: tuple[Marked, ...], topics: TopicIds) -> str:
    names = {topic_id: name for name, topic_id in topics.items()}
    return "".join(
        f", {names[topic_id]}/{partition} marked at {offset}"
        for topic_id, partition, offset in marked
    )


def show_transactions(what: str, machine: Machine, *, topics: TopicIds) -> Iterator[str] | None:
    """None: there is no such table about transactions."""
    match what.split():
        case ["transactions"]:
            return _show_transactions(machine, topics)
        case ["features"]:
            return iter([f"transaction.version {machine.features.transaction_version}"])
        case ["windows", place]:
            return _show_windows(machine, _place(place, topics))
        case ["aborted", place, start, end]:
            return _show_aborted(machine, _place(place, topics), int(start), int(end))
        case _:
            return None


def _show_transactions(machine: Machine, topics: TopicIds) -> Iterator[str]:
    transactions = machine.transactions
    for row in transactions:
        yield _told_row(row, topics)
        assert transactions.get(row.transactional_id) is row
        assert transactions.by_producer(row.txn_metadata.producer_id) is row
        assert (row.transactional_id in transactions.ongoing) == row.is_ongoing


def _told_row(row: TransactionRow, topics: TopicIds) -> str:
    names = {topic_id: name for name, topic_id in topics.items()}
    txn_metadata = row.txn_metadata
    producer = f"{txn_metadata.producer_id}:{txn_metadata.epoch}"
    state = f"{txn_metadata.state.name.lower()} #{txn_metadata.instance}"
    given_up = ", given up" if txn_metadata.given_up else ""
    began = f", began {row.started_ms}" if row.started_ms >= 0 else ""
    places = [f"{names[topic_id]}/{partition}" for topic_id, partition in row.partitions]
    takes_part = [*places, *[f"group {group_id}" for group_id in row.group_ids]]
    those = f": {' '.join(takes_part)}" if takes_part else ""
    return (
        f"{row.transactional_id}: {producer}, {state}{given_up}{began},"
        f" changed {row.changed_ms}, timeout {row.timeout_ms}{those}"
    )


def _show_windows(machine: Machine, place: tuple[TopicId, int]) -> Iterator[str]:
    partition = machine.partitions.get(*place)
    assert partition is not None
    for producer_id, window in (partition.windows or {}).items():
        view = describe(window)
        opened = partition.open_transactions.get(producer_id)
        since = f", open from {opened}" if opened is not None else ""
        yield (
            f"{producer_id}:{view.epoch} at {view.last_sequence}, newest {view.last_timestamp},"
            f" changed {view.updated_ms}{since}"
        )


def _show_aborted(
    machine: Machine, place: tuple[TopicId, int], start: int, end: int
) -> Iterator[str]:
    partition = machine.partitions.get(*place)
    assert partition is not None
    for aborted in partition.aborted(start, end):
        yield f"{aborted.producer_id} from {aborted.first_offset} to {aborted.last_offset}"
