"""Readers of simulated worlds with transactions: of committed records, or of all.

A read_committed reader does as Kafka's consumers do with the list of aborted transactions that
comes with the records: from a first offset on, batches of its producer are left out until the
marker. What it saw in one pass is held against the logs at the end (`Pass.check`).
"""

import asyncio
import struct
from dataclasses import dataclass, field

from typing_extensions import override

from protocol.messages import hot
from protocol.records import BatchHeader, Record
from tests.kit.requests import READ_COMMITTED, Partition, batches_in
from tests.sim.client import REQUEST_TIMEOUT_S, Address
from tests.sim.txn_account import KEYS, Line, TxnAccount, as_int, key_of
from tests.sim.txn_client import TxnCluster
from tests.sim.workload import Follower

LIST_OFFSETS_VERSIONS = (2, 4, 6)


@dataclass
class Pass:
    """What a reader saw of one partition between two offsets."""

    reader: str
    first: int
    next: int
    seen: list[tuple[int, bytes]] = field(default_factory=list)

    def check(self, committed: list[tuple[int, bytes]]) -> list[str]:
        """Exactly the committed records of the range, in order."""
        expected = [(o, value) for o, value in committed if self.first <= o < self.next]
        if self.seen == expected:
            return []
        where = f"between {self.first} and {self.next}"
        return [f"{self.reader} saw {self.seen} {where}, there is {expected}"]


class TxnReader(Follower):
    """Follows partitions from one agent after the other, and begins anew now and then."""

    rests_s = (0.05, 0.3, 1.0)
    goes_back = 0.1

    def __init__(
        self,
        world: TxnCluster,
        name: str,
        partitions: list[Partition],
        *,
        committed: bool,
        recorded: bool | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        super().__init__(world, name, timeout_s)
        self.account: TxnAccount = world.account
        self.committed = committed
        self.isolation_level = READ_COMMITTED if committed else 0
        self.recorded = committed if recorded is None else recorded
        """What it is given is in the history."""
        self.offsets = {}
        self.lines: dict[Partition, list[Line]] = {}
        """Since the reader began: everything, markers as well."""
        self.passes: list[tuple[Partition, Pass]] = []
        self._now: dict[Partition, Pass] = {}
        self._process = 0
        self._polled: dict[int, list[list[int]]] = {}
        for partition in partitions:
            self.seek(partition, 0)

    @override
    def seek(self, partition: Partition, offset: int) -> None:
        """Begin a pass. In the history it is another process, since this one goes back."""
        self._process = self.account.process()
        self.offsets[partition] = offset
        self._now[partition] = Pass(self.name, offset, offset)
        self.passes.append((partition, self._now[partition]))
        self.lines[partition] = []

    @override
    async def poll(self, address: Address, *, max_wait_ms: int) -> bool:
        if not self.recorded:
            return await super().poll(address, max_wait_ms=max_wait_ms)
        recorder, process = self.account.recorder, self._process
        recorder.invoke(process, "poll", [["poll"]])
        self._polled = {}
        answered = await super().poll(address, max_wait_ms=max_wait_ms)
        recorder.complete(process, "ok" if answered else "fail", "poll", [["poll", self._polled]])
        return answered

    @override
    def take(self, partition: Partition, row: hot.PartitionData) -> None:
        known = len(self._now[partition].seen)
        aborted = row.aborted_transactions
        if not self.committed and aborted:
            self.wrong(f"reads all of {partition}, was told of aborted transactions")
        waiting = [(each.first_offset, each.producer_id) for each in aborted or ()]
        if waiting != sorted(waiting, key=lambda each: each[0]):
            self.wrong(f"was told of aborted transactions of {partition} in the order {waiting}")
        leaving_out: set[int] = set()
        for header, records in batches_in(row.records):
            self._validate(partition, header, row.last_stable_offset)
            while waiting and waiting[0][0] <= header.last_offset:
                leaving_out.add(waiting.pop(0)[1])
            if header.is_control:
                self._end(partition, header, records[0], leaving_out)
            else:
                left_out = self.committed and header.producer_id in leaving_out
                self._see(partition, header, records, left_out=left_out)
            self.offsets[partition] = max(self.offsets[partition], header.last_offset + 1)
            self._now[partition].next = self.offsets[partition]
        if self.recorded and (new := self._now[partition].seen[known:]):
            self._polled[key_of(partition)] = [[at, as_int(value)] for at, value in new]

    def _validate(self, partition: Partition, header: BatchHeader, last_stable: int) -> None:
        here = self.offsets[partition]
        # Where aborted batches were left out; that nothing else was, is judged in the end.
        if header.base_offset > here and not self.account.merged:
            self.wrong(f"was given {header.base_offset} of {partition}, wanted {here} (P7)")
        if self.committed and header.last_offset >= last_stable:
            self.wrong(f"was given {header.last_offset} of {partition}, LSO {last_stable}")

    def _end(
        self, partition: Partition, header: BatchHeader, record: Record, leaving_out: set[int]
    ) -> None:
        """A marker."""
        commit = struct.unpack(">hh", record.key or b"")[1] == 1
        if not commit:
            leaving_out.discard(header.producer_id)
        offset = header.base_offset
        if offset >= self.offsets[partition]:
            line = Line(offset, header.producer_id, header.producer_epoch, None, commit)
            self.lines[partition].append(line)

    def _see(
        self, partition: Partition, header: BatchHeader, records: list[Record], *, left_out: bool
    ) -> None:
        transactional = header.is_transactional
        producer_id = header.producer_id if transactional else -1
        for record in records:
            if record.offset < self.offsets[partition]:
                continue
            value = record.value or b""
            line = Line(record.offset, producer_id, header.producer_epoch, value)
            self.lines[partition].append(line)
            if left_out:
                continue
            self._now[partition].seen.append((record.offset, value))
            if self.committed and transactional:
                self.account.shown(self.name, value)


async def ask_stable_ends(world: TxnCluster) -> None:
    """For ever: no answer is below one that was given before the question (P8)."""
    client, told = world.client("asker", 3.0), world.account.stable_least
    while True:
        least, version = dict(told), client.rng.choice(LIST_OFFSETS_VERSIONS)
        ends = await client.limits(KEYS, isolation_level=READ_COMMITTED, version=version)
        for partition, end in ends.items():
            if end < least.get(partition, 0):
                world.violations.append(
                    f"the LSO of {partition} was told as {end} after {least[partition]} (P8)"
                )
            told[partition] = max(told.get(partition, 0), end)
        await asyncio.sleep(0.7)


def committed_values(lines: list[Line]) -> list[tuple[int, bytes]]:
    """Records that a commit marker ended, or that are in no transaction, with their offsets."""
    open_lines: dict[int, list[Line]] = {}
    found = []
    for line in lines:
        if line.producer_id == -1:
            found.append((line.offset, line.value or b""))
        elif line.value is not None:
            open_lines.setdefault(line.producer_id, []).append(line)
        else:
            ended = open_lines.pop(line.producer_id, [])
            found += [(each.offset, each.value or b"") for each in ended if line.commit]
    return sorted(found)


def kept(lines: list[Line]) -> list[Line]:
    """Without the records of aborted transactions, which may be gone at one agent's time and not
    yet at another's."""
    committed = {offset for offset, _ in committed_values(lines)}
    return [line for line in lines if line.value is None or line.offset in committed]
