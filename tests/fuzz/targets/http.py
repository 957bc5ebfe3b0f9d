"""Bytes of HTTP to an agent's admin endpoints and schema registry, each its own connection.

The first byte of an input says to which of the two the rest goes. aiohttp's protocol gets the bytes as
they are, without a socket; the agent is a whole one, on a real loop, and serves many inputs.
"""

import asyncio
import json
import logging
import random
from collections.abc import Hashable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from typing_extensions import override

from tests.fuzz import mutation, schema_texts
from tests.fuzz.target import Target, WrongError
from tests.kit.sockets import Place, Running, agent_of

ADMIN, REGISTRY = 0, 1
SETTINGS = (
    "schema.registry.listeners=http://127.0.0.1:0",
    # Between inputs its loop stands still.
    "lease.ttl.ms=600000",
    "session.deadline.ms=500000",
)
WAIT_TURNS = 80
"""Of the loop; a request that waits longer is left by its client."""
ADMIN_PATHS = [
    *(
        "/metrics",
        "/health/live",
        "/health/ready",
        "/log?after=0",
        "/log?after=0&follow=1",
        "/log?after=x",
    ),
    *(
        "/jobs",
        "/jobs/retention/run",
        "/jobs/x/run",
        "/objects/unnamed",
        "/check",
        "/check?deep=1",
        "/topics/t/lost",
        "/topics/t",
        "/topics/t?from=1",
    ),
    *(
        "/topics/t?from=-1",
        "/topics/%00",
        "/export/topics",
        "/export/plan?topic=t",
        "/export/progress",
    ),
    *("/export/plan?topic=t&partition=0&from=0", "/export/plan?topic=t&partition=x", "/export/pin"),
    *("/export/pin/a", "/export/plan", "/nothing", "/"),
]
REGISTRY_PATHS = [
    *(
        "/",
        "/contexts",
        "/schemas",
        "/schemas?offset=1&limit=2",
        "/schemas?offset=x",
        "/schemas/types",
    ),
    *(
        "/schemas/ids/1",
        "/schemas/ids/1/schema",
        "/schemas/ids/1/subjects",
        "/schemas/ids/1/versions",
    ),
    *(
        "/schemas/ids/99999999999999999999",
        "/schemas/guids/x",
        "/subjects",
        "/subjects?deleted=true",
    ),
    *(
        "/subjects/s",
        "/subjects/s?permanent=true",
        "/subjects/s/versions",
        "/subjects/s/versions/1",
    ),
    *("/subjects/s/versions/latest", "/subjects/s/versions/-1", "/subjects/s/versions/x"),
    *(
        "/subjects/s/versions/1/schema",
        "/subjects/s/versions/1/referencedby",
        "/subjects/%2F%00/versions",
    ),
    *(
        "/subjects/s/versions?normalize=true",
        "/config",
        "/config/s",
        "/config/s?defaultToGlobal=true",
    ),
    *("/mode", "/mode/s", "/mode/s?force=true", "/compatibility/subjects/s/versions/latest"),
    *("/compatibility/subjects/s/versions", "/v1/metadata/id"),
]
BODIES: list[Any] = [
    *({}, [], None, 1, "x", {"name": "a", "lifetime_ms": 1000}, {"name": "a", "lifetime_ms": -1}),
    *(
        {"name": "a", "lifetime_ms": 1e400},
        {"name": ["a"], "lifetime_ms": "1"},
        {"topic": "t", "offsets": {"0": 1}},
    ),
    *(
        {"topic": "t", "topic_id": "00" * 16, "offsets": [0]},
        {"compatibility": "FULL"},
        {"compatibility": None},
    ),
    *(
        {"mode": "IMPORT"},
        {"mode": "READWRITE"},
        {"mode": []},
        {"topics": ["t"]},
        {"topics": [{"topic": "t"}]},
    ),
]
HEADERS = [
    *(
        "Expect: 100-continue",
        "Connection: close",
        "Upgrade: websocket",
        "Transfer-Encoding: chunked",
    ),
    *(
        "Content-Type: text/plain; charset=x",
        "Content-Type: application/json; charset=utf-16",
        "Host: evil.example",
    ),
    *(
        "Content-Encoding: gzip",
        "Content-Encoding: deflate",
        "Content-Type: multipart/form-data; boundary=x",
    ),
    *(
        "Authorization: Basic ////",
        "Authorization: Basic é",
        "Origin: http://evil.example",
        "Range: bytes=0-",
    ),
    *(
        "Accept: text/plain",
        "Accept-Encoding: gzip",
        "Content-Length: 5",
        "Content-Length: -1",
        "Cookie: a=b; c",
    ),
    *("X: " + "y" * 9000, ": x", "A\x00: b", "If-Modified-Since: x"),
]


class Http(Target):
    name = "http"
    fixed = 150
    life = 3000

    @override
    def open(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self._loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        agent = agent_of(Place(), *SETTINGS)
        self._running: Running = await self._stack.enter_async_context(agent)
        await self._running.until(ready=True)
        client = await self._running.connect()
        await client.create("t")
        await client.produce("t", [b"1", b"2"])

    @override
    def close(self) -> None:
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        await self._stack.aclose()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    @override
    def generate(self, rng: random.Random) -> bytes:
        to = rng.choice((ADMIN, REGISTRY, REGISTRY))
        hostility = rng.choice((0.0, 0.1, 0.1, 0.5))
        requests = [_request(rng, to, hostility) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        return bytes((to,)) + b"".join(requests)

    @override
    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        return data[:1] + mutation.mutated(rng, data[1:], other[1:])

    @override
    def pieces(self, data: bytes) -> Sequence[bytes]:
        return [data[:1], *(each + b"\r\n" for each in data[1:].split(b"\r\n"))]

    @override
    def run(self, data: bytes) -> Hashable:
        return self._loop.run_until_complete(self._exchange(data))

    async def _exchange(self, data: bytes) -> Hashable:
        agent = self._running.agent
        factories = [listener.connections.factory for listener in agent._http.listeners]
        factory = factories[data[0] % len(factories)] if data else factories[0]
        said = _statuses(await _talk(factory(), data[1:]))
        for status in said:
            # An agent that is ready has nothing of its own that could be wrong.
            if status.startswith((b"5", b"4x")):
                raise WrongError(f"{status.decode(errors='replace')} where nothing is wrong here")
        alive = _statuses(
            await _talk(factories[0](), b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        )
        if alive != [b"200"]:
            raise WrongError(f"the canary is not served: {alive}")
        return tuple(said)


class _Transport(asyncio.Transport):
    """Takes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5000), "sockname": ("127.0.0.1", 8080)}.get(name, default)

    @override
    def write(self, data: Any) -> None:
        self.written += data

    @override
    def is_closing(self) -> bool:
        return self.closed

    @override
    def close(self) -> None:
        self.closed = True

    @override
    def abort(self) -> None:
        self.closed = True

    @override
    def pause_reading(self) -> None:
        """Nothing more comes anyway."""

    @override
    def resume_reading(self) -> None:
        """As above."""


async def _talk(protocol: Any, data: bytes) -> bytes:
    """What is answered to these bytes on a connection of their own."""
    inner = protocol._inner
    transport = _Transport()
    protocol.connection_made(transport)
    await asyncio.sleep(0)
    protocol.data_received(data)
    for turn in range(WAIT_TURNS):
        # It waits for the next request, so all were answered; or they never will be.
        if transport.closed or (turn > 3 and inner._waiter is not None and not inner._messages):
            break
        await asyncio.sleep(0 if turn < WAIT_TURNS - 10 else 0.001)
    protocol.connection_lost(None)
    await asyncio.sleep(0)
    return bytes(transport.written)


def _statuses(answers: bytes) -> list[bytes]:
    pieces = answers.split(b"HTTP/1.1 ")
    return [each[:3] for each in pieces[1:]]


def _request(rng: random.Random, to: int, hostility: float) -> bytes:
    def hostile(times: float = 1.0) -> bool:
        return rng.random() < hostility * times

    path = rng.choice(REGISTRY_PATHS if to == REGISTRY else ADMIN_PATHS)
    method = rng.choice(("GET", "GET", "POST", "POST", "PUT", "DELETE"))
    if to == REGISTRY and rng.random() < 0.3:
        method, path = "POST", "/subjects/s/versions"
    if hostile(0.1):
        method = rng.choice(("HEAD", "OPTIONS", "CONNECT", "PRI", "get", "X" * 300, "G\0T", ""))
    if hostile(0.2):
        path = rng.choice(
            (
                path + "?" + "a=b&" * 300,
                "*",
                "http://evil/x",
                path + "%ff",
                "//",
                path + "/../x",
                "é",
            )
        )
    body = b""
    if method in ("POST", "PUT"):
        body = _body(rng, to, hostile(0.5))
    headers = [f"Host: 127.0.0.1:{8080 + to}", "Content-Type: application/json"]
    if body or hostile(0.1):
        headers.append(
            f"Content-Length: {len(body) if not hostile(0.1) else mutation.edge(rng, 32)}"
        )
    if hostile():
        headers += rng.sample(HEADERS, rng.choice((1, 1, 3)))
    version = (
        "HTTP/1.1" if not hostile(0.1) else rng.choice(("HTTP/1.0", "HTTP/2.0", "HTTP/9", "x", ""))
    )
    head = "\r\n".join([f"{method} {path} {version}", *headers, "", ""])
    return head.encode() + body


def _body(rng: random.Random, to: int, hostile: bool) -> bytes:
    value = rng.choice(BODIES)
    if to == REGISTRY and rng.random() < 0.7:
        kind = rng.randrange(3)
        value = {
            "schema": schema_texts.text(rng, kind),
            "schemaType": ("AVRO", "JSON", "PROTOBUF")[kind],
        }
        if hostile:
            key = rng.choice(
                ("schema", "schemaType", "references", "id", "version", "metadata", "ruleSet")
            )
            value[key] = rng.choice(schema_texts.ODD)
    said = json.dumps(value).encode()
    if hostile:
        odd = (
            b"\xff\xfe",
            b"[" * 5000,
            b'{"a":' * 2000,
            b"1" * 6000,
            b"NaN",
            b"",
            said[:-1],
            said + b"}",
        )
        said = rng.choice((*odd, said.replace(b"0", b"9" * 5000)))
    return said


logging.getLogger("aiohttp").setLevel(logging.INFO)
