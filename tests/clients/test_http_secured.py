"""Confluent's registry client, the exporter and our own tools with HTTP listeners of TLS, users and ACLs."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.clients import commands
from tests.clients.commands import Done
from tests.kit.certificates import Authority
from tests.parts.process import free_port
from tests.parts.secured import Identity, SecuredDev, give, make_users
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
PRICED = ORDER[:-2] + ', {"name": "cents", "type": "long", "default": 0}]}'
OPERATOR, EXPORTER = "the-token-of-an-operator", "the-token-of-an-exporter"
READER = "the-token-of-a-reader"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class World(NamedTuple):
    agent: SecuredDev
    folder: Path
    registry_url: str
    clients: ExitStack
    """Closes them."""

    @property
    def url(self) -> str:
        return f"https://localhost:{self.agent.http_port}"

    def registry(self, **more: str) -> SchemaRegistryClient:
        told = {"url": self.registry_url, "ssl.ca.location": str(self.folder / "authority.pem")}
        more_told = {name.replace("_", "."): text for name, text in more.items()}
        return self.clients.enter_context(SchemaRegistryClient(told | more_told))

    def frazil(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*self.agent.child.argv[:1], *arguments]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            env=self.agent.child.env,
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority()
    (folder / "authority.pem").write_text(authority.pem)
    (folder / "stranger.pem").write_text(Authority("a stranger").pem)
    (folder / "agent.pem").write_text(authority.sign("agent").pem)
    for name, token in (("operator", OPERATOR), ("exporter", EXPORTER), ("reader", READER)):
        (folder / name).write_text(f"{token}\n")
    registry_url = f"https://localhost:{free_port()}"
    agent = SecuredDev(folder / "dev")
    settings = [
        f"http=https://127.0.0.1:{agent.http_port}",
        f"schema.registry.listeners={registry_url.replace('localhost', '127.0.0.1')}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={folder / 'agent.pem'}",
        f"http.token.file={folder / 'operator'}",
        f"http.tokens=exporter:{folder / 'exporter'}",
        "http.roles.exporter=User:exporter",
        "schema.registry.basic.auth.user.info=ann:pw",
        f"schema.registry.tokens=reader:{folder / 'reader'}",
        "listener.name.registry.sasl.enabled.mechanisms=SCRAM-SHA-256",
        f"authorizer.class.name={STANDARD}",
        # Kafka's listener is the tests' own here; the registry's users are others.
        "super.users=User:ANONYMOUS",
    ]
    agent.child.argv += [word for setting in settings for word in ("--set", setting)]
    with agent:
        allow(agent, "ann", "orders", AclOperation.WRITE)
        allow(agent, "reader", "orders", AclOperation.READ)
        with ExitStack() as clients:
            yield World(agent, folder, registry_url, clients)
        assert agent.stop() == 0
    log = (folder / "dev" / "frazil.log").read_text()
    assert "Traceback" not in log
    assert not [secret for secret in (OPERATOR, EXPORTER, READER) if secret in log]


def allow(agent: FrazilDev, user: str, topic: str, operation: AclOperation) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    give(AdminClient({"bootstrap.servers": agent.bootstrap}), [binding])


def make_user(world: World, user: str) -> None:
    """Of SCRAM."""
    who = Identity(user, "s3cret", "SCRAM-SHA-256", world.folder / "authority.pem")
    make_users(AdminClient({"bootstrap.servers": world.agent.bootstrap}), [who])


def test_confluents_client_registers_by_password_and_reads_by_token(world: World) -> None:
    context = SerializationContext("orders", MessageField.VALUE)
    writer = world.registry(basic_auth_user_info="ann:pw")
    value = AvroSerializer(writer, ORDER)({"id": 7}, context)
    reader = world.registry(
        bearer_auth_credentials_source="STATIC_TOKEN",
        bearer_auth_token=READER,
        bearer_auth_logical_cluster="none",
        bearer_auth_identity_pool_id="none",
    )
    assert AvroDeserializer(reader)(value, context) == {"id": 7}
    assert reader.get_subjects() == ["orders-value"]
    for forbidden in (
        lambda: reader.register_schema("orders-value", Schema(PRICED, "AVRO")),
        lambda: writer.register_schema("bills-value", Schema(ORDER, "AVRO")),
        lambda: writer.set_compatibility("orders-value", "NONE"),
    ):
        with pytest.raises(SchemaRegistryError) as refused:
            forbidden()
        assert (refused.value.http_status_code, refused.value.error_code) == (403, 40301)


def test_a_user_of_scram_is_one_of_the_registry_and_a_wrong_password_is_not(world: World) -> None:
    make_user(world, "dora")
    assert world.registry(basic_auth_user_info="dora:s3cret").get_subjects() == []
    with pytest.raises(SchemaRegistryError) as refused:
        world.registry(basic_auth_user_info="dora:wrong").get_subjects()
    assert refused.value.http_status_code == 401


def test_a_stranger_is_not_trusted_by_confluents_client(world: World) -> None:
    told = {
        "url": world.registry_url,
        "ssl.ca.location": str(world.folder / "stranger.pem"),
        "basic.auth.user.info": "ann:pw",
        "max.retries": 0,
    }
    with (
        SchemaRegistryClient(told) as client,
        pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.get_subjects()


def schema(world: World, *arguments: str, login: str, ca: str = "authority") -> Done:
    """`frazil schema`, of somebody who trusts `ca`."""
    config = world.folder / "schema.properties"
    config.write_text(
        f"schema.registry.url={world.registry_url}\n"
        "schema.registry.ssl.truststore.type=PEM\n"
        f"schema.registry.ssl.truststore.location={world.folder / ca}.pem\n{login}\n"
    )
    return commands.frazil("schema", *arguments, "--command-config", str(config))


def test_our_command_about_schemas_asks_over_tls_by_password_and_by_token(world: World) -> None:
    (world.folder / "order.avsc").write_text(ORDER)
    words = ("create", "orders-value", "--file", str(world.folder / "order.avsc"))
    ann = "basic.auth.credentials.source=USER_INFO\nbasic.auth.user.info=ann:pw"
    assert schema(world, *words, login=ann).code == 0
    reader = f"bearer.auth.token.file={world.folder / 'reader'}"
    done = schema(world, "list", "--json", login=reader)
    assert [one["subject"] for one in json.loads(done.out)] == ["orders-value"]
    done = schema(world, "delete", "orders-value", "--yes", login=reader)
    assert (done.code, done.out) == (1, b"")
    assert f"{world.registry_url} does not allow it: User:reader is denied" in done.err


def test_the_login_to_the_cluster_is_one_at_the_registry_when_that_is_said(world: World) -> None:
    make_user(world, "inga")
    inherited = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        'sasl.jaas.config=a.ScramLoginModule required username="inga" password="PASSWORD";\n'
        "basic.auth.credentials.source=SASL_INHERIT"
    )
    assert schema(world, "list", login=inherited.replace("PASSWORD", "s3cret")).code == 0
    done = schema(world, "list", login=inherited.replace("PASSWORD", "wrong"))
    assert done.code == 1
    assert f"{world.registry_url} does not take this login, or wants one" in done.err


def test_our_command_about_schemas_does_not_trust_a_stranger(world: World) -> None:
    done = schema(world, "list", login="basic.auth.user.info=ann:pw", ca="stranger")
    assert done.code == 1
    assert f"the certificate of {world.registry_url} is not trusted" in done.err


def test_our_tools_ask_over_tls_with_a_token(world: World) -> None:
    ca = ["--ca-file", str(world.folder / "authority.pem")]
    where = ["--agent", world.url, *ca]
    told = world.frazil("job", "list", *where, "--token-file", str(world.folder / "operator"))
    assert (told.returncode, "snapshot" in told.stdout) == (0, True), told.stderr
    told = world.frazil("job", "list", *where, "--token-file", str(world.folder / "exporter"))
    assert (told.returncode, "http.roles.operator" in told.stderr) == (1, True)
    told = world.frazil("job", "list", "--agent", world.url)
    assert (told.returncode, "--ca-file" in told.stderr) == (1, True)


def test_the_exporter_asks_over_tls_and_takes_another_token_when_its_file_changes(
    world: World,
) -> None:
    arguments = ["--data", str(world.folder / "export"), "--agent", world.url]
    for setting in (
        f"agent.ca={world.folder / 'authority.pem'}",
        f"agent.token.file={world.folder / 'said'}",
    ):
        arguments += ["--set", setting]
    said = world.folder / "said"
    said.write_text(EXPORTER)
    told = world.frazil("export", "run", "--once", *arguments)
    assert told.returncode == 0, told.stderr
    said.write_text("the-next-token-of-an-exporter")
    (world.folder / "exporter").write_text("the-next-token-of-an-exporter")
    deadline = time.monotonic() + 30
    while world.agent.status("/export/topics", token="the-next-token-of-an-exporter") != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    told = world.frazil("export", "run", "--once", *arguments)
    assert told.returncode == 0, told.stderr
