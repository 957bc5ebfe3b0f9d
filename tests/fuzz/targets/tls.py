"""Ciphertext to an agent's TLS listener: handshakes by halves, records cut, forged, held back and mixed.

An input is a row of steps; each is a kind, a number, and bytes. A step makes the client's library go on
and gives the agent all of what comes, or less, or something else; a connection that is closed is
followed by another one. In the end an honest client must be served, over TLS, and nothing be held of
those who left. In all that the agent sends there is nothing but records of TLS.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import Hashable, Sequence
from enum import IntEnum
from functools import cache
from typing import ClassVar, NamedTuple

from typing_extensions import override

from broker.edge.numbering import RECORD_TYPES
from broker.edge.tls_listener import TlsListener
from broker.edge.tls_transport import HANDSHAKE_MS_MAX
from broker.node import EdgeStats
from protocol import apis
from tests.fuzz import grammar, mutation
from tests.fuzz.target import WrongError
from tests.fuzz.targets.agent import Agent as AgentTarget
from tests.kit import agents, requests
from tests.kit.agents import World
from tests.kit.certificates import Authority
from tests.kit.client import settle
from tests.kit.tls import TlsClient, client_context, listener_of

LISTENER = "SSL"
STEPS_MAX = 60
PATIENCE_S = 60.0
ROUNDS = 12
"""Of a handshake, which needs three."""
HEAD_BYTES = 5
"""Of a step: its kind, a number of two bytes, how many bytes follow (two bytes)."""


class Kind(IntEnum):
    """What a step does."""

    SHAKE = 0
    """The whole handshake."""
    STEP = 1
    """The client's library goes on by one step; of what it sends the number says how much goes."""
    SEAL = 2
    """Bytes as a record, cut likewise."""
    RAW = 3
    RECORD = 4
    """A forged one."""
    HOLD = 5
    """What was cut off goes now."""
    WAIT = 6
    GOODBYE = 7
    """close_notify."""
    LEAVE = 8
    """The end of the stream."""
    ANEW = 9
    """Another connection, of this version and address."""


RECORDS = (
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",  # A hello of one byte.
    b"\x15\x03\x03\x00\x02\x02\x28",  # An alert: the handshake has failed.
    b"\x15\x03\x03\x00\x02\x01\x00",  # close_notify in clear.
    b"\x15\x03\x03\x00\x02\x01\x64",  # No renegotiation.
    b"\x14\x03\x03\x00\x01\x01",  # ChangeCipherSpec.
    b"\x17\x03\x03\x00\x00",  # Application data, none.
    b"\x17\x03\x03\xff\xff",  # Too large.
    b"\x18\x03\x03\x00\x03\x01\x40\x00",  # A heartbeat that asks for what it did not send.
    b"\x80\x2e\x01\x00\x02",  # SSL 2.
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00\x00\x00\x10\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00\x00\x00",  # Kafka in clear.
)


class Step(NamedTuple):
    kind: Kind
    number: int
    data: bytes

    def encoded(self) -> bytes:
        data = self.data[:0xFFFF]
        head = bytes([self.kind]) + self.number.to_bytes(2, "big") + len(data).to_bytes(2, "big")
        return head + data


def steps_of(data: bytes) -> list[Step]:
    steps, at = [], 0
    while at + HEAD_BYTES <= len(data) and len(steps) < 2 * STEPS_MAX:
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        number = int.from_bytes(data[at + 1 : at + 3], "big")
        body = data[at + HEAD_BYTES : at + HEAD_BYTES + size]
        steps.append(Step(Kind(data[at] % len(Kind)), number, body))
        at += HEAD_BYTES + size
    return steps


@cache
def _authority() -> Authority:
    return Authority()


@cache
def _listener() -> TlsListener:
    """Of all agents: their contexts are the same."""
    return listener_of(_authority().sign("agent"), EdgeStats())


@cache
def _context(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = client_context(_authority())
    context.minimum_version = context.maximum_version = version
    return context


class Tls(AgentTarget):
    name: ClassVar[str] = "tls"
    fixed = 20

    @override
    def world(self) -> World:
        world = World()
        world.tls = {LISTENER: _listener()}
        return world

    @override
    async def settle(self, one: agents.Agent) -> None:
        await one.create_topic("t")
        await one.create_topic("canary")

    @override
    def generate(self, rng: random.Random) -> bytes:
        steps: list[Step] = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            steps += _connection(rng)
        return b"".join(step.encoded() for step in steps[:STEPS_MAX])

    @override
    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        mine, theirs = steps_of(data), steps_of(other)
        if not mine or not theirs:
            return self.generate(rng)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(mine))
            step = mine[at]
            match rng.randrange(5):
                case 0:
                    mine.insert(at, rng.choice(theirs))
                case 1:
                    mine[at] = step._replace(number=mutation.edge(rng, 16) & 0xFFFF)
                case 2:
                    mine[at] = step._replace(kind=Kind(rng.randrange(len(Kind))))
                case 3 if len(mine) > 1:
                    del mine[at]
                case _:
                    changed = mutation.mutated(rng, step.data, rng.choice(theirs).data)
                    mine[at] = step._replace(data=changed)
        return b"".join(step.encoded() for step in mine[:STEPS_MAX])

    @override
    def pieces(self, data: bytes) -> Sequence[bytes]:
        return [step.encoded() for step in steps_of(data)]

    @override
    async def send(self, one: agents.Agent, frames: Sequence[bytes]) -> Hashable:
        said: set[Hashable] = set()
        visitors = [_Visitor(one)]
        for step in [each for frame in frames for each in steps_of(frame)]:
            if visitors[-1].is_gone or step.kind is Kind.ANEW:
                version = (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2)[step.number % 2]
                visitors.append(_Visitor(one, version, f"10.0.0.{step.number >> 8}"))
            said.add((step.kind, await visitors[-1].take(step)))
        await asyncio.sleep(HANDSHAKE_MS_MAX / 1000 + 1)  # Nobody holds a place for longer.
        for visitor in visitors:
            visitor.check()
            if not visitor.client.closed:
                visitor.client.hang_up()
        await asyncio.sleep(0.1)
        if (under_way := one.server._shaker._handshakes.under_way) != 0:
            raise WrongError(f"{under_way} handshakes are under way, and nobody is there")
        await _served(one)
        return frozenset(said), frozenset(one.node.stats.handshakes_failed.items())


class _Visitor:
    """One connection."""

    def __init__(
        self,
        one: agents.Agent,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        address: str = "127.0.0.1",
    ) -> None:
        self.client = TlsClient(one.server, _context(version), LISTENER, address=address)
        self._held = b""
        """Of what was to be sent."""
        self._feed = self.client.feed
        self._left = False

    @property
    def is_gone(self) -> bool:
        return self._left or self.client.closed

    async def take(self, step: Step) -> Hashable:
        try:
            await self._take(step)
        except ssl.SSLError as error:
            return error.reason or "?"
        return self.client.closed

    async def _take(self, step: Step) -> None:
        client, count = self.client, step.number
        match step.kind:
            case Kind.SHAKE:
                await self._shake()
            case Kind.STEP:
                self._cut(self._stepped(), count)
            case Kind.SEAL:
                self._cut(client.sealed(step.data), count)
            case Kind.RAW:
                self._give(step.data)
            case Kind.RECORD:
                kind = bytes([(20, 21, 22, 23, 24, count & 0xFF)[count % 6]])
                self._give(kind + b"\x03\x03" + len(step.data).to_bytes(2, "big") + step.data)
            case Kind.HOLD:
                held, self._held = self._held, b""
                self._give(held)
            case Kind.WAIT:
                await asyncio.sleep(count / 5000)
            case Kind.GOODBYE:
                with contextlib.suppress(ssl.SSLError):
                    client.tls.unwrap()
                self._give(client._outgoing.read())
            case Kind.LEAVE if not (client.closed or client.kernel or client.transport.read_paused):
                self._left = True
                if not client.protocol.eof_received():
                    client.transport.close()
        await asyncio.sleep(0)

    async def _shake(self) -> None:
        for _ in range(ROUNDS):
            if self.client.closed or self.client.step():
                break
            await settle()

    def _stepped(self) -> bytes:
        """What the client's library would send next."""
        sent: list[bytes] = []
        self.client.feed = sent.append  # type: ignore[method-assign]
        try:
            self.client.step()
        finally:
            self.client.feed = self._feed  # type: ignore[method-assign]
        return b"".join(sent)

    def _cut(self, data: bytes, count: int) -> None:
        """Give the beginning now, and the rest when it is asked for, or byte by byte."""
        if count % 7 == 6:
            for index in range(min(len(data), 600)):
                self._give(data[index : index + 1])
            self._give(data[600:])
            return
        at = count % (len(data) + 1) if count else len(data)
        self._give(data[:at])
        self._held += data[at:]

    def _give(self, data: bytes) -> None:
        if data and not self.client.closed:
            self._feed(data)

    def check(self) -> None:
        """Raises WrongError when the agent has said anything but TLS."""
        data = b"".join(self.client.transport.writes)
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at + 3 : at + 5], "big")
            if data[at] not in RECORD_TYPES or data[at + 1] != 3 or at + 5 + size > len(data):
                raise WrongError(f"the agent has sent what is not TLS: {data[at : at + 20]!r}")
            at += 5 + size


async def _served(one: agents.Agent) -> None:
    """An honest client shakes hands and is answered."""
    client = TlsClient(one.server, _context(ssl.TLSVersion.TLSv1_3), LISTENER)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await client.shake()
            answer = await client.call(apis.METADATA, 9, requests.metadata("canary"))
    except (TimeoutError, AssertionError, ssl.SSLError) as error:
        raise WrongError(f"nobody is served over TLS: {error!r}") from error
    if answer.topics[0].error_code:
        raise WrongError(f"an honest client hears {answer}")
    client.hang_up()


def _connection(rng: random.Random) -> list[Step]:
    """What one client does: mostly in order."""
    steps = [Step(Kind.ANEW, rng.choice((0, 1, 256, 257)), b"")]
    if rng.random() < 0.6:
        steps.append(Step(Kind.SHAKE, 0, b""))
    else:
        for _ in range(rng.choice((1, 2, 4))):
            steps.append(Step(Kind.STEP, rng.choice((0, 1, 5, 6, 13, 100, 250, 517)), b""))
            steps += _between(rng)
            steps.append(Step(Kind.HOLD, 0, b""))
    for _ in range(rng.choice((0, 1, 3))):
        steps.append(Step(Kind.SEAL, rng.choice((0, 0, 1, 4, 5, 6, 21, 22, 60)), _plaintext(rng)))
        steps += _between(rng)
        if rng.random() < 0.7:
            steps.append(Step(Kind.HOLD, 0, b""))
    if rng.random() < 0.3:
        steps.append(Step(rng.choice((Kind.GOODBYE, Kind.LEAVE)), 0, b""))
    return steps


def _between(rng: random.Random) -> list[Step]:
    match rng.randrange(6):
        case 0:
            return [Step(Kind.RAW, 0, rng.choice(RECORDS))]
        case 1:
            return [Step(Kind.RAW, 0, rng.randbytes(rng.choice((1, 5, 100, 1 << 14))))]
        case 2:
            size = rng.choice((0, 1, 40, 1 << 14, (1 << 14) + 2048, (1 << 14) + 2049))
            return [Step(Kind.RECORD, rng.randrange(1 << 16), rng.randbytes(size))]
        case 3:
            return [Step(Kind.WAIT, rng.choice((1, 5_000, 51_000)), b"")]
        case _:
            return []


def _plaintext(rng: random.Random) -> bytes:
    names = grammar.Names()
    if rng.random() < 0.2:
        return rng.randbytes(rng.choice((1, 4, 100)))
    frames = [
        grammar.generated(rng, names, *rng.choice(grammar.VERSIONS), number)
        for number in range(rng.choice((1, 1, 2, 5)))
    ]
    return b"".join(frames)[:20_000]
