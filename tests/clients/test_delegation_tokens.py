"""kafka-delegation-tokens.sh at an agent and at Apache Kafka side by side; logins by what it makes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.admin_client import AgentPlace
from broker.cli.log.log_tail import tail
from tests.clients.bounded import until
from tests.clients.kafka_tools import DELEGATION_TOKENS, TOPICS, KafkaTools
from tests.clients.sasl import JAAS, PLAIN_USERS, SaslCluster, client_properties, java
from tests.parts.process import free_port
from tests.parts.servers import EtcdServer, KafkaServer, MinioServer, get_text

pytestmark = pytest.mark.integration

ALICE, BOB = PLAIN_USERS.items()
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SECRET = "delegation.token.secret.key=known to all brokers"
COMMON = (
    f"sasl.enabled.mechanisms=PLAIN,{SHA_256},{SHA_512}",
    f"listener.name.sasl_plaintext.plain.sasl.jaas.config={JAAS};",
)


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[SaslCluster]:
    folder = tmp_path_factory.mktemp("tokens")
    more = ("puts.per.second=1000", "num.partitions=1", SECRET)
    with SaslCluster(folder, etcd, minio, *COMMON, *more, agents=2) as agents:
        yield agents
        assert agents.stop() == [0, 0]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its listener with SASL."""
    port = free_port()
    server = KafkaServer(tmp_path_factory.mktemp("kafka-tokens"))
    lines = server._properties.read_text().splitlines()
    named = {name: text for name, _, text in (line.partition("=") for line in lines)}
    listener = f"SASL_PLAINTEXT://127.0.0.1:{port}"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    lines += [
        f"listeners={named['listeners']},{listener}",
        f"advertised.listeners={named['advertised.listeners']},{listener}",
        f"listener.security.protocol.map={protocols}",
        "inter.broker.listener.name=PLAINTEXT",
        *COMMON,
        *[
            f"listener.name.sasl_plaintext.{each.lower()}.sasl.jaas.config={scram}"
            for each in (SHA_256, SHA_512)
        ],
        SECRET,
    ]
    server._properties.write_text("\n".join(lines))
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For Kafka's tools, by user."""
    folder = tmp_path_factory.mktemp("files")
    return {user: client_properties(folder, user, word, "PLAIN") for user, word in (ALICE, BOB)}


class Tool:
    """kafka-delegation-tokens.sh of a user."""

    def __init__(self, tools: KafkaTools, bootstrap: str, file: str) -> None:
        self._tools, self._bootstrap, self._file = tools, bootstrap, file

    def run(self, *words: str) -> str:
        arguments = ("--command-config", self._file, *words)
        return self._tools.run(DELEGATION_TOKENS, self._bootstrap, *arguments)

    def create(self, *words: str) -> tuple[str, str, str]:
        """Id and HMAC, and what was printed."""
        printed = self.run("--create", "--max-life-time-period", "-1", *words)
        assert "Created delegation token" in printed, printed
        cells = printed.strip().splitlines()[-1].split()
        return cells[0], cells[1], printed

    def until_known(self, token_id: str, *, known: bool = True) -> str:
        """What it describes of the token, and of no other one, as soon as it is among that, or is not."""
        # Without owners the tool asks for nobody's. Kafka's broker hears of a token a moment later
        # than its controller.
        words = ("--describe", "--owner-principal", f"User:{ALICE[0]}")
        told = until(lambda: self.run(*words), lambda text: (token_id in text) == known)
        rows = [each for each in told.splitlines() if token_id in each or not HMAC.search(each)]
        return "\n".join(rows)


HMAC = re.compile(r"[A-Za-z0-9+/]{86}==")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
DRAWN = re.compile(
    r"\b[A-Za-z0-9_-]{22}(?= )|[A-Za-z0-9+/]{86}==|(?<=: )[A-Za-z0-9_-]{22}$", re.MULTILINE
)


def alike(printed: str) -> str:
    """What a tool prints, without what is new each time."""
    lines = [each for each in printed.splitlines() if not each.startswith(("SLF4J", "\tat "))]
    blank = DRAWN.sub("<drawn>", DATE.sub("<date>", "\n".join(lines)))
    return re.sub(r"[ \t]+", " ", re.sub(r"-{3,}", "", blank)).strip()


def test_a_token_is_created_described_renewed_and_expired_as_at_kafka(
    cluster: SaslCluster, kafka: str, tools: KafkaTools, files: dict[str, str]
) -> None:
    told: list[list[str]] = []
    for bootstrap in (kafka, cluster.bootstrap):
        alice, bob = (Tool(tools, bootstrap, files[user]) for user, _ in (ALICE, BOB))
        token_id, hmac, created = alice.create("--renewer-principal", f"User:{BOB[0]}")
        described = alice.until_known(token_id)
        renewed = alice.run("--renew", "--hmac", hmac, "--renew-time-period", "60000")
        by_renewer = bob.run("--renew", "--hmac", hmac, "--renew-time-period", "-1")
        others = bob.run("--describe", "--owner-principal", f"User:{BOB[0]}")
        nobodys = alice.run("--describe", "--owner-principal", "User:nobody")
        expired = alice.run("--expire", "--hmac", hmac, "--expiry-time-period", "-1")
        alice.until_known(token_id, known=False)
        again = alice.run("--renew", "--hmac", hmac, "--renew-time-period", "-1")
        unknown = alice.run("--expire", "--hmac", "AAAA", "--expiry-time-period", "-1")
        said = [created, described, renewed, by_renewer, others, nobodys, expired, again, unknown]
        told.append([alike(each) for each in said])
    for theirs, ours in zip(*told, strict=True):
        assert ours == theirs


def test_who_is_neither_owner_nor_renewer_is_refused_as_at_kafka(
    cluster: SaslCluster, kafka: str, tools: KafkaTools, files: dict[str, str]
) -> None:
    told = []
    for bootstrap in (kafka, cluster.bootstrap):
        alice, bob = (Tool(tools, bootstrap, files[user]) for user, _ in (ALICE, BOB))
        token_id, hmac, _ = alice.create()
        alice.until_known(token_id)
        told.append(
            [
                alike(bob.run("--renew", "--hmac", hmac, "--renew-time-period", "-1")),
                alike(bob.run("--expire", "--hmac", hmac, "--expiry-time-period", "-1")),
            ]
        )
    assert told[1] == told[0]
    assert all("not valid Owner/Renewer" in each for each in told[0])


def test_a_token_is_owned_by_a_user_and_at_kafka_by_whatever_is_named(
    cluster: SaslCluster, kafka: str, tools: KafkaTools, files: dict[str, str]
) -> None:
    """At Kafka a token of `Group:staff` makes whoever has it `User:staff`: see rights.md, section 4."""
    words = ("--create", "--max-life-time-period", "-1", "--owner-principal", "Group:staff")
    theirs, ours = (
        Tool(tools, bootstrap, files[ALICE[0]]).run(*words)
        for bootstrap in (kafka, cluster.bootstrap)
    )
    assert "Created delegation token" in theirs
    assert "Group:staff" in theirs
    assert "InvalidPrincipalTypeException" in ours, ours


def by_token(folder: Path, token_id: str, hmac: str, mechanism: str) -> str:
    """A file for Kafka's tools, of who has the token."""
    file = Path(client_properties(folder, token_id, hmac, mechanism))
    file.write_text(file.read_text().replace('";', '" tokenauth="true";'))
    return str(file)


def test_the_java_client_writes_and_reads_by_a_token(
    cluster: SaslCluster, tools: KafkaTools, files: dict[str, str]
) -> None:
    token_id, hmac, _ = Tool(tools, cluster.bootstrap, files[ALICE[0]]).create()
    (told,) = java(cluster, "by-token", f"{SHA_512}+tokenauth", token_id, hmac)
    assert told.endswith(" ok"), told


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_token_opens_every_agent_when_it_is_made_and_none_when_it_is_ended(
    mechanism: str,
    cluster: SaslCluster,
    tools: KafkaTools,
    files: dict[str, str],
    tmp_path: Path,
) -> None:
    alice = Tool(tools, cluster.bootstrap, files[ALICE[0]])
    token_id, hmac, _ = alice.create()
    file = by_token(tmp_path, token_id, hmac, mechanism)
    listing = ("--command-config", file, "--list")
    opened = [tools.run(TOPICS, agent.bootstrap, *listing) for agent in cluster.agents]
    assert not any("Exception" in told for told in opened)
    alice.run("--expire", "--hmac", hmac, "--expiry-time-period", "-1")
    shut = [tools.run(TOPICS, agent.bootstrap, *listing) for agent in cluster.agents]
    assert all("Authentication failed" in told for told in shut), shut


def test_who_came_by_a_token_may_not_ask_for_another(
    cluster: SaslCluster, tools: KafkaTools, files: dict[str, str], tmp_path: Path
) -> None:
    token_id, hmac, _ = Tool(tools, cluster.bootstrap, files[ALICE[0]]).create()
    file = by_token(tmp_path, token_id, hmac, SHA_256)
    printed = Tool(tools, cluster.bootstrap, file).run("--describe")
    assert "DelegationTokenRequestNotAllowed" in printed or "not allowed" in printed


def test_no_hmac_is_in_what_agents_tell(
    cluster: SaslCluster, tools: KafkaTools, files: dict[str, str]
) -> None:
    _, hmac, _ = Tool(tools, cluster.bootstrap, files[ALICE[0]]).create()
    for agent in cluster.agents:
        place = AgentPlace(f"http://127.0.0.1:{agent.http_port}")
        entries = "\n".join(tail(place, after=0, follow=False, as_json=True))
        assert '"command": "CreateDelegationToken"' in entries
        metrics = get_text(agent.http_port, "/metrics")
        for told in (entries, metrics, agent.child.log.read_text(errors="replace")):
            assert hmac not in told
            assert "known to all brokers" not in told
