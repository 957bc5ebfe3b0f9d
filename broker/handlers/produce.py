"""Produce (0), v3 to v13: append record batches.

Answered when every batch is durable and in the log, or refused, or when the request's time is up
(REQUEST_TIMED_OUT: what is under way may still happen). acks=1 is the same as acks=all; acks=0 has
no answer, and if a partition failed the connection is closed, which is how the client learns it.
Idempotence as in KIP-98 and KIP-360; record errors KIP-467; topic ids KIP-516. Transactions as in
KIP-98 until v11, as in KIP-890 from v12 on (`broker.transactions.batch_transactions`).

A request naming a topic that is not known here waits for a barrier (P8), and so does one with
batches of a transaction of which this replica knows nothing, or with a large batch that must be
opened away from the loop (`broker.produce.validation.Unread`), or one whose values are to be decoded by
their schemas (`Undecoded`), until that is done; a batch that names
schemas which are not known here is judged again behind a barrier. Those behind it on its connection
wait with it (P10).

Not served: v0 to v2 (never parsed).
"""

import asyncio
import logging
from typing import Final

from broker import guards
from broker.api import Api, Hot, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.software import software_of
from broker.node import Node
from broker.produce.commit_queue import WITHOUT_LOG_START, Ticket
from broker.produce.produce_path import NO_SESSION
from broker.produce.validation import InvalidBatch, Read, Undecoded, Unread, ValidBatch, validate
from broker.produce.value_checking import UndecidedError
from broker.transactions.batch_transactions import (
    Producer,
    Refusal,
    explain,
    instance_of,
    is_seen,
    producer_of,
)
from coordinator.log.metadata_log import LogUnavailableError
from coordinator.tables.topics import Topic
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.produce import (
    TOPIC_IDS_FROM,
    PartitionResult,
    ProduceRequest,
    ProduceTopic,
    TopicResult,
    encode_response,
    parse_request,
)
from txn.error_codes import for_produce
from txn.transactions import NO_TRANSACTION

logger = logging.getLogger(__name__)

ACKS_ALLOWED: Final = frozenset({-1, 0, 1})


OUT_OF_REACH: Final = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the metadata log is out of reach")
WRITE_ID: Final = Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, ("transactional_id",))
WRITE_TOPIC: Final = Right(
    Operation.WRITE, Resource.TOPIC, ("topic_data[].name", "topic_data[].topic_id")
)


def start(node: Node, call: Call) -> None:
    """Take a request; its answer comes by callback. Raises ProtocolError when malformed."""
    request = _Request(node, call, parse_request(call.version, call.body))
    connection = call.connection
    if not connection.software.produces:
        name, version, _ = connection.software
        connection.software = software_of(name, version, produces=True)
    if call.usage is not None:
        call.throttle_ms = call.usage.producing(call.frame_bytes)
    producing = node.producing
    if producing.is_deferring(call.connection.number) or request.needs_barrier():
        producing.defer(call.connection.number, request)
    else:
        request.begin()
        if request.has_unread:
            producing.defer(call.connection.number, request)


def refuse(node: Node, call: Call, error: KafkaError) -> None:
    """Refuse every partition of a request. Raises ProtocolError when malformed."""
    parsed = parse_request(call.version, call.body)
    for topic in parsed.topics:
        found = _find(node, topic)
        if found is not None:
            for partition, data in topic[2]:
                node.producing.refused(found.topic_id, partition, data, version=call.version)
    if parsed.acks == 0:
        call.close(f"a Produce request with acks=0 is refused: {error}")
        return
    topics: list[TopicResult] = [
        (
            name,
            topic_id,
            [
                PartitionResult(partition, error.code, error_message=error.message or None)
                for partition, _ in partitions
            ],
        )
        for name, topic_id, partitions in parsed.topics
    ]
    call.answer([encode_response(call.version, topics)])


API: Final = Api(
    key=apis.PRODUCE,
    handler=Hot(start, refuse),
    unavailable=ErrorCode.NOT_ENOUGH_REPLICAS,
    changes=True,
    rights=(WRITE_ID, WRITE_TOPIC),
)


def _find(node: Node, topic: ProduceTopic) -> Topic | None:
    topics = node.log_client.machine.topics
    name, topic_id, _ = topic
    if topic_id is not None:
        return topics.by_id(topic_id)
    assert name is not None
    return topics.by_name(name)


_Judged = tuple[int, Topic, int, memoryview | None, Read | Unread]
"""A batch of a request: its index, topic and partition, its bytes, and what is known of it."""


class _Request:
    """A Produce request until it is answered."""

    __slots__ = (
        "_answered",
        "_asks",
        "_begun",
        "_call",
        "_instance",
        "_node",
        "_open",
        "_parsed",
        "_producer",
        "_reached",
        "_results",
        "_unread",
        "deadline",
    )

    def __init__(self, node: Node, call: Call, parsed: ProduceRequest) -> None:
        self._node = node
        self._call = call
        self._parsed = parsed
        self._asks = guards.asker(node, call)
        self._producer = self._producer_of(parsed)
        """Of the transactional batches, if there are any; or why nothing can be done."""
        self._instance: int | Refusal = NO_TRANSACTION
        """Which transaction they belong to, once the request has begun."""
        count = 0
        for topic in parsed.topics:
            count += len(topic[2])
        self._results: list[PartitionResult | None] = [None] * count
        # One more than there are: nothing is answered before every batch has been looked at.
        self._open = count + 1
        self._answered = False
        self._begun = False
        self._reached: bool | None = None
        """Whether there was a barrier for what is not known here; None: nobody has asked."""
        self._unread: list[_Judged] = []
        """From the first batch on that has to be opened away from the loop: what is still to take."""
        self.deadline = node.producing.time() + max(0, parsed.timeout_ms) / 1000
        """In the loop's time."""

    def _producer_of(self, parsed: ProduceRequest) -> Producer | Refusal | None:
        """As in Kafka, a right to the transactional id is asked for where there are transactional
        batches, and not for its name alone."""
        transactional_id = parsed.transactional_id
        found = producer_of(transactional_id, parsed.topics)
        if (
            found is None
            or self._asks is None
            or transactional_id is None
            or self._asks.permits(WRITE_ID, transactional_id)
        ):
            return found
        error = guards.refusal_for(Resource.TRANSACTIONAL_ID)
        return Refusal(error.code, error.message)

    def needs_barrier(self) -> bool:
        """It names a topic, a partition or a transaction that a newer replica might know."""
        if isinstance(self._producer, Refusal) or self._begun:
            return False
        for topic in self._parsed.topics:
            found = _find(self._node, topic)
            if self._is_refused(topic, found):
                continue
            if found is None:
                return True
            for partition, _ in topic[2]:
                if not 0 <= partition < found.partition_count:
                    return True
        return self._producer is not None and not self._sees_transaction(self._producer)

    def _sees_transaction(self, producer: Producer) -> bool:
        assert self._parsed.transactional_id is not None
        # Of all topics, not only those with transactional batches: clients do not mix.
        places = [
            (found.topic_id, partition)
            for topic in self._parsed.topics
            if (found := _find(self._node, topic)) is not None
            for partition, _ in topic[2]
        ]
        return is_seen(
            self._node.log_client.machine.transactions,
            self._parsed.transactional_id,
            producer,
            places,
            version=self._call.version,
        )

    def begin(self, *, reached: bool = True) -> None:
        """Judge every batch and hand over what is sound.

        Not `reached`: the metadata log is out of reach, so "unknown" would not be certain.
        """
        if self._call.connection.closed or self._begun:
            return
        self._begun = True
        refusal = self._refusal(reached=reached)
        if isinstance(self._producer, Producer) and refusal is None:
            self._instance = self._name_transaction(self._producer)
        index = 0
        for topic in self._parsed.topics:
            found = _find(self._node, topic)
            of_topic = refusal or self._topic_refusal(topic, found)
            for partition, data in topic[2]:
                if of_topic is not None:
                    self._refuse(index, found, partition, data, of_topic)
                elif found is None or not 0 <= partition < found.partition_count:
                    self._fail(index, partition, self._unknown(found), None)
                else:
                    self._take(index, found, partition, data)
                index += 1
        self._open -= 1
        if self._open:
            self._node.producing.watch(self)
        else:
            self._answer()

    @property
    def has_unread(self) -> bool:
        return bool(self._unread)

    async def take_unread(self) -> None:
        """Open what has to be opened, and take that and what is behind it. What a client that is
        gone, or that was told that its time is up, has left is not taken any more."""
        for index, topic, partition, data, verdict in self._unread:
            judged = await self._decide(topic, data, verdict)
            if isinstance(judged, Refusal):
                self._refuse(index, topic, partition, data, judged)
            elif judged is None or self._is_over():
                self._node.producing.refused(
                    topic.topic_id, partition, data, version=self._call.version
                )
            else:
                self._take_judged(index, topic, partition, judged)
        self._unread = []

    async def _decide(
        self, topic: Topic, data: memoryview | None, verdict: Read | Unread
    ) -> ValidBatch | InvalidBatch | Refusal | None:
        """A refusal: it cannot be judged now. None: it cannot be read, or nobody waits for it."""
        judged = await self._read(verdict)
        if isinstance(judged, InvalidBatch) and judged.may_pass:
            if self._reached is None:
                self._reached = await self._reach()
            if not self._reached:
                return OUT_OF_REACH
            judged = await self._read(self._validate(topic, data))
        return await self._decode(judged) if isinstance(judged, Undecoded) else judged

    async def _decode(self, undecoded: Undecoded) -> ValidBatch | InvalidBatch | Refusal:
        try:
            return await self._node.value_checking.validate(
                undecoded, self._call, is_over=self._is_over
            )
        except UndecidedError as error:
            return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, str(error))

    async def _reach(self) -> bool:
        """False when nobody can say what there is by now (P8)."""
        try:
            await self._node.log_client.barrier()
        except LogUnavailableError:
            return False
        return True

    async def _read(self, batch: Read | Unread) -> Read | None:
        if not isinstance(batch, Unread):
            return batch
        run = self._node.off_loop.run(
            batch.work, records=batch.records, call=self._call, gone=self._is_over
        )
        # An error that nobody foresaw ends the connection, as in `broker.edge.dispatch`.
        (outcome,) = await asyncio.gather(run, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            return outcome
        self._node.stats.failed_handlers += 1
        logger.error("a batch of %r cannot be read", self._call, exc_info=outcome)
        self._call.close("internal error")
        return None

    def _is_over(self) -> bool:
        return self._answered or self._call.abandoned

    def settle(self, index: int, result: PartitionResult) -> None:
        """One of the batches is in the log, or will not be. After a time-out nobody listens."""
        if self._answered:
            return
        assert self._results[index] is None
        if result.error and isinstance(self._producer, Producer):
            self._translate(result, self._producer)
        self._results[index] = result
        self._open -= 1
        if not self._open:
            self._node.producing.unwatch(self)
            self._answer()

    def time_out(self) -> None:
        """The client's time is up: what is still open may happen or not."""
        assert not self._answered
        self._node.producing.unwatch(self)
        if self._parsed.acks == 0:
            self._finish()
            self._call.close("a Produce request with acks=0 took too long")
            return
        places = (partition for _, _, rows in self._parsed.topics for partition, _ in rows)
        for index, partition in enumerate(places):
            if self._results[index] is None:
                self._results[index] = PartitionResult(partition, ErrorCode.REQUEST_TIMED_OUT)
        self._answer()

    def _refusal(self, *, reached: bool) -> Refusal | None:
        """Why nothing of the request can be done."""
        if isinstance(self._producer, Refusal):
            return self._producer
        if not reached:
            return OUT_OF_REACH
        if self._parsed.acks not in ACKS_ALLOWED:
            return Refusal(ErrorCode.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
        if self._node.log_client.incarnation() is None:
            return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_SESSION)
        return None

    def _is_refused(self, topic: ProduceTopic, found: Topic | None) -> bool:
        """It may not be written to, whether it is there or not."""
        name = topic[0] if found is None else found.name
        return (
            self._asks is not None and name is not None and not self._asks.allows(WRITE_TOPIC, name)
        )

    def _topic_refusal(self, topic: ProduceTopic, found: Topic | None) -> Refusal | None:
        """The same, told, and in words."""
        if self._asks is None or not self._is_refused(topic, found):
            return None
        name = topic[0] if found is None else found.name
        self._asks.refused(WRITE_TOPIC, name or "")
        error = guards.refusal_for(Resource.TOPIC)
        return Refusal(error.code, error.message)

    def _name_transaction(self, producer: Producer) -> int | Refusal:
        assert self._parsed.transactional_id is not None
        return instance_of(
            self._node.log_client.machine.transactions,
            self._parsed.transactional_id,
            producer,
            version=self._call.version,
            clock=self._call.clock,
        )

    def _translate(self, result: PartitionResult, producer: Producer) -> None:
        """Say it as the client's version says it, and in words."""
        error = ErrorCode(result.error)
        if result.error_message is None and self._parsed.transactional_id is not None:
            transactions = self._node.log_client.machine.transactions
            row = transactions.get(self._parsed.transactional_id)
            result.error_message = explain(error, row, producer)
        result.error = for_produce(error, self._call.version)

    def _refuse(
        self,
        index: int,
        topic: Topic | None,
        partition: int,
        data: memoryview | None,
        refusal: Refusal,
    ) -> None:
        if topic is not None:
            self._node.producing.refused(
                topic.topic_id, partition, data, version=self._call.version
            )
        self._fail(index, partition, refusal.error, refusal.message)

    def _unknown(self, found: Topic | None) -> ErrorCode:
        """Of a topic that is there, it is the partition that is not."""
        if found is None and self._call.version >= TOPIC_IDS_FROM:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _fail(self, index: int, partition: int, error: ErrorCode, message: str | None) -> None:
        self.settle(index, PartitionResult(partition, error, error_message=message))

    def _validate(self, topic: Topic, data: memoryview | None) -> Read | Unread:
        return validate(
            data,
            self._node.producing.rules.of(topic),
            version=self._call.version,
            now_ms=self._node.now_ms(),
            store_ms=self._node.store_ms(),
            find_schema=self._node.log_client.machine.schemas.by_id,
        )

    def _take(self, index: int, topic: Topic, partition: int, data: memoryview | None) -> None:
        verdict = self._validate(topic, data)
        may_pass = isinstance(verdict, InvalidBatch) and verdict.may_pass
        if self._unread or may_pass or isinstance(verdict, Unread | Undecoded):
            self._unread.append((index, topic, partition, data, verdict))
        else:
            self._take_judged(index, topic, partition, verdict)

    def _take_judged(
        self, index: int, topic: Topic, partition: int, verdict: ValidBatch | InvalidBatch
    ) -> None:
        if isinstance(verdict, InvalidBatch):
            self.settle(index, self._unsound(topic, partition, verdict))
            return
        producing = self._node.producing
        header = verdict.header
        instance = self._instance if header.is_transactional else NO_TRANSACTION
        if isinstance(instance, Refusal):
            self.settle(index, self._unsound(topic, partition, InvalidBatch(*instance)))
            return
        if producing.overtakes(topic.topic_id, partition, header, instance):
            refused = InvalidBatch(
                ErrorCode.NOT_ENOUGH_REPLICAS, "an earlier batch of the producer failed"
            )
            self.settle(index, self._unsound(topic, partition, refused))
            return
        producer_id = header.producer_id
        ticket = Ticket(
            self,
            index,
            sender=producer_id if producer_id >= 0 else -1 - self._call.connection.number,
            log_append_time=verdict.log_append_time,
        )
        producing.add(
            ticket,
            topic.topic_id,
            partition,
            verdict.data,
            header,
            timestamp_max=verdict.timestamp_max,
            instance=instance,
        )

    def _unsound(self, topic: Topic, partition: int, verdict: InvalidBatch) -> PartitionResult:
        row = self._node.log_client.machine.partitions.get(topic.topic_id, partition)
        with_start = row is not None and verdict.error not in WITHOUT_LOG_START
        return PartitionResult(
            partition,
            verdict.error,
            log_start_offset=row.log_start if row is not None and with_start else -1,
            record_errors=verdict.record_errors,
            error_message=verdict.message,
        )

    def _answer(self) -> None:
        call = self._call
        if call.usage is not None:
            call.throttle_ms = call.usage.produced()
        if call.connection.closed:
            self._finish()
        elif self._parsed.acks == 0:
            failed = [result for result in self._results if result is not None and result.error]
            self._finish()
            if failed:
                error = ErrorCode(failed[0].error).name
                call.close(f"a Produce request with acks=0 failed: {error}")
            else:
                call.answer(None)
        else:
            body = encode_response(call.version, self._answers(), throttle_time_ms=call.throttle_ms)
            self._finish()
            call.answer([body])

    def _answers(self) -> list[TopicResult]:
        results = self._results
        topics: list[TopicResult] = []
        first = 0
        for name, topic_id, partitions in self._parsed.topics:
            end = first + len(partitions)
            rows = [result for result in results[first:end] if result is not None]
            assert len(rows) == len(partitions)
            topics.append((name, topic_id, rows))
            first = end
        return topics

    def _finish(self) -> None:
        """Let go of the frame: batches still under way keep what they need of it."""
        self._answered = True
        self._parsed = _NOTHING
        self._results = []


_NOTHING: Final = ProduceRequest(None, 0, 0, [])
