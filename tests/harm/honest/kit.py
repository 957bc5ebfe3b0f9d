"""An agent with its defaults, a program of clients beside it, and that nobody was refused or cut off."""

import asyncio
import http.client
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harm.canary import Account
from tests.harm.scene import Declared, Scene, verdict_of

DEFAULTS = ("cache.bytes=256MiB", "produce.buffer.bytes=256MiB")
"""In place of what attacks set (`tests.harm.scene.QUICK`); that many objects may be written stays: else a
record of the canary takes a tenth of a second, and hides what it waited for."""
NOBODYS_FAULT = {"client", "leaving"}
"""Reasons for the end of a connection that its client or its agent chose."""
NEVER = (
    *("frazil_connections_refused", "frazil_requests_refused_stale", "frazil_handler_failures"),
    *("frazil_connections_closed", "frazil_produce_batches_refused"),
)
Work = Callable[[Scene], Awaitable[Mapping[str, float]]]
"""What honest clients do with the scene's agent; seconds by step."""
_ROW = re.compile(r'^(\w+?)(?:_total)?(?:\{(?:\w+="([^"]*)")?.*\})? (\S+)$', re.MULTILINE)


P99_MS_MAX = 1000
"""Of the canary. On a machine of its own it is below 250; clients that work for their living take all of
a small one's cores."""


def tell(step: str, seconds: float) -> None:
    """Of a program: a step is done."""
    print(f"@{step} {seconds:.2f}", flush=True)


def steps_told(output: str) -> dict[str, float]:
    """Seconds by step, as a program told."""
    return {
        name: float(seconds)
        for name, seconds in re.findall(r"^@(\S+) (\S+)$", output, re.MULTILINE)
    }


async def run(argv: Sequence[str]) -> dict[str, float]:
    """Run a program of clients to its end; what it told.

    It runs with little weight, as if it had a machine of its own.
    """
    program = await asyncio.create_subprocess_exec(
        *("nice", "-n", "5", *argv),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output = (await program.communicate())[0].decode(errors="replace")
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert program.returncode == 0, output[-4000:]
    return steps_told(output)


def python(module: str) -> list[str]:
    """The command of a module of this folder."""
    return [sys.executable, "-m", f"tests.harm.honest.{module}"]


def metrics(http_port: int) -> Mapping[tuple[str, str], float]:
    """Of an agent: by name (counters without `_total`) and first label, which may be empty."""
    connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    return {(name, label): float(value) for name, label, value in _ROW.findall(text)}


def refusals(http_port: int) -> Mapping[str, float]:
    """Whom the agent has refused or disconnected, by metric and reason; nobody: empty."""
    found = metrics(http_port)
    assert found["frazil_connections", ""] >= 0
    return {
        f"{name} {reason}".strip(): value
        for (name, reason), value in found.items()
        if name in NEVER and value and reason not in NOBODYS_FAULT
    }


@dataclass(frozen=True)
class Told:
    """What honest clients saw, and who was beside them."""

    steps: Mapping[str, float]
    """Seconds."""
    refusals: Mapping[str, float]
    account: Account
    memory: int
    """Bytes that the agent took more than before, at most."""


async def beside_a_canary(
    work: Work, folder: Path, *settings: str, descriptors: int | None = None
) -> Told:
    """Honest work beside a canary; both are to find nothing wrong, and neither is the agent's log."""
    steps: dict[str, float] = {}
    refused: dict[str, float] = {}

    async def watched(scene: Scene) -> None:
        steps.update(await work(scene))
        refused.update(await asyncio.to_thread(refusals, scene.http_port))

    declared = Declared("honest", watched, (*DEFAULTS, *settings), sys.maxsize, descriptors)
    verdict = await verdict_of(declared, folder)
    assert verdict.alive, verdict.log[-4000:]
    assert "Traceback" not in verdict.log, verdict.log[-4000:]
    account = verdict.account
    assert not account.lost, account.lost
    assert max(account.ack_p99, account.read_p99) < P99_MS_MAX, account
    memory = verdict.memory_most - verdict.memory_before
    told = Told(steps, refused, account, memory)
    print(told)
    return told
