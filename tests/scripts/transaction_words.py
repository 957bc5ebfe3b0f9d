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
from dataclasses import dataclass

from coordinator.commands.entries import Command, Outcome
from coordinator.commands.group_commands import EPOCH_NONE
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
from coordinator.machine.machine import Machine
from coordinator.tables.transactions import TransactionRow
from protocol.types import Position
from tests.coordinator.machine.story import REVISIONS_PER_ENTRY
from tests.kit.script import options
from tests.scripts.group_words import committed, member
from tests.scripts.names import Names
from txn.producers import describe
from txn.transactions import OF_EPOCH


@dataclass
class TransactionWords:
    machine: Machine
    names: Names

    def commands(self) -> Mapping[str, Callable[..., Command]]:
        return {
            "init": _init,
            "add": self._add,
            "send offsets": self._send_offsets,
            "end": self._end,
            "give up": lambda name, producer, instance: GiveUpTransaction(
                name, *_producer(producer), _instance(instance), timed_out=True
            ),
            "expire ids": lambda ms, *names: ExpireTransactionalIds(int(ms), names),
            "expire producers": self._expire_producers,
            "feature": lambda name, level: SetFeatureLevel(name, int(level)),
        }

    def tables(self) -> Mapping[str, Callable[..., Iterator[str]]]:
        features = self.machine.features
        return {
            "show transactions": self._show_transactions,
            "show features": lambda: iter([f"transaction.version {features.transaction_version}"]),
            "show windows": self._show_windows,
            "show aborted": self._show_aborted,
        }

    def told(self, _: Command, outcome: Outcome) -> str | None:
        """None: the outcome is not one of transactions."""
        match outcome:
            case ProducerInitialized(producer_id, epoch, marked):
                return f"producer {producer_id}:{epoch}{self._told_marked(marked)}"
            case TransactionEnded(producer_id, epoch, state, marked):
                told = self._told_marked(marked)
                return f"{state.name.lower()}, goes on as {producer_id}:{epoch}{told}"
        return None

    def _add(
        self, name: str, producer: str, instance: str, on: str, connection: str, *words: str
    ) -> AddToTransaction:
        assert on == "on"
        return AddToTransaction(
            name,
            *_producer(producer),
            _instance(instance),
            int(connection),
            tuple(self.names.place(word) for word in words if not word.startswith("group=")),
            tuple(word.removeprefix("group=") for word in words if word.startswith("group=")),
        )

    def _send_offsets(self, group_id: str, *words: str) -> CommitTransactionOffsets:
        who: tuple[str, int] = ("", EPOCH_NONE)
        if words[0] != "by":
            who, words = member(words[0]), words[1:]
        by, producer, *_ = words
        assert by == "by"
        words = words[2:]
        instance = OF_EPOCH
        if words and words[0].startswith("#"):
            instance, words = _instance(words[0]), words[1:]
        return CommitTransactionOffsets(
            group_id, *who, *_producer(producer), instance, committed(words, self.names)
        )

    def _end(self, name: str, producer: str, result: str, *words: str) -> EndTransaction:
        assert result in {"commit", "abort"}
        proof = None
        if words:
            (instance, on, connection, *rest), given = options(words)
            assert on == "on"
            back = int(given.get("clock", "-0").removeprefix("-"))
            proof = ClientProof(
                instance=_instance(instance),
                connection=int(connection),
                clock=Position(self.machine.position - REVISIONS_PER_ENTRY * back),
                challenged="challenged" in rest,
            )
        return EndTransaction(name, *_producer(producer), commit=result == "commit", proof=proof)

    def _expire_producers(self, ms: str, *words: str) -> ExpireProducers:
        rows = []
        for word in words:
            place, _, ids = word.partition("=")
            producer_ids = tuple(int(producer_id) for producer_id in ids.split(","))
            rows.append(PartitionProducers(*self.names.place(place), producer_ids))
        return ExpireProducers(int(ms), tuple(rows))

    # What is told.

    def _told_marked(self, marked: tuple[Marked, ...]) -> str:
        return "".join(
            f", {self.names.of_place(topic_id, partition)} marked at {offset}"
            for topic_id, partition, offset in marked
        )

    def _show_transactions(self) -> Iterator[str]:
        transactions = self.machine.transactions
        for row in transactions:
            yield self._told_row(row)
            assert transactions.get(row.transactional_id) is row
            assert transactions.by_producer(row.txn_metadata.producer_id) is row
            assert (row.transactional_id in transactions.ongoing) == row.is_ongoing

    def _told_row(self, row: TransactionRow) -> str:
        txn_metadata = row.txn_metadata
        producer = f"{txn_metadata.producer_id}:{txn_metadata.epoch}"
        state = f"{txn_metadata.state.name.lower()} #{txn_metadata.instance}"
        given_up = ", given up" if txn_metadata.given_up else ""
        began = f", began {row.started_ms}" if row.started_ms >= 0 else ""
        places = [self.names.of_place(*place) for place in row.partitions]
        takes_part = [*places, *[f"group {group_id}" for group_id in row.group_ids]]
        those = f": {' '.join(takes_part)}" if takes_part else ""
        return (
            f"{row.transactional_id}: {producer}, {state}{given_up}{began},"
            f" changed {row.changed_ms}, timeout {row.timeout_ms}{those}"
        )

    def _show_windows(self, place: str) -> Iterator[str]:
        partition = self.machine.partitions.get(*self.names.place(place))
        assert partition is not None
        for producer_id, window in (partition.windows or {}).items():
            view = describe(window)
            opened = partition.open_transactions.get(producer_id)
            since = f", open from {opened}" if opened is not None else ""
            yield (
                f"{producer_id}:{view.epoch} at {view.last_sequence}, newest {view.last_timestamp},"
                f" changed {view.updated_ms}{since}"
            )

    def _show_aborted(self, place: str, start: str, end: str) -> Iterator[str]:
        partition = self.machine.partitions.get(*self.names.place(place))
        assert partition is not None
        for aborted in partition.aborted(int(start), int(end)):
            yield f"{aborted.producer_id} from {aborted.first_offset} to {aborted.last_offset}"


def _producer(word: str) -> tuple[int, int]:
    producer_id, _, epoch = word.partition(":")
    return int(producer_id), int(epoch)


def _instance(word: str) -> int:
    assert word.startswith("#"), word
    return int(word[1:])


def _init(name: str, *words: str) -> InitProducer:
    plain, given = options(words)
    producer = _producer(plain[0]) if plain else (-1, -1)
    return InitProducer(name, int(given.get("timeout", 60_000)), *producer)
