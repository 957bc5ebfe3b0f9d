"""An agent, a canary beside it, and an attack: what one client can do to another.

`verdict_of` starts `frazil dev` and the canary, runs the attack, and tells what the canary saw and
what the agent came to. The attack has its own addresses and loop; the canary is another process.
"""

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harm.addresses import address
from tests.harm.canary import Account
from tests.kit.requests import Exchange
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev

QUICK = ("puts.per.second=1000", "cache.bytes=64MiB", "produce.buffer.bytes=64MiB")
"""So that a record takes milliseconds, and memory that is held shows."""
ATTACK_S_MAX = 90.0
WATCHED_S_MIN = 2.5
"""However short the attack: what it leaves behind is seen too."""
WARM_S = 0.7
MEMORY_BYTES_MIN = 4 << 30


@dataclass
class Verdict:
    """What an attack did."""

    account: Account
    sent: int
    """Bytes that the attacker sent."""
    memory_before: int
    memory_most: int
    """Bytes: resident memory of the agent before, and at most while it was attacked."""
    alive: bool
    log: str
    """What the agent wrote."""


class Peer:
    """One connection of an attacker; counts what it sends."""

    def __init__(
        self, scene: "Scene", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._scene = scene
        self._reader = reader
        self._writer = writer
        self._exchange = Exchange()

    async def send(self, data: bytes) -> None:
        """Raises OSError when the agent has closed the connection."""
        self._scene.sent += len(data)
        self._writer.write(data)
        await self._writer.drain()

    def frame(self, key: int, version: int, request: Any, *, body: bytes | None = None) -> bytes:
        """A request's bytes. `body`: instead of a request's."""
        return self._exchange.request(key, version, request, client_id="attacker", body=body)

    async def receive(self) -> Any:
        """The next answer. Raises EOFError or OSError when there is none to come."""
        length = int.from_bytes(await self._reader.readexactly(4))
        return self._exchange.response(await self._reader.readexactly(length))[1]

    async def skip(self) -> None:
        """The next answer, unread."""
        length = int.from_bytes(await self._reader.readexactly(4))
        await self._reader.readexactly(length)

    async def ask(self, key: int, version: int, request: Any) -> Any:
        await self.send(self.frame(key, version, request))
        return await self.receive()

    async def read(self) -> bytes:
        """Whatever comes (HTTP), until the end."""
        return await self._reader.read()

    def take_little(self) -> None:
        """Have the kernel take as little as it can of what nobody reads."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def close(self) -> None:
        self._writer.close()


class Scene:
    """One agent under attack."""

    def __init__(self, agent: FrazilDev, registry_port: int) -> None:
        self.agent = agent
        self.port = agent.port
        self.http_port = agent.http_port
        self.registry_port = registry_port
        self.sent = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, port: int | None = None, *, who: str = "attacker") -> Peer:
        """To the Kafka listener, or another `port`. Closed when the attack is over, if not before."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port or self.port, local_addr=(address(who), 0)
        )
        self._writers.append(writer)
        return Peer(self, reader, writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


Attack = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class Declared:
    """An attack, and the agent that it is tried against."""

    name: str
    run: Attack
    settings: tuple[str, ...]
    memory_max: int
    """Bytes that the agent may take more than before."""
    descriptors: int | None
    """That the agent's process may have; None: as many as this one's."""


ATTACKS: dict[str, Declared] = {}


def attack(
    *settings: str, memory_max: int = 128 << 20, descriptors: int | None = None
) -> Callable[[Attack], Attack]:
    """Declare a function as an attack. `settings`: of the agent, as `name=value`."""

    def declare(run: Attack) -> Attack:
        name = run.__name__
        assert name not in ATTACKS
        ATTACKS[name] = Declared(name, run, settings, memory_max, descriptors)
        return run

    return declare


async def verdict_of(declared: Declared, folder: Path, *, checkout: Path | None = None) -> Verdict:
    """Run one attack against an agent of this checkout, or of another."""
    with _calm_folder(folder / "data") as data:
        return await _verdict_of(declared, folder, data, checkout)


@contextlib.contextmanager
def _calm_folder(otherwise: Path) -> Iterator[Path]:
    """For the agent's data: in memory where there is room. A sync of a disk waits for whatever else the
    machine writes, which would pass for what the attack does."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < MEMORY_BYTES_MIN:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="frazil-harm-") as folder:
        yield Path(folder)


async def _verdict_of(
    declared: Declared, folder: Path, data: Path, checkout: Path | None
) -> Verdict:
    registry_port = free_port()
    words = [f"schema.registry.listeners=http://127.0.0.1:{registry_port}", *QUICK]
    arguments = [each for word in (*words, *declared.settings) for each in ("--set", word)]
    agent = FrazilDev(folder, *arguments, "--data", str(data))
    if declared.descriptors is not None:
        limited = f'ulimit -n {declared.descriptors}; exec "$@"'
        agent.child.argv[:0] = ["sh", "-c", limited, "sh"]
    if checkout is not None:
        agent.child.env["PYTHONPATH"] = str(checkout)
    try:
        async with _canary(agent.port) as canary:
            await asyncio.to_thread(agent.start)
            return await _watched(declared, agent, Scene(agent, registry_port), canary)
    finally:
        agent.child.kill()


async def _watched(
    declared: Declared, agent: FrazilDev, scene: Scene, canary: asyncio.subprocess.Process
) -> Verdict:
    _order(canary, "begin")
    async with asyncio.TaskGroup() as tasks:
        await asyncio.sleep(WARM_S)
        before = resident(agent.child.pid)
        most = [before]
        sampled = tasks.create_task(_sample(agent, most))
        _order(canary, "watch")
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(ATTACK_S_MAX):
                await declared.run(scene)
            await asyncio.sleep(max(0.0, WATCHED_S_MIN - (loop.time() - began)))
            _order(canary, "tell")
            assert canary.stdout is not None
            told = await canary.stdout.read()
        finally:
            sampled.cancel()
            scene.close()
    return Verdict(
        account=Account(**json.loads(told)),
        sent=scene.sent,
        memory_before=before,
        memory_most=max(most),
        alive=agent.child.running,
        log=agent.child.log.read_text(errors="replace"),
    )


async def _sample(agent: FrazilDev, most: list[int]) -> None:
    while agent.child.running:
        most.append(resident(agent.child.pid))
        await asyncio.sleep(0.1)


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)
    return int(told.stdout.strip() or 0) * 1024


@contextlib.asynccontextmanager
async def _canary(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    canary = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.harm.canary", str(port), "canary"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for who owns it.
    )
    try:
        yield canary
    finally:
        if canary.returncode is None:
            canary.kill()
        await canary.wait()


def _order(canary: asyncio.subprocess.Process, order: str) -> None:
    assert canary.stdin is not None
    canary.stdin.write(f"{order}\n".encode())
