"""A late EndTxn never touches a later transaction; in Apache Kafka it tears it (KAFKA-17754).

What Jepsen found, played step by step. A client sends EndTxn for its transaction on connection A,
where it does not arrive. The client gives up, ends the transaction over connection B, begins the
next one there with the same producer id and epoch, and writes. Then what was on A arrives. Kafka
takes it for the end of the transaction that is open now: its first half is committed (or aborted)
and the rest becomes a transaction of its own that ends otherwise.

Clients of KIP-890 (EndTxn v5) have an epoch for each transaction and are safe everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from protocol import apis
from protocol.errors import ErrorCode
from tests.clients import raw_txn
from tests.clients.groups import fresh
from tests.clients.raw import Connection, Place
from tests.clients.raw_txn import LIBRDKAFKA, NEW_JAVA, OLD_JAVA, Dialect, Producer, visible
from tests.parts.servers import FrazilCluster, KafkaServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

OLD_DIALECTS = {"librdkafka": LIBRDKAFKA, "java-3": OLD_JAVA}
HELD = {"unsent": 0, "begun-length": 2, "begun-header": 11}
"""How many bytes of the late frame arrive in time."""
OK, CONCURRENT, FENCED = (
    ErrorCode.NONE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
)
INVALID = ErrorCode.INVALID_TXN_STATE


@dataclass(frozen=True)
class Seen:
    """What became of the later transaction."""

    late: ErrorCode
    """The answer to the late EndTxn."""
    open_is_visible: bool
    """Was it visible, in part, before its end?"""
    again: ErrorCode
    """The answer to a produce request after it, to a partition that took part before."""
    ends: tuple[ErrorCode, ...]
    """The answers to the later transaction's own EndTxn."""
    visible: frozenset[str]
    """What is to be read of it in the end."""


ALL_OF_IT = frozenset({"3-first", "3-second", "3-other"})


def _fresh(address: str) -> tuple[str, Place, Place]:
    """A transactional id, and two partitions of a new topic."""
    name = fresh("late-end")
    create_topic(AdminClient({"bootstrap.servers": address}), name, 2)
    return name, (name, 0), (name, 1)


def _of_three(addresses: Sequence[str], *places: Place) -> set[str]:
    """What of the later transaction every agent shows; they must agree."""
    shown = [
        {value for value in visible(address, *places) if value.startswith("3")}
        for address in addresses
    ]
    assert all(each == shown[0] for each in shown), shown
    return shown[0]


def _end_late(
    addresses: Sequence[str], dialect: Dialect, *, commit: bool, arrived: int, other: bool
) -> Seen:
    """The scenario. `commit`: the late one commits, and the later transaction is to be aborted;
    otherwise the other way round. `other`: connection B is to another agent than A.
    """
    name, first, second = _fresh(addresses[0])
    producer = Producer(name, dialect)
    with Connection(addresses[0]) as a, Connection(addresses[-1 if other else 0]) as b:
        producer.init(a)
        producer.write(a, first, "1-first")
        producer.write(a, second, "1-other")
        late = a.frame(apis.END_TXN, dialect.end, producer.end_request(commit=commit))
        a.send_bytes(late[:arrived])

        assert producer.end(b, commit=commit)[-1] == OK
        producer.write(b, first, "3-first")

        a.send_bytes(late[arrived:])
        answer = ErrorCode(a.receive().error_code)
        for place in (first, second):
            _until_markers_are_there(addresses[0], place, answer)
        before = _of_three(addresses, first, second)
        again = producer.produce(b, first, "3-second")
        producer.write(b, second, "3-other")
        ends = producer.end(b, commit=not commit)
        raw_txn.until_all_know(addresses, first, second)
        after = _of_three(addresses, first, second)
        ones = {value for value in visible(addresses[0], first, second) if value.startswith("1")}
        assert ones == ({"1-first", "1-other"} if commit else set())
    return Seen(answer, bool(before), again, tuple(ends), frozenset(after))


def _until_markers_are_there(address: str, place: Place, answer: ErrorCode) -> None:
    """Kafka answers EndTxn before its markers are written."""
    if answer == OK:
        raw_txn.until_stable(address, place)


@pytest.mark.parametrize("other", [False, True], ids=["same-agent", "other-agent"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("client", OLD_DIALECTS)
def test_a_late_end_touches_no_later_transaction(
    three_agents: FrazilCluster, client: str, held: str, *, commit: bool, other: bool
) -> None:
    addresses = [agent.bootstrap for agent in three_agents.agents]
    seen = _end_late(
        addresses, OLD_DIALECTS[client], commit=commit, arrived=HELD[held], other=other
    )
    ended = frozenset() if commit else ALL_OF_IT
    assert seen == Seen(CONCURRENT, open_is_visible=False, again=OK, ends=(OK,), visible=ended)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("arrived", [0, 11], ids=["unsent", "begun"])
def test_a_second_late_end_does_not_pass_for_the_reply_to_a_challenge(
    three_agents: FrazilCluster, arrived: int, *, commit: bool
) -> None:
    address = three_agents.bootstrap
    name, first, _ = _fresh(address)
    producer = Producer(name, LIBRDKAFKA)
    with Connection(address) as a, Connection(address) as b:
        producer.init(a)
        producer.write(a, first, "1-first")
        # librdkafka with socket.max.fails other than 1 sends it again on the same connection.
        request = producer.end_request(commit=commit)
        late = b"".join(a.frame(apis.END_TXN, LIBRDKAFKA.end, request) for _ in range(3))
        a.send_bytes(late[:arrived])
        assert producer.end(b, commit=commit)[-1] == OK
        producer.write(b, first, "3-first")
        a.send_bytes(late[arrived:])
        assert [a.receive().error_code for _ in range(3)] == [CONCURRENT] * 3
        assert _of_three([address], first) == set()
        assert producer.end(b, commit=not commit) == [OK]
        assert _of_three([address], first) == (set() if commit else {"3-first"})


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("held", HELD)
def test_a_late_end_of_a_new_client_is_fenced_by_its_epoch(
    three_agents: FrazilCluster, held: str, *, commit: bool
) -> None:
    addresses = [agent.bootstrap for agent in three_agents.agents]
    seen = _end_late(addresses, NEW_JAVA, commit=commit, arrived=HELD[held], other=True)
    ended = frozenset() if commit else ALL_OF_IT
    assert seen == Seen(FENCED, open_is_visible=False, again=OK, ends=(OK,), visible=ended)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("client", OLD_DIALECTS)
def test_apache_kafka_commits_half_of_a_transaction_by_a_late_end(
    kafka: KafkaServer, client: str, level: int
) -> None:
    seen = _end_late_in_kafka(kafka, OLD_DIALECTS[client], level, commit=True)
    print(seen)
    # The transaction was aborted, says its client; one of its three records is there.
    assert seen == Seen(
        OK, open_is_visible=True, again=INVALID, ends=(OK,), visible=frozenset({"3-first"})
    )


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("client", OLD_DIALECTS)
def test_apache_kafka_aborts_half_of_a_transaction_by_a_late_end(
    kafka: KafkaServer, client: str, level: int
) -> None:
    seen = _end_late_in_kafka(kafka, OLD_DIALECTS[client], level, commit=False)
    print(seen)
    # The transaction was committed, says its client; one of its three records is there.
    assert seen == Seen(
        OK, open_is_visible=False, again=INVALID, ends=(OK,), visible=frozenset({"3-other"})
    )


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_apache_kafka_fences_a_late_end_of_a_new_client(
    kafka: KafkaServer, *, commit: bool
) -> None:
    seen = _end_late([kafka.bootstrap], NEW_JAVA, commit=commit, arrived=0, other=False)
    ended = frozenset() if commit else ALL_OF_IT
    assert seen == Seen(FENCED, open_is_visible=False, again=OK, ends=(OK,), visible=ended)


def _end_late_in_kafka(kafka: KafkaServer, dialect: Dialect, level: int, *, commit: bool) -> Seen:
    raw_txn.set_transaction_version(kafka.bootstrap, level)
    try:
        return _end_late([kafka.bootstrap], dialect, commit=commit, arrived=0, other=False)
    finally:
        raw_txn.set_transaction_version(kafka.bootstrap, 2)


@dataclass(frozen=True)
class PipelinedSeen:
    """What became of the transaction after a pipelined [AddPartitionsToTxn, EndTxn(abort)]."""

    late: ErrorCode
    ends: tuple[ErrorCode, ...]
    visible: frozenset[str]


PIPELINED = 2
"""AddPartitionsToTxn and EndTxn."""


def _abort_pipelined_late(addresses: Sequence[str], *, before: int) -> PipelinedSeen:
    """librdkafka sends EndTxn(abort) behind an AddPartitionsToTxn that has no answer yet. Both
    arrive when the client has aborted by another connection: so many of the two before it goes on
    there, the others after that.
    """
    name, first, second = _fresh(addresses[0])
    producer = Producer(name, LIBRDKAFKA)
    with Connection(addresses[0]) as a, Connection(addresses[-1]) as b:
        producer.init(a)
        producer.write(a, first, "1-first")
        add = a.frame(apis.ADD_PARTITIONS_TO_TXN, LIBRDKAFKA.add, producer.add_request(second))
        end = a.frame(apis.END_TXN, LIBRDKAFKA.end, producer.end_request(commit=False))
        assert producer.end(b, commit=False)[-1] == OK

        def arrive(*frames: bytes) -> None:
            a.send_bytes(b"".join(frames))
            for _ in frames:
                answers.append(a.receive())

        answers: list[Any] = []
        arrive(*[add, end][:before])
        producer.write(b, first, "3-first")
        arrive(*[add, end][before:])
        late = ErrorCode(answers[1].error_code)
        if before < PIPELINED:
            for place in (first, second):
                _until_markers_are_there(addresses[0], place, late)
        producer.write(b, second, "3-other")
        ends = producer.end(b, commit=True)
        raw_txn.until_all_know(addresses, first, second)
        return PipelinedSeen(late, tuple(ends), frozenset(_of_three(addresses, first, second)))


WHOLE = frozenset({"3-first", "3-other"})


def test_a_pipelined_abort_that_arrives_late_touches_no_later_transaction(
    three_agents: FrazilCluster,
) -> None:
    addresses = [agent.bootstrap for agent in three_agents.agents]
    # The late add joins from elsewhere, so that the later transaction's end is challenged, once.
    assert _abort_pipelined_late(addresses, before=0) == PipelinedSeen(
        CONCURRENT, (CONCURRENT, OK), WHOLE
    )


def test_a_pipelined_abort_around_the_next_begin_touches_nothing(
    three_agents: FrazilCluster,
) -> None:
    addresses = [agent.bootstrap for agent in three_agents.agents]
    assert _abort_pipelined_late(addresses, before=1) == PipelinedSeen(
        CONCURRENT, (CONCURRENT, OK), WHOLE
    )


def test_a_pipelined_abort_before_the_next_begin_ends_only_what_it_began(
    three_agents: FrazilCluster,
) -> None:
    addresses = [agent.bootstrap for agent in three_agents.agents]
    assert _abort_pipelined_late(addresses, before=2) == PipelinedSeen(OK, (OK,), WHOLE)


@pytest.mark.parametrize("before", [0, 1])
def test_apache_kafka_aborts_half_of_a_transaction_by_a_late_pipelined_abort(
    kafka: KafkaServer, before: int
) -> None:
    seen = _abort_pipelined_late([kafka.bootstrap], before=before)
    print(seen)
    # The transaction was committed, says its client; one of its two records is there.
    assert seen == PipelinedSeen(OK, (OK,), frozenset({"3-other"}))
