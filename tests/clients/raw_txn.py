"""Transactions spoken by hand: a producer whose every request is on a connection of our choice.

What a client cannot be made to do reliably (send an EndTxn that arrives after its successors) is
done here step by step. Also what an independent reader finds of a partition: `visible` follows the
last stable offset and the list of aborted transactions itself, with no client's help.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    FeatureUpdateKey,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    UpdateFeaturesRequest,
)
from protocol.messages.hot import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.records import (
    CONTROL,
    TRANSACTIONAL,
    Record,
    batch_positions,
    build_batch,
    iterate,
    read_header,
)
from tests.clients.raw import FIND_COORDINATOR_VERSION, MOVING, Connection, Place, ask

INIT_VERSION, LIST_OFFSETS_VERSION, FETCH_VERSION, UPDATE_FEATURES_VERSION = 4, 6, 11, 1
LATEST = -1
FETCH_BYTES = 1 << 20
AGAIN_S = 20.0
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""What a producer sends its batch again for."""
SAFE_DOWNGRADE, UPGRADE = 2, 1
_UNCOMMITTED, _COMMITTED = 0, 1
_TRANSACTIONS = 1
_ABORT_KEY = bytes(4)
_END_BUMPS, _PRODUCE_ADDS = 5, 12
"""From these versions on a request is one of KIP-890 (transaction version 2)."""


@dataclass(frozen=True)
class Dialect:
    """The versions in which a client speaks of transactions."""

    add: int
    produce: int
    end: int

    @property
    def adds(self) -> bool:
        """Does it name its partitions before it writes to them? With KIP-890 it does not."""
        return self.produce < _PRODUCE_ADDS


LIBRDKAFKA = Dialect(add=0, produce=7, end=1)
OLD_JAVA = Dialect(add=3, produce=9, end=3)
NEW_JAVA = Dialect(add=3, produce=12, end=5)


@dataclass
class Producer:
    """What a client knows of itself; requests go where the caller says."""

    transactional_id: str
    dialect: Dialect
    producer_id: int = -1
    epoch: int = -1
    _sequences: dict[Place, int] = field(default_factory=dict)

    def init(self, connection: Connection, *, timeout_ms: int = 60_000) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        deadline = time.monotonic() + AGAIN_S
        while True:
            answer = connection.ask(apis.INIT_PRODUCER_ID, INIT_VERSION, request)
            if answer.error_code not in {ErrorCode.CONCURRENT_TRANSACTIONS, *MOVING}:
                break
            assert time.monotonic() < deadline, ErrorCode(answer.error_code)
            # Kafka makes the topic of its transactions when it is first asked for a coordinator.
            find = FindCoordinatorRequest(key=self.transactional_id, key_type=_TRANSACTIONS)
            connection.ask(apis.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, find)
            time.sleep(0.05)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def add_request(self, *places: Place) -> AddPartitionsToTxnRequest:
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=rows) for name, rows in topics.items()
            ],
        )

    def add(self, connection: Connection, *places: Place) -> None:
        """As clients do: again while an earlier transaction is ending (as it is in Kafka)."""
        request = self.add_request(*places)
        deadline = time.monotonic() + AGAIN_S
        while True:
            answer = connection.ask(apis.ADD_PARTITIONS_TO_TXN, self.dialect.add, request)
            codes = {
                row.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            }
            if not codes & {ErrorCode.CONCURRENT_TRANSACTIONS, *MOVING}:
                break
            assert time.monotonic() < deadline, codes
            time.sleep(0.05)
        assert codes == {ErrorCode.NONE}, codes

    def produce(self, connection: Connection, place: Place, *values: str) -> ErrorCode:
        """Write records in the transaction; the answer, of the first that is not "try again"."""
        topic, partition = place
        first = self._sequences.get(place, 0)
        now_ms = int(time.time() * 1000)
        batch = build_batch(
            [Record(timestamp=now_ms, value=value.encode()) for value in values],
            attributes=TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
        )
        rows = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=rows)],
        )
        deadline = time.monotonic() + AGAIN_S
        while True:
            answer = connection.ask(apis.PRODUCE, self.dialect.produce, request)
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            if code not in AGAIN:
                break
            assert time.monotonic() < deadline, code
            time.sleep(0.05)
        if code == ErrorCode.NONE:
            self._sequences[place] = first + len(values)
        return code

    def write(self, connection: Connection, place: Place, *values: str) -> None:
        """Add the partition as this client does, and write."""
        if self.dialect.adds:
            self.add(connection, place)
        code = self.produce(connection, place, *values)
        assert code == ErrorCode.NONE, f"{place}: {code.name}"

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    def end(self, connection: Connection, *, commit: bool) -> list[ErrorCode]:
        """End the transaction as clients do, who ask again after 51; all the answers."""
        request, codes = self.end_request(commit=commit), list[ErrorCode]()
        deadline = time.monotonic() + AGAIN_S
        while True:
            answer = connection.ask(apis.END_TXN, self.dialect.end, request)
            codes.append(ErrorCode(answer.error_code))
            if codes[-1] not in {ErrorCode.CONCURRENT_TRANSACTIONS, *MOVING}:
                break
            assert time.monotonic() < deadline, codes
            time.sleep(0.05)
        if codes[-1] == ErrorCode.NONE and self.dialect.end >= _END_BUMPS:
            if answer.producer_epoch != self.epoch:
                self._sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return codes


def end_offset(address: str, place: Place, *, stable: bool) -> int:
    """The end of a partition, or its last stable offset."""
    topic, partition = place
    rows = [ListOffsetsPartition(partition_index=partition, timestamp=LATEST)]
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=_COMMITTED if stable else _UNCOMMITTED,
        topics=[ListOffsetsTopic(name=topic, partitions=rows)],
    )
    answer = ask(address, apis.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
    row = answer.topics[0].partitions[0]
    assert row.error_code == ErrorCode.NONE, ErrorCode(row.error_code)
    return row.offset


def until_stable(address: str, place: Place, *, seconds: float = 20.0) -> None:
    """Wait until nothing of the partition is in an open transaction."""
    deadline = time.monotonic() + seconds
    while end_offset(address, place, stable=True) != end_offset(address, place, stable=False):
        assert time.monotonic() < deadline, f"{place} has an open transaction"
        time.sleep(0.05)


def until_all_know(addresses: Sequence[str], *places: Place, seconds: float = 30.0) -> None:
    """Wait until no transaction is open and every agent knows as much as that which knows most: of what
    one has acknowledged the others hear a moment later."""
    deadline = time.monotonic() + seconds
    for place in places:
        for address in addresses:
            until_stable(address, place, seconds=seconds)
        end = max(end_offset(address, place, stable=False) for address in addresses)
        for address in addresses:
            while (found := end_offset(address, place, stable=True)) < end:
                assert time.monotonic() < deadline, f"{place}: {address} knows {found} of {end}"
                time.sleep(0.05)


def visible(address: str, *places: Place) -> list[str]:
    """All that one who reads committed sees of these partitions now, in their order."""
    return [value for place in places for value in _visible(address, place)]


def _visible(address: str, place: Place) -> list[str]:
    found: list[str] = []
    offset, stable = 0, end_offset(address, place, stable=True)
    while offset < stable:
        rows = [
            FetchPartition(partition=place[1], fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        ]
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=_COMMITTED,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=place[0], partitions=rows)],
        )
        row = ask(address, apis.FETCH, FETCH_VERSION, request).responses[0].partitions[0]
        assert row.error_code == ErrorCode.NONE, ErrorCode(row.error_code)
        aborted = sorted((it.first_offset, it.producer_id) for it in row.aborted_transactions or [])
        offset = _read_page(memoryview(row.records or b""), aborted, offset, found)
    return found


def _read_page(
    data: memoryview, aborted: list[tuple[int, int]], offset: int, found: list[str]
) -> int:
    """Append what is committed of a fetched page; the next offset to fetch."""
    starts, _ = batch_positions(data)
    assert len(starts) > 0, f"nothing at {offset}, below the last stable offset (P7)"
    dropped: set[int] = set()
    for start in starts:
        header = read_header(data, start)
        end = header.base_offset + header.last_offset_delta + 1
        while aborted and aborted[0][0] < end:
            dropped.add(aborted.pop(0)[1])
        records = [it for it in iterate(data, start) if it.offset >= offset]
        if header.attributes & CONTROL:
            if any(bytes(it.key or b"") == _ABORT_KEY for it in records):
                dropped.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in dropped):
            found += [bytes(it.value or b"").decode() for it in records]
        offset = max(offset, end)
    return offset


def set_transaction_version(address: str, level: int) -> None:
    """Finalize `transaction.version` at this level, up or down."""
    for upgrade_type in (UPGRADE, SAFE_DOWNGRADE):
        update = FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type
        )
        request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update])
        answer = ask(address, apis.UPDATE_FEATURES, UPDATE_FEATURES_VERSION, request)
        codes = {answer.error_code, *(row.error_code for row in answer.results)}
        if codes == {ErrorCode.NONE}:
            return
    raise AssertionError(f"transaction.version {level}: {answer}")
