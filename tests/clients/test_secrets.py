"""Secrets are planted wherever one may stand, an agent and the tools run, and nothing tells any of them.

The places come from the tables of settings, so that a new setting for a secret needs a planted one here.
Looked through: output at level debug, HTTP, the store, the metadata log, command lines, what clients and
users are told, of what works and of what fails.
"""

import base64
import contextlib
import http.client
import io
import json
import re
import secrets
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from broker.admin import listener
from broker.cli.main import main
from broker.config.config_row import Kind
from broker.config.kafka_settings import TABLE as KAFKA_TABLE
from broker.config.settings import TABLE
from tests.kit.certificates import Authority, Signed
from tests.parts.process import free_port
from tests.parts.servers import EtcdServer, Frazil, MinioServer

pytestmark = pytest.mark.integration

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC = "things"
PATIENCE_S = 60.0


def drawn(what: str) -> str:
    """A secret that is nowhere by chance."""
    return f"{what.replace('.', '-')}-{secrets.token_hex(8)}"


def inner(pem: str) -> str:
    """A line of what is between the marks."""
    return pem.splitlines()[2]


class Planted:
    """The settings of an agent that has a secret in each place, and what must be seen nowhere."""

    def __init__(self, folder: Path, etcd: EtcdServer, minio: MinioServer) -> None:
        self.hidden: dict[str, str] = {"store.secret.key": minio.secret_key}
        self.tls, self.mutual, self.http, self.registry = (free_port() for _ in range(4))
        self.bucket = minio.new_bucket()
        authority = Authority()
        (folder / "ca.pem").write_text(authority.pem)
        own, other = authority.sign("agent"), authority.sign("agent")
        own_key = own.key_pem(self._hide("ssl.key.password"))
        self.hidden["ssl.keystore.key"] = inner(own_key)
        self.hidden["ssl.keystore.key in clear"] = inner(own.key_pem())
        self.hidden["ssl.keystore.certificate.chain"] = inner(own.certificate_pem)
        self.hidden["ssl.truststore.certificates"] = inner(authority.pem)
        one, two = "listener.name.sasl_ssl", "listener.name.mutual.ssl"
        users = f'username="broker" password="{self._hide("plain password of the agent")}"'
        self.settings = {
            "listeners": f"SASL_SSL://127.0.0.1:{self.tls},MUTUAL://127.0.0.1:{self.mutual}",
            "advertised.listeners": f"SASL_SSL://localhost:{self.tls},MUTUAL://localhost:{self.mutual}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,MUTUAL:SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256",
            f"{one}.plain.sasl.jaas.config": f"{PLAIN} required {users}"
            f' user_carol="{self._hide("sasl.jaas.config")}";',
            f"{one}.ssl.keystore.type": "PEM",
            f"{one}.ssl.keystore.certificate.chain": own.certificate_pem,
            f"{one}.ssl.keystore.key": own_key,
            f"{one}.ssl.key.password": self.hidden["ssl.key.password"],
            f"{one}.ssl.truststore.type": "PEM",
            f"{one}.ssl.truststore.certificates": authority.pem,
            f"{one}.ssl.client.auth": "requested",
            f"{two}.client.auth": "required",
            **self._store(folder, f"{two}.keystore", other),
            **self._store(folder, f"{two}.truststore", authority.own),
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:admin;User:carol",
            "first.users": f"SCRAM-SHA-512=[name=admin,password={self._hide('first.users')}]",
            "http": f"127.0.0.1:{self.http}",
            "http.token": self._hide("http.token"),
            "schema.registry.listeners": f"http://127.0.0.1:{self.registry}",
            "schema.registry.basic.auth.user.info": "ann:"
            + self._hide("schema.registry.basic.auth.user.info"),
            "telemetry.otlp.endpoint": "http://127.0.0.1:1",
            "telemetry.otlp.headers": f"Authorization={self._hide('telemetry.otlp.headers')}",
            "store": f"s3://{self.bucket}/planted",
            "store.endpoint": minio.endpoint,
            "store.region": minio.region,
            "store.access.key": minio.access_key,
            "store.secret.key": minio.secret_key,
            "log": f"etcd://{','.join(etcd.endpoints)}/planted",
            "log.user": "root",
            "log.password": self._hide("log.password"),
            "logs.level": "debug",
            "jobs.start.delay.ms": "0",
            **{name: self._hide(name) for name in OF_OTHERS},
        }

    def _hide(self, what: str) -> str:
        self.hidden[what] = drawn(what)
        return self.hidden[what]

    def _store(self, folder: Path, prefix: str, signed: Signed) -> dict[str, str]:
        """PKCS#12 with a password."""
        name = prefix.partition(".ssl.")[2]
        password = self._hide(f"ssl.{name}.password")
        file = folder / f"{name}.p12"
        file.write_bytes(signed.pkcs12(password))
        return {
            f"{prefix}.type": "PKCS12",
            f"{prefix}.location": str(file),
            f"{prefix}.password": password,
        }

    def write(self, file: Path, **changed: str) -> None:
        settings = self.settings | {name.replace("__", "."): text for name, text in changed.items()}
        lines = [f"{name}={text}".replace("\n", "\\n") for name, text in settings.items()]
        file.write_text("\n".join(lines) + "\n")


OF_OTHERS = (
    "delegation.token.secret.key",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret",
)
"""Secrets that may be any text."""


@pytest.fixture(scope="module")
def seen(
    tmp_path_factory: pytest.TempPathFactory, minio: MinioServer
) -> Iterator[tuple[Planted, dict[str, bytes]]]:
    """What was planted, and all that could be seen, by where."""
    folder = tmp_path_factory.mktemp("planted")
    etcd = EtcdServer(folder / "etcd")
    etcd.start()
    planted = Planted(folder, etcd, minio)
    ask_for_a_login(etcd, planted.hidden["log.password"])
    planted.write(folder / "agent.properties")
    agent = Frazil(folder / "agent", "serve", "--config", str(folder / "agent.properties"))
    agent.http_port = planted.http
    try:
        with agent:
            found = all_that_can_be_seen(folder, planted, agent, minio)
        found["output at level debug"] = agent.child.log.read_bytes()
        yield planted, found
    finally:
        etcd.stop()


def ask_for_a_login(etcd: EtcdServer, password: str) -> None:
    """Have etcd take nobody but root, by its JSON gateway."""
    for path, body in (
        ("user/add", {"name": "root", "password": password}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("enable", {}),
    ):
        url = f"{etcd.url}/v3/auth/{path}"
        with urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=5) as answer:
            answer.read()


def all_that_can_be_seen(
    folder: Path, planted: Planted, agent: Frazil, minio: MinioServer
) -> dict[str, bytes]:
    found = {f"frazil {name}": told for name, told in of_tools(folder, planted).items()}
    found |= {f"client {name}": told.encode() for name, told in of_clients(folder, planted).items()}
    # Before there is a second snapshot, behind whose predecessor the log is cut.
    found |= {f"GET {path}": told for path, told in of_http(planted).items()}
    place = ("--agent", f"http://127.0.0.1:{planted.http}", "--token-file", str(folder / "token"))
    found["frazil job run snapshot"] = printed("job", "run", "snapshot", *place)
    objects = minio.data / planted.bucket
    deadline = time.monotonic() + PATIENCE_S
    while not any(
        b"bob" in data for data in contents(objects.glob("planted/snapshots/**/*")).values()
    ):
        assert time.monotonic() < deadline, agent.child.tail()
        time.sleep(0.1)
    found |= {f"object {file}": data for file, data in contents(objects.rglob("*")).items()}
    found |= {f"log {file}": data for file, data in contents((folder / "etcd").rglob("*")).items()}
    found |= {f"ps {pid}": line for pid, line in command_lines(agent.child.pid).items()}
    return found


def contents(paths: Iterable[Path]) -> dict[Path, bytes]:
    """Of those that are files, and are still there: servers rename and delete meanwhile."""
    found = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                found[path] = path.read_bytes()
    return found


def of_tools(folder: Path, planted: Planted) -> dict[str, bytes]:
    """What commands print, of those that work and those that do not."""
    token = folder / "token"
    token.write_text(planted.hidden["http.token"])
    word = folder / "bob.password"
    word.write_text(planted._hide("password of bob"))
    admin = client_file(folder, planted, "admin", planted.hidden["first.users"])
    wrong = client_file(folder, planted, "bob", planted._hide("wrong password"))
    broken = folder / "broken.properties"
    broken.write_text(f'security.protocol=SASL_SSL\nsasl.jaas.config={SCRAM} required password="')
    with broken.open("a") as file:
        file.write(planted._hide("password in a broken line") + "\n")
    mistaken = folder / "mistaken.properties"
    planted.write(
        mistaken,
        http__token=f"with blanks {planted._hide('token that is none')}",
        first__users=f"alice:{planted._hide('user that is none')}",
        schema__registry__basic__auth__user__info=planted._hide("users that are none"),
        log__password=planted.hidden["log.password"],
        telemetry__otlp__headers=planted._hide("headers that are none"),
    )
    unusable = folder / "unusable.properties"
    planted.write(
        unusable,
        listener__name__sasl_ssl__ssl__key__password=planted._hide("wrong password of a key"),
        listener__name__mutual__ssl__keystore__password=planted._hide("wrong password of a store"),
    )
    login = ("--command-config", str(admin))
    place = ("--agent", f"http://127.0.0.1:{planted.http}", "--token-file", str(token))
    commands = [
        ("user", "create", "bob", "--password-file", str(word), *login),
        ("user", "list", *login),
        ("acl", "add", "--allow-principal=User:bob", "--topic=*", *login),
        ("group", "list", *login),
        ("txn", "list", *login),
        ("user", "list", "--command-config", str(wrong)),
        ("user", "list", "--command-config", str(broken)),
        ("job", "list", *place),
        ("log", "tail", "--json", *place),
        ("log", "tail", *place),
        ("job", "list", "--agent", f"http://127.0.0.1:{planted.http}"),
        ("doctor", "--config", str(folder / "agent.properties")),
        ("doctor", "--config", str(mistaken)),
        ("doctor", "--config", str(unusable)),
        ("serve", "--config", str(mistaken)),
    ]
    return {" ".join(command): printed(*command) for command in commands}


def printed(*words: str) -> bytes:
    """By a command, in this process: there are many."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        main(words)
    return told.getvalue().encode()


def client_file(folder: Path, planted: Planted, user: str, password: str) -> Path:
    file = folder / f"{user}.properties"
    file.write_text(
        f"bootstrap.servers=localhost:{planted.tls}\nsecurity.protocol=SASL_SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={folder}/ca.pem\n"
        f"sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM} required username="{user}" password="{password}";\n'
    )
    return file


def of_clients(folder: Path, planted: Planted) -> dict[str, str]:
    """What librdkafka is told: of logins that fail, and of the agent's settings."""

    def config(mechanism: str, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"localhost:{planted.tls}",
            "broker.address.family": "v4",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(folder / "ca.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    told = {}
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        errors: list[object] = []
        wrong = config(mechanism, "carol", planted._hide(f"wrong password by {mechanism}"))
        producer = Producer(wrong | {"error_cb": errors.append})
        deadline = time.monotonic() + PATIENCE_S
        while not errors:
            producer.poll(0.1)
            assert time.monotonic() < deadline
        told[f"that failed by {mechanism}"] = "\n".join(map(str, errors))
    carol = config("PLAIN", "carol", planted.hidden["sasl.jaas.config"])
    producer = Producer(carol)
    producer.produce(TOPIC, b"something")
    assert producer.flush(30) == 0
    admin = AdminClient(carol)
    (node, *_) = admin.list_topics(timeout=30).brokers
    resource = ConfigResource(ResourceType.BROKER, str(node))
    configs = admin.describe_configs([resource])[resource].result(30)
    told["that describes configs"] = "\n".join(f"{row}={row.value}" for row in configs.values())
    return told


def of_http(planted: Planted) -> dict[str, bytes]:
    """What each path answers, to those who may ask and to others."""
    paths = re.findall(r"^ +GET +(/[^\s?]+)", listener.__doc__ or "", re.MULTILINE)
    assert "/log" in paths
    query = {"/log": "?after=0", "/export/plan": f"?topic={TOPIC}"}
    bearer = f"Bearer {planted.hidden['http.token']}"
    told = {}
    for path in paths:
        asked = path.replace("{name}", TOPIC) + query.get(path, "")
        told[asked] = get(planted.http, asked, bearer)
        told[f"{asked} without token"] = get(planted.http, asked, None)
    word = planted.hidden["schema.registry.basic.auth.user.info"]
    basic = "Basic " + base64.b64encode(f"ann:{word}".encode()).decode()
    for path in ("/", "/subjects", "/config", "/mode", "/schemas", "/v1/metadata/id"):
        told[f"registry {path}"] = get(planted.registry, path, basic)
        told[f"registry {path} without user"] = get(planted.registry, path, None)
    return told


def get(port: int, path: str, authorization: str | None) -> bytes:
    """Headers and body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {} if authorization is None else {"Authorization": authorization}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return str(answer.getheaders()).encode() + answer.read()
    finally:
        connection.close()


def command_lines(pid: int) -> dict[int, bytes]:
    """Of a process and all that it started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
    family = {pid}
    while more := {each for each, parent in parents.items() if parent in family} - family:
        family |= more
    lines = {}
    for each in family:
        # Who has ended meanwhile has none.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines[each] = Path(f"/proc/{each}/cmdline").read_bytes()
    return lines


def test_each_setting_for_a_secret_has_a_planted_one(
    seen: tuple[Planted, dict[str, bytes]],
) -> None:
    ours = {row.name for row in TABLE.values() if row.secret}
    kafkas = {row.name for row in KAFKA_TABLE.values() if row.kind is Kind.PASSWORD}
    assert sorted((ours | kafkas) - set(seen[0].hidden)) == []


def test_no_secret_is_seen_anywhere(seen: tuple[Planted, dict[str, bytes]]) -> None:
    planted, found = seen
    leaks = [
        (what, where)
        for what, secret in planted.hidden.items()
        for where, data in found.items()
        if secret.encode() in data
    ]
    assert leaks == []


def test_there_was_something_to_look_through(seen: tuple[Planted, dict[str, bytes]]) -> None:
    """Else nothing found would mean nothing."""
    _, found = seen
    assert b" DEBUG " in found["output at level debug"]
    assert b"frazil.audit" in found["output at level debug"]
    assert b"UpsertScramCredential" in found["GET /log?after=0"]
    assert b"frazil_authentications_total" in found["GET /metrics"]
    assert any(b"bob" in data for where, data in found.items() if where.startswith("object "))
    assert any(b"bob" in data for where, data in found.items() if where.startswith("log "))
    assert b"broker.jobs" in b"".join(data for where, data in found.items() if where[:3] == "ps ")
    assert b"is not its password" in found_by(found, "doctor", "unusable")
    assert b"first.users" in found_by(found, "serve", "mistaken")


def found_by(found: dict[str, bytes], *words: str) -> bytes:
    (where,) = [where for where in found if all(word in where for word in words)]
    return found[where]
