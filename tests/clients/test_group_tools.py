"""kafka-consumer-groups.sh and kafka-configs.sh of Kafka 4.3, and `frazil group`, on live groups.

Everything is tried against Apache Kafka too: what holds there must hold here.
"""

import contextlib
import io
import json
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.cli import main
from tests.clients.bounded import until
from tests.clients.kafka_tools import CONFIGS, GROUPS, KafkaTools, table
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

TOPIC = "tooled"
OTHER = "tooled-too"
PARTITIONS = 4
RECORDS = 20
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module", params=["kafka", "embedded", "three_agents"])
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where there are two groups of two consumers that committed 10 in partition 0, 11 in 1, …"""
    bootstrap = request.getfixturevalue(request.param).bootstrap
    fill(bootstrap)
    with contextlib.ExitStack() as stack:
        for protocol in PROTOCOLS:
            stack.enter_context(members(bootstrap, protocol))
        yield bootstrap


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic in (TOPIC, OTHER):
        create_topic(admin, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS * PARTITIONS):
        for topic in (TOPIC, OTHER):
            producer.produce(topic, b"record", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


@contextlib.contextmanager
def members(bootstrap: str, protocol: str) -> Iterator[None]:
    """Two consumers in a group called after the protocol, settled; they heartbeat by themselves."""
    consumers = [
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": protocol,
                "group.protocol": protocol,
                "client.id": f"{protocol}-{number}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # They poll no more once they have settled, and stay for all the tests.
                "max.poll.interval.ms": 3_600_000,
            }
        )
        for number in range(2)
    ]
    try:
        for consumer in consumers:
            consumer.subscribe([TOPIC])
        deadline = time.monotonic() + 60
        while [len(consumer.assignment()) for consumer in consumers] != [2, 2]:
            assert time.monotonic() < deadline, "the group does not settle"
            for consumer in consumers:
                consumer.consume(RECORDS, 0.1)
        for consumer in consumers:
            own = [part.partition for part in consumer.assignment()]
            consumer.commit(
                offsets=[TopicPartition(TOPIC, number, 10 + number) for number in own],
                asynchronous=False,
            )
        yield
    finally:
        for consumer in consumers:
            consumer.close()


def commit(bootstrap: str, group: str, offsets: dict[int, int], *, topic: str = TOPIC) -> None:
    """Offsets of a group that has no members."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    consumer.commit(
        offsets=[TopicPartition(topic, *item) for item in offsets.items()], asynchronous=False
    )
    consumer.close()


def committed(bootstrap: str, group: str, *, topic: str = TOPIC) -> list[int]:
    """Offsets of all partitions; negative where there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = [part.offset for part in consumer.committed(asked, timeout=30)]
    consumer.close()
    return found


class Printed(NamedTuple):
    code: int
    out: str
    err: str


def frazil(cluster: str, *arguments: str) -> Printed:
    """`frazil group …`, in this process, since there are many."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main.main(["group", *arguments, "--bootstrap", cluster])
    return Printed(code, out.getvalue(), err.getvalue())


def test_kafkas_tool_lists_groups_with_their_types_and_states(
    tools: KafkaTools, cluster: str
) -> None:
    commit(cluster, "simple", {0: 1})
    listed = tools.run(GROUPS, cluster, "--list").split()
    assert {"classic", "consumer", "simple"} <= set(listed)
    stated = {
        row["GROUP"]: (row["TYPE"], row["STATE"])
        for row in table(tools.run(GROUPS, cluster, "--list", "--state", "--type"))
    }
    assert stated["classic"] == ("Classic", "Stable")
    assert stated["consumer"] == ("Consumer", "Stable")
    assert stated["simple"] == ("Classic", "Empty")


def test_kafkas_tool_lists_only_the_states_and_types_asked_for(
    tools: KafkaTools, cluster: str
) -> None:
    commit(cluster, "simple", {0: 1})
    asked = ("--list", "--state", "stable", "--type", "classic")
    rows = table(tools.run(GROUPS, cluster, *asked))
    assert {(row["TYPE"], row["STATE"]) for row in rows} == {("Classic", "Stable")}
    # The cluster is one of other tests, too: their members may be there until their sessions end.
    assert {row["GROUP"] for row in rows} & {"simple", *PROTOCOLS} == {"classic"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafkas_tool_describes_offsets_lag_and_owners(
    tools: KafkaTools, cluster: str, protocol: str
) -> None:
    rows = table(tools.run(GROUPS, cluster, "--describe", "--group", protocol))
    assert sorted(
        (row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"])
        for row in rows
    ) == [(TOPIC, str(n), str(10 + n), str(RECORDS), str(RECORDS - 10 - n)) for n in range(4)]
    clients = sorted(row["CLIENT-ID"] for row in rows)
    assert clients == [f"{protocol}-{number}" for number in (0, 0, 1, 1)]
    assert {row["HOST"] for row in rows} == {"/127.0.0.1"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafkas_tool_describes_members_with_their_partitions(
    tools: KafkaTools, cluster: str, protocol: str
) -> None:
    asked = ("--describe", "--group", protocol, "--members", "--verbose")
    rows = table(tools.run(GROUPS, cluster, *asked))
    assert sorted(row["CLIENT-ID"] for row in rows) == [f"{protocol}-0", f"{protocol}-1"]
    assert {row["#PARTITIONS"] for row in rows} == {"2"}
    owned = [row["CURRENT-ASSIGNMENT"].removeprefix(f"{TOPIC}:").split(",") for row in rows]
    assert sorted(number for numbers in owned for number in numbers) == ["0", "1", "2", "3"]
    if protocol == "consumer":
        for row in rows:
            assert row["TARGET-ASSIGNMENT"] == row["CURRENT-ASSIGNMENT"]
            assert row["TARGET-EPOCH"] == row["CURRENT-EPOCH"]


@pytest.mark.parametrize(("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")])
def test_kafkas_tool_describes_state_assignor_and_coordinator(
    tools: KafkaTools, cluster: str, protocol: str, assignor: str
) -> None:
    asked = ("--describe", "--group", protocol, "--state")
    last = tools.run(GROUPS, cluster, *asked).split("\n" + protocol)[1].split()
    address, node_id, *rest = last
    assert address.partition(":")[0] in ("127.0.0.1", "localhost")
    assert node_id.strip("()").isdigit()
    assert rest == [assignor, "Stable", "2"]


def test_kafkas_tool_says_that_a_group_is_not_there(tools: KafkaTools, cluster: str) -> None:
    printed = tools.run(GROUPS, cluster, "--describe", "--group", "nobody")
    assert "GroupIdNotFoundException: Group nobody not found." in printed


RESETS = pytest.mark.parametrize(
    ("where", "expected"),
    [
        pytest.param(words.split(), expected, id=words.split()[0].strip("-"))
        for words, expected in (
            ("--to-earliest", [0, 0, 0, 0]),
            ("--to-latest", [RECORDS] * 4),
            ("--to-offset 1000", [RECORDS] * 4),
            ("--shift-by -2", [3, 4, 5, 6]),
            ("--to-current", [5, 6, 7, 8]),
            ("--to-datetime 2020-01-01T00:00:00.000", [0, 0, 0, 0]),
            ("--by-duration PT0S", [RECORDS] * 4),
        )
    ],
)


@RESETS
def test_kafkas_tool_plans_and_resets_offsets(
    tools: KafkaTools, cluster: str, where: list[str], expected: list[int]
) -> None:
    group = f"reset-{where[0]}"
    commit(cluster, group, {0: 5, 1: 6, 2: 7, 3: 8})
    asked = ("--reset-offsets", "--group", group, "--topic", TOPIC, *where)
    planned = table(tools.run(GROUPS, cluster, *asked, "--dry-run"))
    assert sorted((int(row["PARTITION"]), int(row["NEW-OFFSET"])) for row in planned) == list(
        enumerate(expected)
    )
    assert committed(cluster, group) == [5, 6, 7, 8]
    tools.run(GROUPS, cluster, *asked, "--execute")
    assert committed(cluster, group) == expected


@RESETS
def test_our_tool_plans_and_resets_offsets_as_kafkas_does(
    cluster: str, where: list[str], expected: list[int]
) -> None:
    group = f"our-reset-{where[0]}"
    commit(cluster, group, {0: 5, 1: 6, 2: 7, 3: 8})
    asked = ("reset", group, "--topic", TOPIC, *where)
    planned = table(frazil(cluster, *asked).out)
    assert [(int(row["PARTITION"]), int(row["NEW"])) for row in planned] == list(
        enumerate(expected)
    )
    assert committed(cluster, group) == [5, 6, 7, 8]
    done = frazil(cluster, *asked, "--execute")
    assert (done.code, committed(cluster, group)) == (0, expected), done.err


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafkas_tool_resets_no_group_that_has_members(
    tools: KafkaTools, cluster: str, protocol: str
) -> None:
    asked = ("--reset-offsets", "--group", protocol, "--topic", TOPIC, "--to-earliest")
    printed = tools.run(GROUPS, cluster, *asked, "--execute")
    assert "but the current state is Stable" in printed
    assert committed(cluster, protocol) == [10, 11, 12, 13]


def test_kafkas_tool_deletes_offsets_of_single_partitions(tools: KafkaTools, cluster: str) -> None:
    commit(cluster, "forgetful", {0: 5, 1: 6})
    asked = ("--delete-offsets", "--group", "forgetful", "--topic", f"{TOPIC}:0")
    printed = tools.run(GROUPS, cluster, *asked)
    assert table(printed) == [{"TOPIC": TOPIC, "PARTITION": "0", "STATUS": "Successful"}]
    offsets = committed(cluster, "forgetful")
    assert offsets[0] < 0
    assert offsets[1] == 6


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafkas_tool_deletes_no_offsets_of_a_topic_that_is_consumed(
    tools: KafkaTools, cluster: str, protocol: str
) -> None:
    asked = ("--delete-offsets", "--group", protocol, "--topic", f"{TOPIC}:0")
    assert "GroupSubscribedToTopicException" in tools.run(GROUPS, cluster, *asked)
    assert committed(cluster, protocol) == [10, 11, 12, 13]


def test_kafkas_tool_deletes_groups_that_have_no_members(tools: KafkaTools, cluster: str) -> None:
    commit(cluster, "done-with", {0: 5})
    names = ("done-with", *PROTOCOLS, "nobody")
    groups = [word for name in names for word in ("--group", name)]
    printed = tools.run(GROUPS, cluster, "--delete", *groups)
    for protocol in PROTOCOLS:
        assert f"'{protocol}' could not be deleted due to:" in printed
    assert printed.count("GroupNotEmptyException") == 2
    assert printed.count("GroupIdNotFoundException") == 1
    listed = tools.run(GROUPS, cluster, "--list").split()
    assert "done-with" not in listed
    assert set(PROTOCOLS) <= set(listed)
    assert committed(cluster, "done-with")[0] < 0


def test_kafkas_tool_sets_describes_and_removes_configs_of_a_group(
    tools: KafkaTools, cluster: str
) -> None:
    entity = ("--entity-type", "groups", "--entity-name", "tuned")
    setting = "consumer.session.timeout.ms"

    def configs(*arguments: str) -> str:
        return tools.run(CONFIGS, cluster, *arguments, *entity)

    # Kafka's broker hears of what its controller took a moment later: hence `until`.
    assert "Completed updating" in configs("--alter", "--add-config", f"{setting}=50000")
    described = until(
        lambda: configs("--describe"), lambda told: f"{setting}=50000 sensitive=false" in told
    )
    assert f"DYNAMIC_GROUP_CONFIG:{setting}=50000" in described
    assert f"DEFAULT_CONFIG:group.{setting}=45000" in described
    assert "InvalidConfigurationException" in configs("--alter", "--add-config", f"{setting}=5")
    assert "Completed updating" in configs("--alter", "--delete-config", setting)
    until(lambda: configs("--describe"), lambda told: setting not in told)
    assert f"{setting}=45000" in configs("--describe", "--all")


def test_kafkas_tool_sets_what_only_our_groups_have(tools: KafkaTools, embedded: FrazilDev) -> None:
    entity = ("--entity-type", "groups", "--entity-name", "careful")
    setting = "frazil.commit.owner.only"
    added = tools.run(
        CONFIGS, embedded.bootstrap, "--alter", "--add-config", f"{setting}=true", *entity
    )
    assert "Completed updating" in added
    assert f"{setting}=true sensitive=false" in tools.run(
        CONFIGS, embedded.bootstrap, "--describe", *entity
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_our_tool_says_what_kafkas_does(tools: KafkaTools, cluster: str, protocol: str) -> None:
    theirs = table(tools.run(GROUPS, cluster, "--describe", "--group", protocol))
    ours = json.loads(frazil(cluster, "describe", protocol, "--json").out)
    assert [
        (row["topic"], row["partition"], row["committed"], row["end"], row["lag"], row["member"])
        for row in ours["partitions"]
    ] == sorted(
        (
            row["TOPIC"],
            int(row["PARTITION"]),
            int(row["CURRENT-OFFSET"]),
            int(row["LOG-END-OFFSET"]),
            int(row["LAG"]),
            row["CONSUMER-ID"],
        )
        for row in theirs
    )
    assert (ours["type"], ours["state"]) == (protocol, "Stable")


def test_our_tool_lists_the_groups_of_all_agents(cluster: str) -> None:
    # Many, so that every agent of a cluster has some.
    names = {f"listed-{number}" for number in range(20)}
    for name in names:
        commit(cluster, name, {0: 1})
    rows = table(frazil(cluster, "list").out)
    assert names < {row["GROUP"] for row in rows}
    stable = table(frazil(cluster, "list", "--state", "stable", "--type", "consumer").out)
    found = [tuple(row.values()) for row in stable]
    assert ("consumer", "consumer", "Stable", "consumer") in found
    # The cluster is one of other tests, too: their members may be there until their sessions end.
    assert {cells[1:3] for cells in found} == {("consumer", "Stable")}
    assert not {cells[0] for cells in found} & {"classic", *names}


def test_our_tool_resets_and_deletes_only_groups_without_members(cluster: str) -> None:
    commit(cluster, "left", {0: 5, 1: 6})
    for protocol in PROTOCOLS:
        refused = frazil(cluster, "reset", protocol, "--all-topics", "--to-latest", "--execute")
        assert refused.code == 1
        assert "stop its consumers first" in refused.err
    deleted = frazil(cluster, "delete", "left", *PROTOCOLS, "nobody")
    assert deleted.code == 1
    assert deleted.out == 'group "left" is deleted\n'
    assert deleted.err.count("it has members; stop its consumers first") == 2
    assert 'group "nobody" is not deleted: there is no such group' in deleted.err
    assert frazil(cluster, "describe", "left").code == 1
    assert committed(cluster, "classic") == [10, 11, 12, 13]


def test_our_tool_shows_offsets_of_a_topic_that_nobody_consumes(cluster: str) -> None:
    commit(cluster, "two-topics", {0: 5})
    commit(cluster, "two-topics", {3: 20}, topic=OTHER)
    printed = frazil(cluster, "describe", "two-topics").out
    assert [(row["TOPIC"], row["COMMITTED"], row["LAG"]) for row in table(printed)] == [
        (TOPIC, "5", "15"),
        (OTHER, "20", "0"),
    ]
    assert "lag 15 in 2 partitions" in printed
