"""kafka-transactions.sh and kafka-features.sh of Kafka 4.3, and `frazil txn` and `frazil feature`.

Everything is tried against Apache Kafka too: what holds there must hold here. Where the two
differ, a test says how.
"""

import contextlib
import io
import json
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.cli import main
from tests.clients.bounded import until
from tests.clients.groups import fresh
from tests.clients.kafka_tools import FEATURES, TRANSACTIONS, KafkaTools, columns, table
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

TOPIC = "transacted"
PARTITIONS = 2
TIMEOUT_MS = 600_000
TOLD_S = 30.0
TRANSACTION_VERSION = "transaction.version"


class Cluster(NamedTuple):
    """With three producers: one has committed, one is in a transaction, one has done nothing."""

    bootstrap: str
    is_kafka: bool
    open_since_ms: int


@pytest.fixture(scope="module", params=["kafka", "embedded", "three_agents"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    bootstrap = request.getfixturevalue(request.param).bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topic(admin, TOPIC, PARTITIONS)
    made = Cluster(bootstrap, request.param == "kafka", 0)
    done = producer(bootstrap, "done")
    write(done, {0: 2})
    done.commit_transaction(30)
    # Kafka answers before the marker is written: what comes next could lie before it.
    until(
        lambda: frazil(made, "txn", "describe", "done").out,
        lambda told: "CompleteCommit" in told,
    )
    idle = producer(bootstrap, "idle")
    open_one = producer(bootstrap, "open")
    before_ms = time.time_ns() // 1_000_000
    write(open_one, {0: 1, 1: 1})
    yield made._replace(open_since_ms=before_ms)
    open_one.abort_transaction(30)
    del done, idle


def producer(bootstrap: str, transactional_id: str) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
        }
    )
    made.init_transactions(60)
    return made


def write(producer: Producer, counts: dict[int, int]) -> None:
    """Begin a transaction with records in these partitions."""
    producer.begin_transaction()
    for partition, count in counts.items():
        for _ in range(count):
            producer.produce(TOPIC, b"record", partition=partition)
    assert producer.flush(60) == 0


class Printed(NamedTuple):
    code: int
    out: str
    err: str


def frazil(cluster: Cluster, *arguments: str) -> Printed:
    """`frazil …`, in this process, since there are many."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main([*arguments, "--bootstrap", cluster.bootstrap])
    return Printed(code, out.getvalue(), err.getvalue())


def rows(printed: Printed) -> list[dict[str, str]]:
    assert printed.code == 0, printed.err
    return table(printed.out)


def test_kafkas_tool_lists_transactional_ids_with_their_states(
    tools: KafkaTools, cluster: Cluster
) -> None:
    listed = columns(tools.run(TRANSACTIONS, cluster.bootstrap, "list"))
    states = {row["TransactionalId"]: row["TransactionState"] for row in listed}
    expected = {"done": "CompleteCommit", "open": "Ongoing", "idle": "Empty"}
    assert {name: states[name] for name in expected} == expected
    assert len(listed) == len(states), "each is listed by one agent"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--transactional-id-pattern", "o.*|idle"], {"idle", "open"}),
        (["--transactional-id-pattern", "ope"], set()),
        # Nothing that began less than a day ago; what never began counts, in Kafka too.
        (["--duration-filter", "86400000", "--transactional-id-pattern", "open|idle"], {"idle"}),
    ],
)
def test_kafkas_tool_lists_only_what_is_asked_for(
    tools: KafkaTools, cluster: Cluster, filters: list[str], expected: set[str]
) -> None:
    listed = columns(tools.run(TRANSACTIONS, cluster.bootstrap, "list", *filters))
    assert {row["TransactionalId"] for row in listed} == expected


def test_kafkas_tool_describes_an_open_transaction(tools: KafkaTools, cluster: Cluster) -> None:
    asked = ("describe", "--transactional-id", "open")
    (row,) = columns(tools.run(TRANSACTIONS, cluster.bootstrap, *asked))
    assert row["TransactionState"] == "Ongoing"
    assert row["ProducerEpoch"] == "0"
    assert row["TransactionTimeoutMs"] == str(TIMEOUT_MS)
    began_ms = int(row["CurrentTransactionStartTimeMs"])
    assert cluster.open_since_ms <= began_ms <= time.time_ns() // 1_000_000
    assert sorted(row["TopicPartitions"].split(",")) == [f"{TOPIC}-0", f"{TOPIC}-1"]


@pytest.mark.parametrize(("name", "state"), [("done", "CompleteCommit"), ("idle", "Empty")])
def test_kafkas_tool_describes_what_is_not_open(
    tools: KafkaTools, cluster: Cluster, name: str, state: str
) -> None:
    asked = ("describe", "--transactional-id", name)
    (row,) = columns(tools.run(TRANSACTIONS, cluster.bootstrap, *asked))
    assert (row["TransactionState"], row["TopicPartitions"]) == (state, "")
    assert (row["CurrentTransactionStartTimeMs"] == "None") == (name == "idle")


def test_kafkas_tool_says_that_an_id_is_not_there(tools: KafkaTools, cluster: Cluster) -> None:
    asked = ("describe", "--transactional-id", "nobody")
    printed = tools.run(TRANSACTIONS, cluster.bootstrap, *asked)
    assert "`nobody` failed because the ID could not be found" in printed


def test_kafkas_tool_describes_the_groups_of_a_transaction(
    tools: KafkaTools, cluster: Cluster
) -> None:
    """As partitions of Kafka's topic of offsets, which we do not have."""
    name = fresh("piping")
    piping = producer(cluster.bootstrap, name)
    piping.begin_transaction()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    piping.send_offsets_to_transaction(
        [TopicPartition(TOPIC, 0, 1)], consumer.consumer_group_metadata(), 30
    )
    asked = ("describe", "--transactional-id", name)
    (row,) = columns(tools.run(TRANSACTIONS, cluster.bootstrap, *asked))
    assert row["TopicPartitions"] == "__consumer_offsets-28"
    described = frazil(cluster, "txn", "describe", name).out
    assert "(__consumer_offsets-28)" in described
    piping.abort_transaction(30)
    consumer.close()


def test_kafkas_tool_describes_the_producers_of_a_partition(
    tools: KafkaTools, cluster: Cluster
) -> None:
    asked = ("describe-producers", "--topic", TOPIC, "--partition", "0")
    found = columns(tools.run(TRANSACTIONS, cluster.bootstrap, *asked))
    ids = {
        row["TransactionalId"]: row["ProducerId"]
        for row in columns(tools.run(TRANSACTIONS, cluster.bootstrap, "list"))
    }
    by_id = {row["ProducerId"]: row for row in found}
    done, open_one = by_id[ids["done"]], by_id[ids["open"]]
    assert (done["LastSequence"], open_one["LastSequence"]) == ("1", "0")
    assert (done["ProducerEpoch"], open_one["ProducerEpoch"]) == ("0", "0")
    assert done["CurrentTransactionStartOffset"] == "None"
    # Behind two records and a marker.
    assert open_one["CurrentTransactionStartOffset"] == "3"
    assert int(open_one["LastTimestamp"]) >= cluster.open_since_ms
    # Kafka tells the epoch of the coordinator that wrote the newest marker; here is none.
    assert done["LatestCoordinatorEpoch"] == ("0" if cluster.is_kafka else "-1")
    assert open_one["LatestCoordinatorEpoch"] == "-1"


def test_kafkas_tool_finds_no_open_transaction_to_hang(tools: KafkaTools, cluster: Cluster) -> None:
    asked = ("find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "0")
    assert columns(tools.run(TRANSACTIONS, cluster.bootstrap, *asked)) == []


def start_of(tools: KafkaTools, cluster: Cluster, name: str, partition: int) -> str:
    """Where the id's transaction begins; "None" when it is not open there."""
    ids = columns(tools.run(TRANSACTIONS, cluster.bootstrap, "list"))
    (producer_id,) = [row["ProducerId"] for row in ids if row["TransactionalId"] == name]
    asked = ("describe-producers", "--topic", TOPIC, "--partition", str(partition))
    found = columns(tools.run(TRANSACTIONS, cluster.bootstrap, *asked))
    (row,) = [row for row in found if row["ProducerId"] == producer_id]
    return row["CurrentTransactionStartOffset"]


def test_kafkas_tool_aborts_a_transaction_in_a_partition(
    tools: KafkaTools, cluster: Cluster
) -> None:
    """On Kafka in that partition only, and its coordinator does not know; here all of it."""
    name = fresh("hanging")
    hanging = producer(cluster.bootstrap, name)
    write(hanging, {0: 1, 1: 1})
    place = ("--topic", TOPIC, "--partition", "0")
    nowhere = tools.run(TRANSACTIONS, cluster.bootstrap, "abort", *place, "--start-offset", "9999")
    assert "Could not find any open transactions starting at offset 9999" in nowhere
    begins = start_of(tools, cluster, name, 0)
    asked = ("abort", *place, "--start-offset", begins)
    assert tools.run(TRANSACTIONS, cluster.bootstrap, *asked).strip() == ""
    until(lambda: start_of(tools, cluster, name, 0), lambda told: told == "None")
    if cluster.is_kafka:
        assert start_of(tools, cluster, name, 1) != "None"
    else:
        until(lambda: start_of(tools, cluster, name, 1), lambda told: told == "None")
    (row,) = columns(
        tools.run(TRANSACTIONS, cluster.bootstrap, "describe", "--transactional-id", name)
    )
    assert row["TransactionState"] == ("Ongoing" if cluster.is_kafka else "CompleteAbort")
    if cluster.is_kafka:
        hanging.abort_transaction(30)
    else:
        with pytest.raises(KafkaException, match="fenced"):
            hanging.commit_transaction(30)


def test_kafkas_tool_terminates_a_transaction_by_its_id(
    tools: KafkaTools, cluster: Cluster
) -> None:
    name = fresh("stuck")
    stuck = producer(cluster.bootstrap, name)
    write(stuck, {0: 1})
    asked = ("forceTerminateTransaction", "--transactionalId", name)
    assert tools.run(TRANSACTIONS, cluster.bootstrap, *asked).strip() == ""
    (row,) = columns(
        tools.run(TRANSACTIONS, cluster.bootstrap, "describe", "--transactional-id", name)
    )
    assert row["TransactionState"] == "Empty"
    with pytest.raises(KafkaException, match="fenced"):
        stuck.commit_transaction(30)


class Level(NamedTuple):
    least: str
    most: str
    level: str
    epoch: int


def levels(tools: KafkaTools, cluster: Cluster) -> dict[str, Level]:
    """What kafka-features.sh describes."""
    found = {}
    for line in tools.run(FEATURES, cluster.bootstrap, "describe").splitlines():
        words = line.split()
        if words[:1] == ["Feature:"]:
            found[words[1]] = Level(words[3], words[5], words[7], int(words[9]))
    return found


def level_told(tools: KafkaTools, cluster: Cluster, level: int, *, since: int = -1) -> int:
    """The epoch of this level, newer than `since`, once whoever is asked knows: agents lag."""
    until_s = time.monotonic() + TOLD_S
    while True:
        told = levels(tools, cluster)[TRANSACTION_VERSION]
        if told.level == str(level) and told.epoch > since:
            return told.epoch
        assert time.monotonic() < until_s, told


def test_kafkas_tool_describes_features(tools: KafkaTools, cluster: Cluster) -> None:
    told = {name: level[:3] for name, level in levels(tools, cluster).items()}
    expected = {
        "group.version": ("0", "1", "1"),
        "metadata.version": ("3.3-IV3", "4.3-IV0", "4.3-IV0"),
        TRANSACTION_VERSION: ("0", "2", "2"),
    }
    assert {name: told[name] for name in expected} == expected


def test_kafkas_tool_lowers_and_raises_the_version_of_transactions(
    tools: KafkaTools, cluster: Cluster
) -> None:
    def run(command: str, level: int, *more: str) -> str:
        feature = f"{TRANSACTION_VERSION}={level}"
        return tools.run(FEATURES, cluster.bootstrap, command, "--feature", feature, *more).strip()

    would = run("downgrade", 1, "--dry-run")
    assert would == "transaction.version can be downgraded to 1."
    before = level_told(tools, cluster, 2)
    try:
        for command, level in (("downgrade", 1), ("downgrade", 0), ("upgrade", 1)):
            assert run(command, level) == f"transaction.version was {command}d to {level}."
            before = level_told(tools, cluster, level, since=before)
    finally:
        assert run("upgrade", 2) == "transaction.version was upgraded to 2."


@pytest.mark.parametrize(
    ("command", "feature", "reason"),
    [
        ("upgrade", "transaction.version=3", "only supports? versions 0-2"),
        ("upgrade", "transaction.version=1", "Can't downgrade the version of this feature without"),
        ("downgrade", "fine.version=1", "(do|does) not support this feature."),
    ],
)
def test_kafkas_tool_is_refused_levels_that_cannot_be(
    tools: KafkaTools, cluster: Cluster, command: str, feature: str, reason: str
) -> None:
    name, _, level = feature.partition("=")
    printed = tools.run(FEATURES, cluster.bootstrap, command, "--feature", feature)
    beginning = (
        f"Could not {command} {name} to {level}. The update failed for all features since the"
        f" following feature had an error: Invalid update version {level} for feature {name}. "
    )
    assert beginning in printed
    assert re.search(reason, printed.partition(beginning)[2])


def test_our_tool_lists_as_kafkas_does(tools: KafkaTools, cluster: Cluster) -> None:
    def listed() -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        theirs = columns(tools.run(TRANSACTIONS, cluster.bootstrap, "list"))
        ours = rows(frazil(cluster, "txn", "list"))
        return [(row["TRANSACTIONAL-ID"], row["STATE"], row["PRODUCER"]) for row in ours], sorted(
            (row["TransactionalId"], row["TransactionState"], row["ProducerId"]) for row in theirs
        )

    # Between the two Kafka may complete what the tests before have ended.
    until(listed, lambda told: told[0] == told[1])


def test_our_tool_lists_only_what_is_asked_for(cluster: Cluster) -> None:
    def listed(*filters: str) -> list[str]:
        return [row["TRANSACTIONAL-ID"] for row in rows(frazil(cluster, "txn", "list", *filters))]

    known = ("--pattern", "open|idle|done")
    assert listed(*known) == ["done", "idle", "open"]
    assert listed(*known, "--state", "ongoing", "--state", "empty") == ["idle", "open"]
    assert listed(*known, "--longer-than", "PT0S") == ["open"]
    (row,) = rows(frazil(cluster, "txn", "list", "--pattern", "done"))
    assert listed("--producer-id", row["PRODUCER"]) == ["done"]
    assert frazil(cluster, "txn", "list", "--pattern", "(").code == 1


def test_our_tool_describes_as_kafkas_does(tools: KafkaTools, cluster: Cluster) -> None:
    asked = ("describe", "--transactional-id", "open")
    (theirs,) = columns(tools.run(TRANSACTIONS, cluster.bootstrap, *asked))
    ours = json.loads(frazil(cluster, "txn", "describe", "open", "--json").out)
    assert ours["state"] == theirs["TransactionState"]
    assert str(ours["producer_id"]) == theirs["ProducerId"]
    assert str(ours["timeout_ms"]) == theirs["TransactionTimeoutMs"]
    assert str(ours["started_ms"]) == theirs["CurrentTransactionStartTimeMs"]
    assert sorted((row["topic"], row["partition"]) for row in ours["partitions"]) == [
        (TOPIC, 0),
        (TOPIC, 1),
    ]
    shown = frazil(cluster, "txn", "describe", "open").out
    assert f"partitions: {TOPIC}(0-1)" in shown
    missing = frazil(cluster, "txn", "describe", "nobody")
    assert (missing.code, missing.out) == (1, "")
    assert 'there is no transactional id "nobody"' in missing.err


@pytest.mark.parametrize("by", ["id", "producer", "start"])
def test_our_tool_aborts_a_transaction(tools: KafkaTools, cluster: Cluster, by: str) -> None:
    name = fresh(f"left-{by}")
    left = producer(cluster.bootstrap, name)
    write(left, {0: 1})
    begins = start_of(tools, cluster, name, 0)
    assert begins != "None"
    (row,) = rows(frazil(cluster, "txn", "list", "--pattern", name))
    asked = {
        "id": (name,),
        "producer": ("--topic", TOPIC, "--partition", "0", "--producer-id", row["PRODUCER"]),
        "start": ("--topic", TOPIC, "--partition", "0", "--start-offset", begins),
    }[by]
    done = frazil(cluster, "txn", "abort", *asked)
    assert (done.code, "is aborted" in done.out) == (0, True), done.err
    until(lambda: start_of(tools, cluster, name, 0), lambda told: told == "None")
    if cluster.is_kafka:
        left.abort_transaction(30)
        return
    again = frazil(cluster, "txn", "abort", *asked)
    assert again.code == 1
    words = "has no open transaction (CompleteAbort)" if by == "id" else "no such transaction"
    assert words in again.err


def test_our_tool_finds_no_open_transaction_to_hang(cluster: Cluster) -> None:
    asked = ("txn", "find-hanging", "--max-transaction-timeout", "0")
    for more in ((), ("--topic", TOPIC)):
        assert frazil(cluster, *asked, *more).out == "no transaction hangs\n"


def test_our_tool_describes_and_changes_features_as_kafkas_does(
    tools: KafkaTools, cluster: Cluster
) -> None:
    level_told(tools, cluster, 2)
    theirs = levels(tools, cluster)
    ours = {row["FEATURE"]: row for row in rows(frazil(cluster, "feature", "describe"))}
    assert sorted(ours) == sorted(theirs)
    for name, level in theirs.items():
        if name != "metadata.version":  # Theirs has names for its levels.
            row = ours[name]
            assert (row["LEAST"], row["MOST"], row["LEVEL"]) == level[:3]
    lower = ("feature", "downgrade", "--feature", f"{TRANSACTION_VERSION}=1")
    assert frazil(cluster, *lower, "--dry-run").out == "transaction.version could be at level 1\n"
    try:
        assert frazil(cluster, *lower).out == "transaction.version is at level 1\n"
        level_told(tools, cluster, 1)
    finally:
        raised = frazil(cluster, "feature", "upgrade", "--feature", f"{TRANSACTION_VERSION}=2")
    assert (raised.code, raised.out) == (0, "transaction.version is at level 2\n")
    refused = frazil(cluster, "feature", "upgrade", "--feature", f"{TRANSACTION_VERSION}=3")
    assert (refused.code, refused.out) == (1, "")
    assert "nothing is changed" in refused.err
    assert "versions 0-2" in refused.err


def test_our_tool_aborts_a_transaction_that_has_only_offsets(embedded: FrazilDev) -> None:
    """There is no topic of offsets to write a marker into; agents know which group is meant."""
    cluster = Cluster(embedded.bootstrap, is_kafka=False, open_since_ms=0)
    name = fresh("only-offsets")
    piping = producer(cluster.bootstrap, name)
    piping.begin_transaction()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    piping.send_offsets_to_transaction(
        [TopicPartition(TOPIC, 0, 1)], consumer.consumer_group_metadata(), 30
    )
    assert frazil(cluster, "txn", "abort", name).code == 0
    assert "CompleteAbort" in frazil(cluster, "txn", "describe", name).out
    consumer.close()
