"""Requests on a listener with SASL, to an agent with an authorizer: as `agent`, and nobody gets what he has not.

Among the frames of an input may be words: `login:alice` and `login:admin` stand for a login with the
right password, which is in no input, on a connection of its own; what follows goes there. So whoever is
let in without such a word was let in without a password.
"""

import random
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from broker.sasl.plain import PlainUsers
from broker.sasl.rules import SaslRules
from broker.sasl.scram_keys import NAMES, credential_of, salted_password
from coordinator.commands.credential_commands import ScramMechanism
from protocol import apis, messages
from protocol.acls import Operation, ResourceType
from protocol.framing import request_frame
from tests.broker.rights.acls import acl, allow
from tests.fuzz import grammar
from tests.fuzz.target import WrongError
from tests.fuzz.targets import sasl
from tests.fuzz.targets.agent import Agent, exchanged, names_of_agent
from tests.fuzz.targets.agent import settle as settle_agent
from tests.kit import agents
from tests.kit.agents import World
from tests.kit.client import Client

LISTENER = "OUTSIDE"
ALICE, ADMIN = "alice", "admin"
PASSWORDS = {ALICE: "wonderland-6173", ADMIN: "looking-glass-8112"}
WORDS = {f"login:{user}".encode(): user for user in PASSWORDS}
MECHANISMS = ("PLAIN", *NAMES.values())
OF_RIGHTS = [
    (key, version)
    for key, version in grammar.VERSIONS
    if key
    in {
        *(apis.DESCRIBE_ACLS, apis.CREATE_ACLS, apis.DELETE_ACLS),
        *(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, apis.ALTER_USER_SCRAM_CREDENTIALS),
    }
]
OF_LOGINS = [
    (key, version)
    for key, version in grammar.VERSIONS
    if key in {apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE, apis.API_VERSIONS}
]


class Logins(Agent):
    name = "logins"
    fixed = 20
    settings: ClassVar[dict[str, str]] = {
        "chunk_linger_ms": "5",
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": f"User:{ADMIN};User:ANONYMOUS",
    }

    @override
    def world(self) -> World:
        world = World()
        users = PlainUsers.of(PASSWORDS)
        world.sasl = {LISTENER: SaslRules(mechanisms=MECHANISMS, plain_users=users)}
        return world

    @override
    async def settle(self, one: agents.Agent) -> None:
        await settle_agent(one)
        await allow(
            one,
            acl(Operation.READ, name="t", principal=f"User:{ALICE}"),
            acl(Operation.READ, ResourceType.GROUP, principal=f"User:{ALICE}"),
            acl(Operation.DESCRIBE, name="l", prefix=True, principal=f"User:{ALICE}"),
        )
        for kind in ScramMechanism:
            salted = salted_password(kind, PASSWORDS[ALICE], salt=b"salt", iterations=4096)
            made = credential_of(ALICE, kind, salted, salt=b"salt", iterations=4096)
            await one.log_client.propose(made)

    @override
    def generate(self, rng: random.Random) -> bytes:
        frames: list[bytes] = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            frames += self._connection(rng)
        return b"".join(frames)

    def _connection(self, rng: random.Random) -> list[bytes]:
        """What somebody sends who logs in, or tries to."""
        names = names_of_agent()
        match rng.randrange(4):
            case 0:
                login = [_framed(rng.choice([*WORDS]))]
                some = rng.choice((OF_RIGHTS, rng.sample(grammar.VERSIONS, 5), OF_LOGINS))
            case 1:
                # SaslHandshake v0: messages without a header follow.
                login = [_handshake(rng, 0), *map(_framed, _messages(rng))]
                some = OF_LOGINS
            case _:
                login = [_handshake(rng, 1), *[_authenticate(rng, each) for each in _messages(rng)]]
                some = rng.choice((OF_LOGINS, OF_RIGHTS, grammar.VERSIONS))
        frames = [
            grammar.generated(rng, names, *rng.choice(some), number)
            for number in range(rng.choice((0, 1, 3, 8)))
        ]
        if rng.random() < 0.3:
            frames, login = login, frames
        return [*login, *frames]

    @override
    async def send(self, one: agents.Agent, frames: Sequence[bytes]) -> Hashable:
        before = _untouchable(one)
        said: set[bytes] = set()
        known: dict[Client, str] = {}
        clients = [one.connect(LISTENER)]
        for frame in frames:
            if (user := WORDS.get(frame[4:])) is not None:
                clients.append(await _let_in(one, user))
                known[clients[-1]] = f"User:{user}"
                continue
            client = clients[-1]
            said.add(await exchanged(client, frame))
            principal = client.protocol.requester.principal
            if principal != known.get(client, "User:ANONYMOUS"):
                raise WrongError(f"{principal} was let in without a password")
            if client.closed or not client.transport.writes:
                clients.append(one.connect(LISTENER))
            client.forget()
        for client in clients:
            if not client.closed:
                client.hang_up()
        if f"User:{ADMIN}" not in known.values() and _untouchable(one) != before:
            raise WrongError("what nobody there has a right to was changed")
        return frozenset(said)


def _untouchable(one: agents.Agent) -> object:
    """What neither Alice nor a stranger may change."""
    machine = one.machine
    names = sorted(topic.name for topic in machine.topics)
    # A transaction is open in partition 1 of "t", and ends by itself.
    rows = [one.row(name, index) for name, index in (("t", 0), ("t", 2), ("logs", 0))]
    ends = [row and row.end_offset for row in rows]
    return names, ends, machine.acls.version, len(machine.credentials)


async def _let_in(one: agents.Agent, user: str) -> Client:
    client = one.connect(LISTENER)
    asked = messages.SaslHandshakeRequest(mechanism="PLAIN")
    await client.call(apis.SASL_HANDSHAKE, 1, asked)
    token = f"\0{user}\0{PASSWORDS[user]}".encode()
    answer: Any = await client.call(
        apis.SASL_AUTHENTICATE, 2, messages.SaslAuthenticateRequest(auth_bytes=token)
    )
    if answer.error_code:
        raise WrongError(f"{user} is not let in: {answer}")
    client.forget()
    return client


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _messages(rng: random.Random) -> list[bytes]:
    kind = rng.choice((sasl.PLAIN, sasl.SCRAM))
    return sasl.generated(rng, kind).split(sasl.BETWEEN)


def _handshake(rng: random.Random, version: int) -> bytes:
    asked = messages.SaslHandshakeRequest(mechanism=rng.choice((*MECHANISMS, "GSSAPI", "")))
    body = messages.encode_request(apis.SASL_HANDSHAKE, version, asked)
    return request_frame(apis.SASL_HANDSHAKE, version, 1, "client", body)


def _authenticate(rng: random.Random, message: bytes) -> bytes:
    version = rng.choice((0, 1, 2))
    asked = messages.SaslAuthenticateRequest(auth_bytes=message)
    body = messages.encode_request(apis.SASL_AUTHENTICATE, version, asked)
    return request_frame(apis.SASL_AUTHENTICATE, version, 1, "client", body)
