"""A transactional producer of simulated worlds, as a state machine over the wire.

It behaves as Kafka's clients do: of the generation before KIP-890 (TV1: partitions and groups are
added by requests, EndTxn up to v4, the epoch stays) or of that one (TV2: Produce v12 and
TxnOffsetCommit v5 add by themselves, EndTxn v5 tells the next epoch). It asks again on errors that
say so, makes a new connection after a time-out, recovers by InitProducerId where KIP-360 allows
it, and gives up when it is fenced.

The network holds frames back now and then, so that they arrive when the client has moved on. Left
out: TxnOffsetCommits of TV1 clients that the network holds back. Nothing in them says which
transaction they mean, and they travel on another connection than EndTxn; Kafka has no cure for
them either.
"""

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import hot
from protocol.records import TRANSACTIONAL, Record, build_batch
from tests.kit import requests
from tests.kit.chances import Chances
from tests.kit.loop import SimLoop
from tests.kit.requests import GROUP, NOBODY, TRANSACTION, Partition, error_of, rows_of
from tests.sim.client import ELSEWHERE, Address, Connection, LostError
from tests.sim.cut import WHOLE, Cut
from tests.sim.txn_account import DOOMED, Told, TxnAccount
from tests.sim.workload import PRODUCE_VERSIONS, TOPIC
from tests.sim.world import World

IN_FLIGHT_MAX = 5
TIMESTAMP = 1_600_000_000_000

AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The same request on the same connection, after a while."""
FENCED = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
SEND_AGAIN = {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""A batch goes out again, with the sequence that it had."""
NOT_OF_THE_GROUP = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


class FencedError(Exception):
    """This producer is of no use any more."""


class AbortError(Exception):
    """The transaction can only be aborted."""


@dataclass(eq=False)
class Batch:
    partition: Partition
    values: list[bytes]
    first_sequence: int


@dataclass
class Mischief:
    """How often the network holds back a frame; none when the faults are over."""

    chances: Chances
    hold: float = 0.0
    give_up: float = 0.0
    """How often a client has had enough of batches without an answer, and aborts."""

    def holds(self, name: str) -> str | None:
        """The next frames of this client: what the fault is called, when there is one."""
        fault = f"{self.chances.numbered(f'{name}.frames')}.held"
        return fault if self.chances.happens(fault, self.hold) else None


class TxnCluster(World):
    """What transactional clients share, beside agents."""

    def __init__(self, loop: SimLoop, rng: random.Random, cut: Cut = WHOLE) -> None:
        super().__init__(loop, rng, cut)
        self.account = TxnAccount(self.violations, self.counts, merged=self.shape.jobs)
        self.account.proven_s = self.agents.proven_s
        self.mischief = Mischief(self.chances)
        self.input_records = rng.choice((0, 4, 8))
        """In each partition of the input."""
        self.doomed_is_gone = False


class TxnProducer:
    """One producer, from its InitProducerId until it is fenced or forgotten."""

    def __init__(
        self,
        world: TxnCluster,
        name: str,
        transactional_id: str,
        *,
        tv2: bool,
        timeout_ms: int,
        group_id: str,
    ) -> None:
        self._loop = world.loop
        self._network = world.network
        self._mischief = world.mischief
        self.account = world.account
        rng = world.draw(f"producer {name}")
        self._rng = rng
        self.name = name
        self.transactional_id = transactional_id
        self.tv2 = tv2
        self._timeout_ms = timeout_ms
        self._group_id = group_id
        timeout_s = rng.choice((1.0, 3.0))
        if world.draw(f"patience of {name}").random() < 0.2:
            timeout_s = 20.0  # As librdkafka and Java have it, or longer.
        self._coordinators = world.client(name, timeout_s)
        # Java has one connection to an agent for everything, librdkafka and others have two.
        shared = rng.random() < 0.5
        self._leaders = self._coordinators if shared else world.client(name, timeout_s)
        self._coordinator: Address | None = None
        self._group_coordinator: Address | None = None
        self._end_version = 5 if tv2 else rng.choice((0, 1, 2, 3, 4))
        self._producer = NOBODY
        self._sequences: dict[Partition, int] = {}
        self._backlog: list[Batch] = []
        self._added: set[Partition | str] = set()
        self._careless = not tv2 and rng.random() < 0.3
        """It does not mind batches of unknown fate when it aborts, and goes on in the same epoch.
        Then a batch that its agent has read and is slow with must not slide into what comes next;
        one that is still in the network would, in Kafka too."""
        self._delivery = world.draw(f"delivery of {name}")
        self._moves = self._delivery.choice((0.08, 0.08, 0.08, 0.5))
        """How often it finds its coordinator anew."""
        self._must_init = False
        """The sequences are in doubt, or the epoch is (KIP-360)."""
        self._told: Told | None = None
        self._process = self.account.process()

    def close(self) -> None:
        if self._told is not None:
            self.account.complete(self._told)
        self._coordinators.close()
        self._leaders.close()

    @property
    def told(self) -> Told:
        """The transaction that has begun."""
        assert self._told is not None
        return self._told

    async def init(self) -> None:
        """InitProducerId: as a new one, or with the id and epoch that it has."""
        version = 5 if self.tv2 else self._rng.choice((0, 1, 3, 4))
        request = requests.init_producer_id(
            self.transactional_id,
            timeout_ms=self._timeout_ms,
            producer=self._producer if version >= 3 else NOBODY,
        )
        answer = await self._ask(apis.INIT_PRODUCER_ID, version, request)
        self._expect(answer.error_code, "InitProducerId")
        self._goes_on_as(answer.producer_id, answer.producer_epoch)
        self._must_init = False

    def become_tv2(self) -> None:
        """The feature was finalized while the client lived: it bumps its epoch (KIP-890)."""
        self.tv2 = True
        self._end_version = 5
        self._must_init = True

    async def begin(self) -> Told:
        if self._must_init:
            await self.init()
        self._added.clear()
        if self._told is not None:
            self.account.complete(self._told)
        self._told = self.account.begin(
            self.transactional_id, self.name, self._process, self._loop.time()
        )
        return self._told

    def queue(self, partition: Partition, values: list[bytes]) -> None:
        """Records to send, in one batch; `flush` does."""
        first_sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = first_sequence + len(values)
        self.told.sent.update(dict.fromkeys(values, partition))
        self._backlog.append(Batch(partition, values, first_sequence))

    async def add(self) -> None:
        """AddPartitionsToTxn for what is queued (TV1)."""
        request = self._addition()
        if request is None:
            return
        version = self._rng.choice((0, 1, 2, 3))
        error = error_of(await self._ask(apis.ADD_PARTITIONS_TO_TXN, version, request))
        if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise AbortError(error)
        self._expect(error, "AddPartitionsToTxn")
        self._added |= {batch.partition for batch in self._backlog}

    def _addition(self) -> messages.AddPartitionsToTxnRequest | None:
        wanted = sorted({batch.partition for batch in self._backlog} - self._added)
        if self.tv2 or not wanted:
            return None
        return requests.add_partitions(self.transactional_id, self._producer, wanted)

    async def flush(self) -> None:
        """Send what is queued until all of it is acknowledged. Raises AbortError, FencedError."""
        await self.add()
        while self._backlog:
            try:
                connection = await self._leaders.connect(self._leaders.anybody())
            except LostError:
                await self._rest()
                continue
            if fault := self._mischief.holds(self.name):
                self._hold(fault, connection, answers_only=self._careless)
            version = 12 if self.tv2 else self._rng.choice(PRODUCE_VERSIONS)
            sent = [
                (batch, self._leaders.send(connection, apis.PRODUCE, version, self._batch(batch)))
                for batch in self._backlog[:IN_FLIGHT_MAX]
            ]
            await self._have_enough(connection, [future for _, future in sent])
            failed: Exception | None = None
            for batch, future in sent:
                try:
                    answer = await self._leaders.answer(connection, future)
                    self._produced(batch, rows_of(answer)[batch.partition])
                except LostError:
                    continue
                except (AbortError, FencedError) as error:
                    failed = failed or error  # The others are waited for all the same.
            if failed is not None:
                raise failed
            if self._backlog and self._rng.random() < self._mischief.give_up:
                raise AbortError  # Its delivery timeout is over.
            if self._backlog:
                await self._rest()

    async def _have_enough(
        self, connection: Connection, answers: Collection[asyncio.Future[Any]]
    ) -> None:
        """The delivery timeout of a careless client may be over while an agent is at its batches, and
        its connection lives. Raises AbortError."""
        delivery = self._delivery
        if self._careless and delivery.random() < self._mischief.give_up:
            _, left = await asyncio.wait(answers, timeout=delivery.choice((0.02, 0.1, 0.5)))
            if left and self._network.has_read(connection.transport):
                self.account.counts["had enough"] += 1
                raise AbortError

    def _batch(self, batch: Batch) -> hot.ProduceRequest:
        producer_id, epoch = self._producer
        records = build_batch(
            [Record(value=value, timestamp=TIMESTAMP) for value in batch.values],
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=batch.first_sequence,
        )
        return requests.produce({batch.partition: records}, transactional_id=self.transactional_id)

    def _produced(self, batch: Batch, answer: hot.PartitionProduceResponse) -> None:
        error = answer.error_code
        if error == ErrorCode.NONE:
            for index, value in enumerate(batch.values):
                self.told.acked[value] = answer.base_offset + index
            self._backlog.remove(batch)
            return
        if error == ErrorCode.NOT_ENOUGH_REPLICAS:
            self.account.refused(self.name, self.transactional_id, answer.error_message)
        first = next(b for b in self._backlog if b.partition == batch.partition)
        if error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch is not first:
            return  # The one ahead is not there yet; it goes again.
        if batch.partition[0] == DOOMED:
            raise AbortError(error)
        if error in SEND_AGAIN:
            return
        if error == ErrorCode.INVALID_PRODUCER_EPOCH:  # Perhaps timed out (KIP-588).
            self._must_init = True
            raise AbortError(error)
        self._expect(error, "Produce", {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, *self._outside()})
        self._must_init = self._must_init or error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        raise AbortError(error)

    async def send_offsets(
        self, offsets: dict[int, int], *, member_id: str = "", generation: int = -1
    ) -> None:
        """Offsets of the input topic, for the producer's group, in the transaction."""
        producer_id, epoch = self._producer
        if not self.tv2 and self._group_id not in self._added:
            addition = messages.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=self._group_id,
            )
            version = self._rng.choice((0, 1, 2, 3))
            answer = await self._ask(apis.ADD_OFFSETS_TO_TXN, version, addition)
            self._expect(answer.error_code, "AddOffsetsToTxn")
            self._added.add(self._group_id)
        request = messages.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self._group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=generation,
            member_id=member_id,
            topics=[
                messages.TxnOffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        messages.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                        for index, offset in offsets.items()
                    ],
                )
            ],
        )
        self.told.offsets_sent = True
        version = 5 if self.tv2 else self._rng.choice((3, 4))
        answer = await self._ask(apis.TXN_OFFSET_COMMIT, version, request, of_group=True)
        error = error_of(answer)
        if error == ErrorCode.INVALID_PRODUCER_EPOCH:
            self._must_init = True
            raise AbortError(error)
        self._expect(error, "TxnOffsetCommit", NOT_OF_THE_GROUP | self._outside())
        if error != ErrorCode.NONE:
            raise AbortError(error)
        self.told.offsets_acked = True

    async def group_coordinator(self) -> Address:
        """Raises LostError when there is none to be found now."""
        if self._group_coordinator is None:
            self._group_coordinator = await self._coordinators.coordinator(self._group_id, GROUP)
        return self._group_coordinator

    def not_group_coordinator(self) -> None:
        self._group_coordinator = None

    async def end(self, *, commit: bool) -> None:
        """EndTxn until it is answered. Raises AbortError (of a commit), FencedError."""
        told = self.told
        if self._backlog:
            # What was not acknowledged may have been written or may come late: not again.
            self._backlog.clear()
            self._must_init = self._must_init or not (self.tv2 or self._careless)
        if not (self._added or (self.tv2 and (told.sent or told.offsets_sent))):
            return  # Nothing that anybody else would know of.
        if commit:
            told.commit_asked = True
        else:
            told.abort_asked = True
        answer = await self._ask(apis.END_TXN, self._end_version, self._ending(commit=commit))
        self._ended(answer, commit=commit)

    def _ending(self, *, commit: bool) -> messages.EndTxnRequest:
        return requests.end_txn(self.transactional_id, self._producer, commit=commit)

    def _ended(self, answer: Any, *, commit: bool) -> None:
        if answer.error_code == ErrorCode.TRANSACTION_ABORTABLE and commit:
            raise AbortError(answer.error_code)
        invalid = commit and not self.tv2 and answer.error_code == ErrorCode.INVALID_TXN_STATE
        if invalid and self.account.is_known_refusal(self.told, *self._producer):
            raise FencedError
        self._expect(answer.error_code, "EndTxn")
        self.account.ended(self.told, commit=commit, group_id=self._group_id)
        if self._end_version >= 5:
            self._goes_on_as(answer.producer_id, answer.producer_epoch)

    async def add_and_abort(self) -> bool:
        """librdkafka: EndTxn(abort) goes out behind an unanswered AddPartitionsToTxn.

        False: there is nothing to add.
        """
        request = self._addition()
        if request is None:
            return False
        self.told.abort_asked = True
        for batch in reversed(self._backlog):  # None of them was sent.
            self._sequences[batch.partition] = batch.first_sequence
        self._backlog.clear()
        self.account.counts["pipelined"] += 1
        version = self._rng.choice((0, 1, 2, 3))
        try:
            connection = await self._to_coordinator()
            if fault := self._mischief.holds(self.name) or self._mischief.holds(self.name):
                self._hold(fault, connection)
            ask = self._coordinators
            added = ask.send(connection, apis.ADD_PARTITIONS_TO_TXN, version, request)
            ended = ask.send(
                connection, apis.END_TXN, self._end_version, self._ending(commit=False)
            )
            await ask.answer(connection, added)
            answer = await ask.answer(connection, ended)
        except LostError:
            self._coordinator = None
            answer = None
        if answer is None or answer.error_code in AGAIN or answer.error_code in ELSEWHERE:
            answer = await self._ask(apis.END_TXN, self._end_version, self._ending(commit=False))
        if answer.error_code == ErrorCode.INVALID_TXN_STATE and not self.told.acked:
            return True  # The partitions were never added, so there was nothing to abort.
        self._ended(answer, commit=False)
        return True

    # Requests to the coordinators of the transactional id and of the group.

    async def _ask(self, key: int, version: int, request: Any, *, of_group: bool = False) -> Any:
        """Until the answer is not that it should be asked again."""
        if not of_group and self._mischief.hold and self._rng.random() < self._moves:
            self._coordinator = None  # Its connection was idle for too long, or the other moved.
        client = self._leaders if of_group else self._coordinators
        answers_only = of_group and not self.tv2
        while True:
            error = None
            try:
                if of_group:
                    connection = await client.connect(await self.group_coordinator())
                else:
                    connection = await self._to_coordinator()
                if fault := self._mischief.holds(self.name):
                    self._hold(fault, connection, answers_only=answers_only)
                answer = await client.asked(connection, key, version, request)
                error = error_of(answer)
                if error == ErrorCode.REQUEST_TIMED_OUT and not of_group:
                    # Clients take an error for the end of it, and what they asked for may be done.
                    told = f"{self.name} was told that {type(request).__name__} timed out (P4)"
                    self.account.violations.append(told)
                if error not in ELSEWHERE and error not in AGAIN:
                    return answer
            except LostError:
                self.account.counts["lost"] += 1
            if error not in AGAIN:
                self._forget_coordinator(of_group=of_group)
            elif key == apis.END_TXN and error == ErrorCode.CONCURRENT_TRANSACTIONS:
                self.account.counts["challenged"] += 1
            await self._rest()

    def _forget_coordinator(self, *, of_group: bool) -> None:
        if of_group:
            self._group_coordinator = None
        else:
            self._coordinator = None

    async def _to_coordinator(self) -> Connection:
        if self._coordinator is None:
            if self._rng.random() < 0.5:
                self._coordinator = self._coordinators.anybody()  # Any agent will do.
            else:
                found = self._coordinators.coordinator(self.transactional_id, TRANSACTION)
                self._coordinator = await found
        return await self._coordinators.connect(self._coordinator)

    def _hold(self, fault: str, connection: Connection, *, answers_only: bool = False) -> None:
        """Requests, answers or both arrive late, mostly when the client has moved on."""
        if connection.transport.peer is None:
            return
        self.account.counts["held"] += 1
        rng = self._mischief.chances.stream(fault)
        seconds = rng.choice((0.5, 2.0, 4.0, 8.0, 15.0))
        kind = rng.choice(("requests", "requests", "answers", "both"))
        if answers_only:
            kind = "answers"
        if kind != "answers":
            self._network.hold(connection.transport.peer, seconds)
        if kind != "requests":
            self._network.hold(connection.transport, seconds)

    async def _rest(self) -> None:
        await asyncio.sleep(self._rng.choice((0.02, 0.1, 0.3)))

    # What answers mean.

    def _outside(self) -> set[ErrorCode]:
        """What says that the transaction is open no more. The cluster's own ends bump the epoch,
        so a TV1 client hears it only when an EndTxn ended a transaction that it was not meant for.
        """
        return {ErrorCode.TRANSACTION_ABORTABLE} if self.tv2 else set()

    def _goes_on_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._producer = (producer_id, epoch)
            self._sequences.clear()

    def _expect(self, error: int, what: str, expected: Collection[ErrorCode] = frozenset()) -> None:
        """Nothing but success and these: other errors are not for a client that does as it should."""
        if error == ErrorCode.NONE or error in expected:
            return
        if error in FENCED:
            self.account.counts["fenced"] += 1
        else:
            self.account.violations.append(
                f"{self.name} ({'TV2' if self.tv2 else 'TV1'}) was told {ErrorCode(error).name} "
                f"for {what} in {self._told}"
            )
        raise FencedError
