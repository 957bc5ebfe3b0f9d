"""kafka-configs.sh and kafka-client-metrics.sh of Kafka 4.3 print the same of an agent as of Kafka.

They are Java's admin client; librdkafka's follows, on three agents.
"""

import re
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from broker.cluster.nodes import STRIDE
from broker.config.kafka_settings import TABLE
from broker.config.kafka_table import DYNAMIC, FIXED
from tests.clients.bounded import until
from tests.clients.kafka_tools import CLIENT_METRICS, CONFIGS, KafkaTools
from tests.parts.servers import FrazilCluster, FrazilDev, KafkaServer
from tests.parts.topics import NotNowError, create_topic, patiently, told

pytestmark = pytest.mark.integration

BROKERS = ("--entity-type", "brokers")
LOGGERS = ("--entity-type", "broker-loggers")
METRICS = ("--entity-type", "client-metrics")
NODE = ("--entity-name", "{node}")
NOT_TOLD = re.compile(r"^(\s+at |SLF4J|Error while executing config command with|Tools\$|exit )")
PATIENCE_S = 20.0
"""Kafka's broker hears a moment later of what its controller has taken: what is only looked at, and what
takes nothing twice, is asked again meanwhile."""

Both = Callable[..., str]


def node_of(bootstrap: str) -> str:
    (node,) = agents_of(AdminClient({"bootstrap.servers": bootstrap}))
    return node


def agents_of(admin: AdminClient) -> list[str]:
    """The ids of agents, without those of their nodes (`broker.cluster.nodes`)."""
    return [str(each) for each in sorted(admin.list_topics(timeout=30).brokers) if each < STRIDE]


def _told(
    tools: KafkaTools,
    bootstrap: str,
    node: str,
    tool: str,
    arguments: tuple[str, ...],
    without: str,
) -> str:
    words = [word.replace("{node}", node) for word in arguments]
    lines = tools.run(tool, bootstrap, *words).splitlines()
    kept = [line for line in lines if line and not NOT_TOLD.match(line)]
    told = "\n".join(line for line in kept if not re.search(without, line))
    return re.sub(rf"\bbroker(-logger)? {node}\b", r"broker\1 {node}", told)


@pytest.fixture(scope="module")
def both(tools: KafkaTools, kafka: KafkaServer, embedded: FrazilDev) -> Both:
    """What a tool prints of both, which is the same; `{node}` is each one's number."""
    nodes = [(each.bootstrap, node_of(each.bootstrap)) for each in (kafka, embedded)]

    def run(tool: str, *arguments: str, without: str = "$^") -> str:
        """Leaves out lines with the expression `without`."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            printed = [
                _told(tools, bootstrap, node, tool, arguments, without) for bootstrap, node in nodes
            ]
            if printed[0] == printed[1] or time.monotonic() > deadline:
                assert printed[0] == printed[1]
                return printed[0]
            time.sleep(0.2)

    return run


@pytest.fixture
def unset(both: Both) -> Iterator[None]:
    """Nothing is set for brokers afterwards, since all tests have the same ones."""
    yield
    names = "max.connections,log.retention.ms,log.cleanup.policy,log.cleaner.threads"
    for who in (NODE, ("--entity-default",)):
        both(CONFIGS, "--alter", *BROKERS, *who, "--delete-config", names)


@pytest.mark.usefixtures("unset")
def test_settings_of_a_broker_and_of_all_are_set_described_and_unset(both: Both) -> None:
    add = ("--alter", *BROKERS, *NODE, "--add-config")
    both(CONFIGS, *add, "max.connections=5000,log.retention.ms=5000")
    both(CONFIGS, *add, "log.cleanup.policy=[compact,delete]")
    all_of_them = ("--alter", *BROKERS, "--entity-default", "--add-config")
    both(CONFIGS, *all_of_them, "log.retention.ms=7000,log.cleaner.threads=2")
    told = both(CONFIGS, "--describe", *BROKERS, *NODE)
    assert (
        "log.retention.ms=5000 sensitive=false synonyms="
        "{DYNAMIC_BROKER_CONFIG:log.retention.ms=5000,"
        " DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7000,"
        " DEFAULT_CONFIG:log.retention.hours=168}"
    ) in told
    # Kafka sets that one by itself, for its eligible leader replicas.
    told = both(CONFIGS, "--describe", *BROKERS, without="min.insync.replicas")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2" in told
    both(CONFIGS, "--alter", *BROKERS, *NODE, "--delete-config", "log.retention.ms")
    told = both(CONFIGS, "--describe", *BROKERS, *NODE)
    assert "log.retention.ms" not in told
    assert "max.connections=5000" in told


@pytest.mark.parametrize("who", [NODE, ("--entity-default",)])
@pytest.mark.parametrize("name", ["num.partitions", "log.retention.hours"])
def test_what_does_not_change_at_run_time_is_refused_in_the_same_words(
    both: Both, who: tuple[str, ...], name: str
) -> None:
    told = both(CONFIGS, "--alter", *BROKERS, *who, "--add-config", f"{name}=3")
    assert f"InvalidRequestException: Cannot update these configs dynamically: [{name}]" in told


def test_what_is_of_single_brokers_is_refused_for_all_in_the_same_words(both: Both) -> None:
    change = ("--add-config", "cordoned.log.dirs=/d")
    told = both(CONFIGS, "--alter", *BROKERS, "--entity-default", *change)
    assert "at default cluster level, broker id must be specified: [cordoned.log.dirs]" in told


def test_loggers_of_a_broker_are_described_set_and_refused(
    tools: KafkaTools, kafka: KafkaServer, embedded: FrazilDev, both: Both
) -> None:
    before = {}
    for each in (kafka, embedded):
        words = ("--describe", *LOGGERS, "--entity-name", node_of(each.bootstrap))
        found = re.search(
            r"^  root=([A-Z]+) ", tools.run(CONFIGS, each.bootstrap, *words), re.MULTILINE
        )
        assert found is not None
        before[each.bootstrap] = found[1]
    alter = ("--alter", *LOGGERS, *NODE)
    try:
        both(CONFIGS, *alter, "--add-config", "root=FATAL")
        told = both(CONFIGS, "--describe", *LOGGERS, *NODE, without=r"^  [^r]|^  r[^o]")
        assert told.endswith("root=FATAL sensitive=false synonyms={}")
        told = both(CONFIGS, *alter, "--add-config", "root=LOUD")
        assert "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN" in told
        told = both(CONFIGS, *alter, "--add-config", "no.such=INFO")
        assert told == "Invalid broker logger(s): no.such"
        told = both(CONFIGS, *alter, "--delete-config", "root")
        assert "Removing the log level of the root logger is not allowed" in told
    finally:
        for bootstrap, level in before.items():
            words = ("--alter", *LOGGERS, "--entity-name", node_of(bootstrap))
            tools.run(CONFIGS, bootstrap, *words, "--add-config", f"root={level}")


def test_a_place_in_the_tree_of_loggers_has_a_level(tools: KafkaTools, embedded: FrazilDev) -> None:
    mine = (*LOGGERS, "--entity-name", node_of(embedded.bootstrap))
    tools.run(CONFIGS, embedded.bootstrap, "--alter", *mine, "--add-config", "broker.edge=DEBUG")
    told = tools.run(CONFIGS, embedded.bootstrap, "--describe", *mine)
    assert "broker.edge.server=DEBUG sensitive=false" in told
    tools.run(CONFIGS, embedded.bootstrap, "--alter", *mine, "--delete-config", "broker.edge")
    told = tools.run(CONFIGS, embedded.bootstrap, "--describe", *mine)
    assert "broker.edge.server=DEBUG" not in told


def test_subscriptions_to_clients_metrics_are_set_described_and_refused(both: Both) -> None:
    name = (*METRICS, "--entity-name", "sub")
    configs = "metrics=[org.apache.a.,org.apache.b.],interval.ms=1000,match=[client_id=x.*]"
    both(CONFIGS, "--alter", *name, "--add-config", configs)
    told = both(CONFIGS, "--describe", *name)
    assert "match=client_id=x.* sensitive=false" in told
    for wrong in ("interval.ms=99", "interval.ms=3600001", "colour=red", "match=[colour=red]"):
        assert "Exception: " in both(CONFIGS, "--alter", *name, "--add-config", wrong)
    told = both(CONFIGS, "--alter", *METRICS, "--entity-default", "--add-config", "interval.ms=100")
    assert told == "An entity name must be specified with --alter of client-metrics"
    both(CONFIGS, "--alter", *name, "--delete-config", "match,metrics,interval.ms")
    assert "sub" not in both(CLIENT_METRICS, "--list")


def test_kafka_client_metrics_prints_the_same(both: Both) -> None:
    second = ("--name", "second")
    both(
        *(CLIENT_METRICS, "--alter", *second, "--metrics", "a.,b.", "--interval", "2000"),
        *("--match", "client_id=z"),
    )
    assert both(CLIENT_METRICS, "--list") == "second"
    told = both(CLIENT_METRICS, "--describe", *second)
    assert told.splitlines()[1:] == ["  interval.ms=2000", "  match=client_id=z", "  metrics=a.,b."]
    assert "Invalid value 5 for interval.ms" in both(
        CLIENT_METRICS, "--alter", *second, "--interval", "5"
    )
    assert "doesn't exist" in both(CLIENT_METRICS, "--describe", "--name", "none")
    both(CLIENT_METRICS, "--delete", *second)
    assert both(CLIENT_METRICS, "--list") == ""


@pytest.mark.usefixtures("unset")
def test_a_topic_tells_what_is_set_for_brokers_below_its_own(
    both: Both, kafka: KafkaServer, embedded: FrazilDev
) -> None:
    for each in (kafka, embedded):
        create_topic(AdminClient({"bootstrap.servers": each.bootstrap}), "below", 1)
    alter = ("--alter", *BROKERS)
    both(CONFIGS, *alter, *NODE, "--add-config", "log.cleanup.policy=[compact,delete]")
    topic = ("--entity-type", "topics", "--entity-name", "below")
    both(CONFIGS, "--alter", *topic, "--add-config", "cleanup.policy=compact")
    assert both(CONFIGS, "--describe", *topic).endswith(
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,"
        " DYNAMIC_BROKER_CONFIG:log.cleanup.policy=compact,delete,"
        " DEFAULT_CONFIG:log.cleanup.policy=delete}"
    )


def test_configs_of_groups_are_set_described_and_refused(both: Both) -> None:
    group = ("--entity-type", "groups", "--entity-name", "configured")
    both(CONFIGS, "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    told = both(CONFIGS, "--describe", *group)
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in told
    told = both(CONFIGS, "--alter", *group, "--add-config", "consumer.session.timeout.ms=5")
    assert "must be greater than or equal to group.consumer.min.session.timeout.ms" in told
    both(CONFIGS, "--alter", *group, "--delete-config", "consumer.session.timeout.ms")


def describe(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(30)
    return found


def test_kafkas_settings_that_change_are_known_here_each_with_its_stance(
    kafka: KafkaServer,
) -> None:
    """Whatever Kafka's next release changes at run time, somebody has to decide about it here."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    rows = describe(admin, ResourceType.BROKER, node_of(kafka.bootstrap))
    changing = {name for name, row in rows.items() if not row.is_read_only and name in TABLE}
    throttles = {name for name in DYNAMIC if "throttled" in name or name.startswith("replica.")}
    assert changing | throttles == DYNAMIC | FIXED.keys()


def set_of(kind: ResourceType, name: str, **configs: str | None) -> ConfigResource:
    entries = [
        ConfigEntry(
            each.replace("_", "."),
            value,
            incremental_operation=(
                AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            ),
        )
        for each, value in configs.items()
    ]
    return ConfigResource(kind, name, incremental_configs=entries)


def test_librdkafka_sets_and_describes_each_agent_of_three(three_agents: FrazilCluster) -> None:
    admin = AdminClient({"bootstrap.servers": three_agents.bootstrap})

    def alter(node: str, **configs: str | None) -> None:
        wanted = set_of(ResourceType.BROKER, node, **configs)
        patiently(lambda: told(admin.incremental_alter_configs([wanted])[wanted]), NotNowError)

    # One that has no session for a moment is not told of.
    nodes = until(lambda: agents_of(admin), lambda found: len(found) == 3)
    alter(nodes[1], max_connections="4321")
    found = {
        node: describe(admin, ResourceType.BROKER, node)["max.connections"].value for node in nodes
    }
    assert found == {nodes[0]: "2147483647", nodes[1]: "4321", nodes[2]: "2147483647"}
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        alter(nodes[2], num_partitions="4")
    alter(nodes[1], max_connections=None)
    assert describe(admin, ResourceType.BROKER, nodes[1])["max.connections"].value == "2147483647"
