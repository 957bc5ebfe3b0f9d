"""Clusters whose clients log in over TLS: certificates, users, rights, and what clients are told.

A folder gets the files: `authority.pem`, which clients trust, and `agent.pem`, a key and its
certificate for 127.0.0.1 and localhost. Settings are Kafka's, for agents and for Kafka's own broker.
"""

import contextlib
import http.client
import os
import secrets
import socket
import ssl
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from typing_extensions import override

from broker.sasl.client import Login, exchange_of
from tests.kit.certificates import Authority
from tests.parts.servers import FrazilCluster, FrazilDev
from tests.parts.topics import patiently, told

SCRAM_512: Final = "SCRAM-SHA-512"
MECHANISMS: Final = (SCRAM_512, "SCRAM-SHA-256", "PLAIN")
ADMIN: Final = ("admin", "admin secret")
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ITERATIONS: Final = 4096
_KINDS: Final = {
    SCRAM_512: ScramMechanism.SCRAM_SHA_512,
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
}
_HANDSHAKE, _AUTHENTICATE = (17, 1), (36, 0)


class Identity(NamedTuple):
    """Somebody who can log in."""

    user: str
    password: str
    mechanism: str
    authority: Path


class Security:
    """Of one cluster."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._signs = Authority()
        self.authority = folder / "authority.pem"
        self.keystore = folder / "agent.pem"
        self.authority.write_text(self._signs.pem)
        self.renew()

    def renew(self) -> None:
        """Another key and certificate in place of the brokers', at once."""
        new = self.keystore.with_name("new.pem")
        new.write_text(self._signs.sign("agent").pem)
        new.replace(self.keystore)

    @property
    def tls(self) -> list[str]:
        """Settings of listeners."""
        return ["ssl.keystore.type=PEM", f"ssl.keystore.location={self.keystore}"]

    @property
    def frazil(self) -> list[str]:
        """Settings of an agent whose listener is called SASL_SSL: TLS, mechanisms, the first user."""
        user, password = ADMIN
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return [
            *self.tls,
            f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
            f'listener.name.sasl_ssl.plain.sasl.jaas.config={module} required user_plain="a word";',
            f"first.users={SCRAM_512}=[name={user},password={password}]",
        ]

    def who(
        self, user: str = ADMIN[0], password: str | None = None, mechanism: str = SCRAM_512
    ) -> Identity:
        """Passwords of users are made of their names, unless given."""
        known = ADMIN[1] if user == ADMIN[0] else f"{user} secret"
        return Identity(user, known if password is None else password, mechanism, self.authority)


GUARDED: Final = (f"authorizer.class.name={AUTHORIZER}", f"super.users=User:{ADMIN[0]}")
"""Settings: who is not the administrator needs rights."""


def librdkafka(who: Identity | None) -> dict[str, Any]:
    """What a client of librdkafka is told beside where to connect."""
    if who is None:
        return {}
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(who.authority),
        "sasl.mechanism": who.mechanism,
        "sasl.username": who.user,
        "sasl.password": who.password,
    }


def connected(port: int, who: Identity | None, *, seconds: float = 60.0) -> socket.socket:
    """A connection to a port of loopback, logged in if need be. Raises OSError, LoginError."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=seconds)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if who is None:
        return plain
    context = ssl.create_default_context(cafile=str(who.authority))
    with contextlib.ExitStack() as opened:
        secured = opened.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
        _log_in(secured, who)
        opened.pop_all()  # Who is logged in closes it.
    return secured


def _log_in(connection: socket.socket, who: Identity) -> None:
    answer = _ask(connection, _HANDSHAKE, _short(who.mechanism.encode()))
    _check(answer)
    exchange = exchange_of(
        Login(who.mechanism, who.user, who.password), nonce=secrets.token_hex(16)
    )
    message: bytes | None = exchange.begin()
    while message is not None:
        answer = _ask(connection, _AUTHENTICATE, struct.pack(">i", len(message)) + message)
        _check(answer)
        (size,) = struct.unpack_from(">h", answer, 2)
        at = 4 + max(0, size)
        (length,) = struct.unpack_from(">i", answer, at)
        message = exchange.respond(answer[at + 4 : at + 4 + length])


def _check(answer: bytes) -> None:
    (error,) = struct.unpack_from(">h", answer)
    if error:
        raise ConnectionRefusedError(f"the login was refused: {error}")


def _short(data: bytes) -> bytes:
    return struct.pack(">h", len(data)) + data


def _ask(connection: socket.socket, api: tuple[int, int], body: bytes) -> bytes:
    """What follows the correlation id of the answer."""
    frame = struct.pack(">hhih", *api, 1, -1) + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    (length,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, length)[4:]


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the connection was closed")
        data += more
    return data


def make_users(admin: AdminClient, who: Iterable[Identity]) -> None:
    """Users of SCRAM, by Kafka's API."""
    wanted = [
        UserScramCredentialUpsertion(
            each.user,
            ScramCredentialInfo(_KINDS[each.mechanism], ITERATIONS),
            each.password.encode(),
            os.urandom(16),
        )
        for each in who
    ]

    def make() -> None:
        for future in admin.alter_user_scram_credentials(wanted).values():
            told(future)

    patiently(make, Exception)


TOPIC, GROUP, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
)


def right(
    user: str,
    resource: ResourceType,
    name: str,
    operation: AclOperation,
    *,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    """The user, from anywhere, may do this to what has this name."""
    allow = AclPermissionType.ALLOW
    return AclBinding(resource, name, pattern, f"User:{user}", "*", operation, allow)


def give(admin: AdminClient, rights: Sequence[AclBinding]) -> None:
    """In force everywhere when this returns."""

    def create() -> None:
        for future in admin.create_acls(list(rights)).values():
            told(future)

    patiently(create, Exception)


class SecuredCluster(FrazilCluster):
    """Agents all of whose clients log in over TLS, and may do what ACLs allow."""

    PROTOCOL = "SASL_SSL"

    def __init__(self, folder: Path, *parts: Any, **more: Any) -> None:
        self.security = Security(folder / "security")
        etcd, minio, *settings = parts
        super().__init__(folder, etcd, minio, *self.security.frazil, *GUARDED, *settings, **more)

    def client(self, who: Identity | None = None) -> dict[str, Any]:
        """What a client of librdkafka is told; of the administrator by default."""
        everywhere = ",".join(agent.bootstrap for agent in self.agents)
        return {"bootstrap.servers": everywhere, **librdkafka(who or self.security.who())}


class SecuredDev(FrazilDev):
    """Its admin listener speaks TLS."""

    @property
    @override
    def ready(self) -> bool:
        return self.status("/health/ready") == 200

    def status(self, path: str, *, token: str = "") -> int:
        """What GET is answered; 0: nothing."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        where = ("localhost", self.http_port)
        connection = http.client.HTTPSConnection(*where, timeout=5, context=context)
        try:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()
