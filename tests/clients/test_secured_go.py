"""franz-go, sarama and kafkajs over SASL_SSL: each mechanism, wrong secrets, wrong authority, no right."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AdminClient

from tests.kit.certificates import Authority
from tests.kit.tokens import EcIssuer, key_set
from tests.parts import install
from tests.parts.secured import (
    GUARDED,
    MECHANISMS,
    TOPIC,
    Security,
    give,
    librdkafka,
    make_users,
    right,
)
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

OURS = "ours"
PLAIN_USER = ("plain", "a word")
BEARER = "OAUTHBEARER"
ALL = (*MECHANISMS, BEARER)
ISSUER = EcIssuer()
BAD_TOKEN = {
    "franz": "unexpected data in oauth response",
    "sarama": "invalid credentials",
    "kafkajs": "not valid given the current sasl state",
}
"""What clients make of the reason, which they are told as an answer without an error (RFC 7628). Only
sarama answers it, though not as it should, and hears of the refusal."""
INVALID = {
    "PLAIN": "Invalid username or password",
    "SCRAM-SHA-256": "invalid credentials",
    "SCRAM-SHA-512": "invalid credentials",
}


@dataclass
class Guarded:
    agent: FrazilDev
    security: Security
    stranger: Path
    """An authority that did not sign for the agent."""

    def login(self, mechanism: str, user: str = "alice") -> list[str]:
        if mechanism == "PLAIN":
            return [mechanism, *PLAIN_USER]
        if mechanism == BEARER:
            now_s = int(time.time())
            claims = {"sub": user, "iat": now_s - 1, "exp": now_s + 600}
            return [mechanism, user, ISSUER.token(claims)]
        who = self.security.who(user)
        return [mechanism, who.user, who.password]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded-go")
    security = Security(folder / "security")
    stranger = folder / "stranger.pem"
    stranger.write_text(Authority("a stranger").pem)
    keys = folder / "keys.json"
    keys.write_bytes(key_set(ISSUER))
    settings = [
        *(*security.frazil, *GUARDED, "puts.per.second=1000"),
        f"sasl.enabled.mechanisms={','.join(ALL)}",
        f"listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file://{keys}",
    ]
    agent = FrazilDev(folder, *[word for each in settings for word in ("--set", each)])
    agent.child.argv += ["--set", f"listeners=SASL_SSL://127.0.0.1:{agent.port}"]
    with agent:
        admin = AdminClient({"bootstrap.servers": agent.bootstrap, **librdkafka(security.who())})
        create_topic(admin, OURS, 1)
        both = [security.who("alice", mechanism=each) for each in MECHANISMS if each != "PLAIN"]
        make_users(admin, [*both[:1], security.who("bob")])
        make_users(admin, both[1:])
        operations = (AclOperation.READ, AclOperation.WRITE)
        users = ("alice", PLAIN_USER[0])
        give(admin, [right(user, TOPIC, OURS, each) for user in users for each in operations])
        yield Guarded(agent, security, stranger)
        assert agent.stop() == 0


def run(client: str, guarded: Guarded, authority: Path, *logins: str) -> list[str]:
    """What became of each."""
    program = install.go_clients()[client]
    done = subprocess.run(
        [str(program), guarded.agent.bootstrap, str(authority), OURS, *logins],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [line[1:] for line in done.stdout.splitlines() if line.startswith("@")]


BOTH = pytest.mark.parametrize("client", ["franz", "sarama"])


@BOTH
def test_a_client_logs_in_by_each_mechanism_writes_and_reads(client: str, guarded: Guarded) -> None:
    logins = [word for mechanism in ALL for word in guarded.login(mechanism)]
    told = run(client, guarded, guarded.security.authority, *logins)
    assert told == ["ok"] * len(ALL)


@BOTH
def test_a_client_is_told_that_its_secret_is_wrong(client: str, guarded: Guarded) -> None:
    logins = [
        word for mechanism in ALL for word in (mechanism, guarded.login(mechanism)[1], "wrong")
    ]
    told = run(client, guarded, guarded.security.authority, *logins)
    assert len(told) == len(ALL)
    for mechanism, line in zip(ALL, told, strict=True):
        assert (BAD_TOKEN[client] if mechanism == BEARER else INVALID[mechanism]) in line


@BOTH
def test_a_client_refuses_an_agent_of_another_authority(client: str, guarded: Guarded) -> None:
    (told,) = run(client, guarded, guarded.stranger, *guarded.login("SCRAM-SHA-512"))
    assert "certificate signed by unknown authority" in told


@BOTH
def test_a_client_without_a_right_is_told_so(client: str, guarded: Guarded) -> None:
    login = guarded.login("SCRAM-SHA-512", "bob")
    (told,) = run(client, guarded, guarded.security.authority, *login)
    assert "TOPIC_AUTHORIZATION_FAILED" in told or "not authorized to access this topic" in told


def kafkajs(guarded: Guarded, authority: Path, *login: str) -> str:
    """What became of it."""
    program = Path(__file__).parent / "js" / "login.js"
    done = subprocess.run(
        [
            *(install.node(), str(program), guarded.agent.bootstrap, OURS),
            *(*login, str(authority)),
        ],
        env={
            "NODE_PATH": str(install.kafkajs() / "node_modules"),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_kafkajs_logs_in_over_tls_or_is_told_why_not(guarded: Guarded) -> None:
    authority = guarded.security.authority
    for mechanism in ALL:
        assert kafkajs(guarded, authority, *guarded.login(mechanism)) == "ok"
        user = guarded.login(mechanism)[1]
        invalid = BAD_TOKEN["kafkajs"] if mechanism == BEARER else "invalid"
        assert invalid in kafkajs(guarded, authority, mechanism, user, "wrong").lower()
    login = guarded.login("SCRAM-SHA-512", "bob")
    assert "Not authorized to access topics" in kafkajs(guarded, authority, *login)
    login = guarded.login("SCRAM-SHA-512")
    assert "certificate" in kafkajs(guarded, guarded.stranger, *login)
