"""Readers of simulated worlds with transactions: of committed records, or of all.

A read_committed reader does as Kafka's consumers do with the list of aborted transactions that
comes with the records: from a first offset on, batches of its producer are left out until the
marker. What it saw in one pass is held against the logs at the end (`Pass.check`).
"""

import asyncio
import random
import struct
from dataclasses import dataclass, field

from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import hot
from protocol.records import iterate, read_header
from tests.sim.client import Client, LostError
from tests.sim.txn_account import Line, Partition, TxnAccount, as_int, key_of
from tests.sim.workload import Addresses

COMMITTED = 1
FETCH_VERSIONS = (4, 7, 11, 12)
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


class TxnReader:
    """Follows partitions from one agent after the other."""

    def __init__(
        self,
        client: Client,
        account: TxnAccount,
        rng: random.Random,
        partitions: list[Partition],
        *,
        committed: bool,
        recorded: bool | None = None,
    ) -> None:
        self._client = client
        self.account = account
        self._rng = rng
        self.committed = committed
        self.recorded = committed if recorded is None else recorded
        """What it is given is in the history."""
        self.offsets = dict.fromkeys(partitions, 0)
        self.lines: dict[Partition, list[Line]] = {partition: [] for partition in partitions}
        """Since the reader began: everything, markers as well."""
        self.passes: list[tuple[Partition, Pass]] = []
        self._now: dict[Partition, Pass] = {}
        self._process = 0
        for partition in partitions:
            self.seek(partition, 0)

    def seek(self, partition: Partition, offset: int) -> None:
        """Begin a pass. In the history it is another process, since this one goes back."""
        self._process = self.account.process()
        self.offsets[partition] = offset
        self._now[partition] = Pass(self._client.name, offset, offset)
        self.passes.append((partition, self._now[partition]))
        self.lines[partition] = []

    async def run(self, addresses: Addresses) -> None:
        while True:
            await self.poll(addresses.any(), max_wait_ms=self._rng.choice((0, 100, 1000)))
            await asyncio.sleep(self._rng.choice((0.05, 0.3, 1.0)))
            if self._rng.random() < 0.1:
                partition = self._rng.choice(sorted(self.offsets))
                self.seek(partition, self._rng.randrange(self.offsets[partition] + 1))

    async def poll(self, address: tuple[str, int], *, max_wait_ms: int) -> None:
        """One fetch. Nothing when there is no answer."""
        bytes_max = self._rng.choice((1, 300, 1 << 20))
        topics: dict[str, list[hot.FetchPartition]] = {}
        wanted = sorted(self.offsets)
        self._rng.shuffle(wanted)
        for name, index in wanted:
            topics.setdefault(name, []).append(
                hot.FetchPartition(
                    partition=index,
                    fetch_offset=self.offsets[name, index],
                    partition_max_bytes=bytes_max,
                )
            )
        request = hot.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._rng.choice((1, 1 << 20)),
            isolation_level=COMMITTED if self.committed else 0,
            topics=[hot.FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
        )
        asked = dict(self.offsets)
        process = self._process
        if self.recorded:
            self.account.recorder.invoke(process, "poll", [["poll"]])
        try:
            answer = await self._client.ask(
                address, apis.FETCH, self._rng.choice(FETCH_VERSIONS), request
            )
        except LostError:
            if self.recorded:
                self.account.recorder.complete(process, "fail", "poll", [["poll", {}]])
            await asyncio.sleep(0.2)
            return
        polled: dict[int, list] = {}
        for topic in answer.responses:
            for row in topic.partitions:
                partition = (topic.topic, row.partition_index)
                assert self.offsets[partition] == asked[partition]
                known = len(self._now[partition].seen)
                self._take(partition, row)
                if self.recorded and (new := self._now[partition].seen[known:]):
                    polled[key_of(partition)] = [[at, as_int(value)] for at, value in new]
        if self.recorded:
            self.account.recorder.complete(process, "ok", "poll", [["poll", polled]])

    def _take(self, partition: Partition, answer: hot.PartitionData) -> None:
        complain = self.account.violations.append
        who = f"{self._client.name} of {partition} at {self.offsets[partition]}"
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            complain(f"{who} was told OFFSET_OUT_OF_RANGE (P8)")
        aborted = answer.aborted_transactions
        if not self.committed and aborted:
            complain(f"{who} reads all, was told of aborted transactions")
        waiting = [(row.first_offset, row.producer_id) for row in aborted or ()]
        if waiting != sorted(waiting, key=lambda row: row[0]):
            complain(f"{who} was told of aborted transactions in the order {waiting}")
        leaving_out: set[int] = set()
        records, at = bytes(answer.records or b""), 0
        while at < len(records):
            header = read_header(records, at)
            here = self.offsets[partition]
            # Where aborted batches were left out; that nothing else was, is judged in the end.
            if header.base_offset > here and not self.account.merged:
                complain(f"{who} was given {header.base_offset} when it wanted {here} (P7)")
            if self.committed and header.last_offset >= answer.last_stable_offset:
                complain(f"{who} was given {header.last_offset}, LSO {answer.last_stable_offset}")
            while waiting and waiting[0][0] <= header.last_offset:
                leaving_out.add(waiting.pop(0)[1])
            if header.is_control:
                commit = struct.unpack(">hh", next(iter(iterate(records, at))).key)[1] == 1
                if not commit:
                    leaving_out.discard(header.producer_id)
                line = Line(
                    header.base_offset, header.producer_id, header.producer_epoch, None, commit
                )
                if line.offset >= here:
                    self.lines[partition].append(line)
            else:
                left_out = self.committed and header.producer_id in leaving_out
                self._see(partition, records, at, header, left_out=left_out)
            self.offsets[partition] = max(here, header.last_offset + 1)
            self._now[partition].next = self.offsets[partition]
            at += header.size

    def _see(self, partition: Partition, records: bytes, at: int, header, *, left_out) -> None:
        transactional = header.is_transactional
        for record in iterate(records, at):
            if record.offset < self.offsets[partition]:
                continue
            producer_id = header.producer_id if transactional else -1
            self.lines[partition].append(
                Line(record.offset, producer_id, header.producer_epoch, record.value)
            )
            if left_out:
                continue
            self._now[partition].seen.append((record.offset, record.value))
            if self.committed and transactional:
                self.account.shown(self._client.name, record.value)


async def stable_ends(
    client: Client,
    address: tuple[str, int],
    partitions: list[Partition],
    *,
    isolation: int,
    version,
) -> dict[Partition, int]:
    """What ListOffsets tells of the ends. Raises LostError; partitions in error are left out."""
    topics: dict[str, list] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(
            messages.ListOffsetsPartition(partition_index=index, timestamp=-1)
        )
    request = messages.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            messages.ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )
    answer = await client.ask(address, apis.LIST_OFFSETS, version, request)
    return {
        (topic.name, row.partition_index): row.offset
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE
    }


async def ask_stable_ends(
    client: Client,
    addresses: Addresses,
    account: TxnAccount,
    partitions: list[Partition],
    rng: random.Random,
) -> None:
    """For ever: no answer is below one that was given before the question (P8)."""
    while True:
        least = dict(account.stable_least)
        try:
            ends = await stable_ends(
                client,
                addresses.any(),
                partitions,
                isolation=COMMITTED,
                version=rng.choice(LIST_OFFSETS_VERSIONS),
            )
        except LostError:
            ends = {}
        for partition, end in ends.items():
            if end < least.get(partition, 0):
                account.violations.append(
                    f"the LSO of {partition} was told as {end} after {least[partition]} (P8)"
                )
            account.stable_least[partition] = max(account.stable_least.get(partition, 0), end)
        await asyncio.sleep(0.7)


async def fetch_offset(
    client: Client,
    address: tuple[str, int],
    group_id: str,
    partition: Partition,
    rng: random.Random,
    *,
    stable: bool,
) -> int | None:
    """A committed offset, -1 when there is none; None: ask again. Raises LostError."""
    version = rng.choice((7, 8, 9))
    topic = messages.OffsetFetchRequestTopic(name=partition[0], partition_indexes=[partition[1]])
    request = messages.OffsetFetchRequest(
        group_id=group_id,
        topics=[topic],
        require_stable=stable,
        groups=[messages.OffsetFetchRequestGroup(group_id=group_id, topics=[topic])],
    )
    answer = await client.ask(address, apis.OFFSET_FETCH, version, request)
    told = answer.groups[0] if version >= 8 else answer
    if told.error_code != ErrorCode.NONE:
        return None
    row = told.topics[0].partitions[0]
    return row.committed_offset if row.error_code == ErrorCode.NONE else None


def committed_values(lines: list[Line]) -> list[tuple[int, bytes]]:
    """Records that a commit marker ended, or that are in no transaction, with their offsets."""
    open_lines: dict[int, list[Line]] = {}
    found = []
    for line in lines:
        if line.producer_id == -1:
            found.append((line.offset, line.value))
        elif line.value is not None:
            open_lines.setdefault(line.producer_id, []).append(line)
        else:
            ended = open_lines.pop(line.producer_id, [])
            found += [(ended_line.offset, ended_line.value) for ended_line in ended if line.commit]
    return sorted(found)


def kept(lines: list[Line]) -> list[Line]:
    """Without the records of aborted transactions, which may be gone at one agent's time and not
    yet at another's."""
    committed = {offset for offset, _ in committed_values(lines)}
    return [line for line in lines if line.value is None or line.offset in committed]
