"""Apache Kafka and an agent side by side whose clients log in over TLS, and what our commands tell of both.

Each has a listener SASL_SSL, with SCRAM, ACLs and delegation tokens, and beside it one without, over which the first users are
made. Of each user there is a file for `--command-config`. What differs between any two clusters is taken out of what is told.
"""

import contextlib
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from tests.clients import commands
from tests.clients.side_by_side import BROKER_ID, PATIENCE_S, SETTINGS, plain
from tests.parts.process import answers, free_port
from tests.parts.secured import ADMIN, AUTHORIZER, SCRAM_512, Identity, Security, make_users
from tests.parts.servers import FrazilDev, KafkaServer

ALICE: Final = "alice"
GUEST: Final = "guest"
"""Who has no right at all."""
SECRET: Final = "known to all brokers"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_READS: Final = frozenset({"list", "describe"})
_NAMES: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r'("\w+_ms": )[1-9]\d{11,}'), r"\1TIME"),
    (re.compile(r"[A-Za-z0-9+/]{86}=="), "HMAC"),
    # Of topics, clusters and tokens.
    (re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"(after|within) \d+ ?ms"), r"\1 N ms"),
    (re.compile(r" +"), " "),
)


class Told(NamedTuple):
    """What a command printed, and its exit code."""

    lines: Sequence[str]
    complaints: Sequence[str]
    code: int


class Side(NamedTuple):
    """One of the two clusters."""

    bootstrap: str
    """Over TLS."""
    plain: str
    """Without."""
    folder: Path
    """Its users' files, by their names."""
    who: Identity
    """The administrator."""

    def file(self, user: str) -> Path:
        return self.folder / f"{user}.properties"

    def write(self, name: str, *, of: str = ADMIN[0], **changed: str) -> Path:
        """Another file, like that of a user but for these settings, in whose names `_` is a dot."""
        settings = dict(line.split("=", 1) for line in self.file(of).read_text().splitlines())
        settings |= {key.replace("_", "."): text for key, text in changed.items()}
        file = self.file(name)
        file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        return file

    def told(self, words: str, given: str = "") -> Told:
        """What a command says, without what differs between any two clusters. `{plain}` in it is the address
        without TLS, `{bootstrap}` the one with it, `{name}` the path of a file."""
        files = {file.stem: str(file) for file in self.folder.iterdir()}
        places = {"plain": self.plain, "bootstrap": self.bootstrap, "folder": str(self.folder)}
        arguments = shlex.split(words.format_map(places | files))
        done = commands.frazil(*arguments, given=given.encode())
        lines = self._lines(done.out.decode())
        if words.startswith("txn "):
            # Ids of producers, and how long ago it was.
            lines = [re.sub(r"\b\d+\b", "N", line) for line in lines]
        return Told(lines, self._lines(done.err), done.code)

    def _lines(self, printed: str) -> list[str]:
        printed = printed.replace(str(self.folder), "FOLDER")
        for address in (self.bootstrap, self.plain):
            printed = plain(printed, address)
        for pattern, name in _NAMES:
            printed = pattern.sub(name, printed)
        return [line.strip() for line in printed.splitlines()]


class Secured(NamedTuple):
    """Both."""

    kafka: Side
    frazil: Side

    def both(self, words: str, given: str = "", *, changes_nothing: bool = False) -> Told:
        """What both tell, which is the same. Reads are repeated, as is whatever else changes nothing: Kafka's brokers
        hear of changes a moment after its controller."""
        is_repeated = changes_nothing or _READS & {*words.split()[:2]}
        patience_s = PATIENCE_S if is_repeated else 0
        deadline = time.monotonic() + patience_s
        while True:
            kafka, frazil = (side.told(words, given) for side in self)
            if kafka == frazil or time.monotonic() > deadline:
                assert frazil == kafka, f"{words}: {frazil} and not as Kafka {kafka}"
                return frazil
            time.sleep(0.2)

    def admin(self, words: str, given: str = "") -> Told:
        """As `both`, of the administrator."""
        return self.both(f"{words} --command-config {{{ADMIN[0]}}}", given)

    def done(self, words: str, given: str = "") -> Sequence[str]:
        """The lines of a command of the administrator's that does its work on both."""
        told = self.admin(words, given)
        assert (told.code, told.complaints) == (0, []), (words, told)
        return told.lines


def settings_of(who: Identity, bootstrap: str) -> Mapping[str, str]:
    """A client's."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": who.mechanism,
        "sasl.jaas.config": f'{_SCRAM} username="{who.user}" password="{who.password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(who.authority),
    }


@contextlib.contextmanager
def secured_pair(folder: Path) -> Iterator[Secured]:
    """Both, with the same users: the administrator, and two without rights."""
    security = Security(folder / "security")
    kafka_port, frazil_port = free_port(), free_port()
    kafka = KafkaServer(folder / "kafka", *SETTINGS, *_settings(security))
    _add_listener(kafka, kafka_port)
    kafka.start()
    try:
        # Its listeners open one after the other.
        _until_open(kafka_port)
        agent = FrazilDev(folder / "frazil")
        own = (
            *(*SETTINGS, *_settings(security), f"node.id={BROKER_ID}", "puts.per.second=1000"),
            # An id as Kafka draws one.
            "cluster.id=an-id-of-22-characters",
            f"listeners={_listeners(agent.port, frazil_port)}",
        )
        agent.child.argv += [word for each in own for word in ("--set", each)]
        with agent:
            yield Secured(
                _side(folder / "of-kafka", security, kafka.port, kafka_port),
                _side(folder / "of-frazil", security, agent.port, frazil_port),
            )
            assert agent.stop() == 0
    finally:
        kafka.stop()


def _settings(security: Security) -> list[str]:
    return [
        *security.tls,
        f"sasl.enabled.mechanisms={SCRAM_512}",
        f"listener.name.sasl_ssl.{SCRAM_512.lower()}.sasl.jaas.config={_SCRAM};",
        f"authorizer.class.name={AUTHORIZER}",
        f"super.users=User:{ADMIN[0]};User:ANONYMOUS",
        f"delegation.token.secret.key={SECRET}",
    ]


def _listeners(port: int, secured: int) -> str:
    return f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secured}"


def _add_listener(kafka: KafkaServer, port: int) -> None:
    lines = kafka._properties.read_text().splitlines()
    named = dict(line.split("=", 1) for line in lines if "=" in line)
    listener = f"SASL_SSL://127.0.0.1:{port}"
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
    lines += [
        f"listeners={named['listeners']},{listener}",
        f"advertised.listeners={named['advertised.listeners']},{listener}",
        f"listener.security.protocol.map={protocols}",
        "inter.broker.listener.name=PLAINTEXT",
    ]
    kafka._properties.write_text("\n".join(lines))


def _until_open(port: int) -> None:
    deadline = time.monotonic() + 60
    while not answers(port):
        assert time.monotonic() < deadline, "the listener of TLS does not open"
        time.sleep(0.05)


def _side(folder: Path, security: Security, port: int, secured: int) -> Side:
    """A cluster that has its users, whose files are there."""
    folder.mkdir()
    who = security.who()
    side = Side(f"127.0.0.1:{secured}", f"127.0.0.1:{port}", folder, who)
    users = [who, security.who(ALICE), security.who(GUEST)]
    make_users(AdminClient({"bootstrap.servers": side.plain}), users)
    for each in users:
        settings = settings_of(each, side.bootstrap).items()
        side.file(each.user).write_text("".join(f"{name}={text}\n" for name, text in settings))
    return side
