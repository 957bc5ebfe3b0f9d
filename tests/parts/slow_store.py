"""`python -m tests.parts.slow_store`: an S3 server that takes as long for a PUT as a distant one.

A process of its own, so that what it costs is not its client's. It passes on bytes between a port
and another; the answer to a PUT waits. How long is drawn by a seed: 30 ms at least, 48 in the
middle, 150 at the ninety-ninth of a hundred, which is what regions of S3 take for a few megabytes.
On a connection one request is under way, as in HTTP/1.1 without pipelining.
"""

import argparse
import asyncio
import contextlib
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import uvloop

from tests.parts.process import Child, answers, free_port

LEAST_MS = 30.0
MEAN_MORE_MS = 26.0


class SlowStore:
    """The proxy as a child process, in front of `target`, a port of loopback."""

    def __init__(self, folder: Path, target: int, *, least_ms: float, more_ms: float) -> None:
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.child = Child(
            [
                *(sys.executable, "-m", "tests.parts.slow_store"),
                *("--port", str(self.port), "--target", str(target)),
                *("--least-ms", str(least_ms), "--more-ms", str(more_ms)),
            ],
            log=folder / "slow_store.log",
        )

    def start(self) -> None:
        self.child.start(lambda: answers(self.port))

    def stop(self) -> None:
        self.child.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Delays:
    """How long each PUT waits: an exponential distribution, moved by `least_ms`."""

    def __init__(self, least_ms: float, more_ms: float) -> None:
        self._rng = random.Random(7)
        self._least_ms, self._more_ms = least_ms, more_ms

    def next_s(self) -> float:
        more_ms = self._rng.expovariate(1 / self._more_ms) if self._more_ms else 0.0
        return (self._least_ms + more_ms) / 1000


async def _up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, puts: list[bool]) -> None:
    """Requests; `puts` holds whether the one under way is a PUT whose answer has not begun."""
    while data := await reader.read(1 << 20):
        if data.startswith(b"PUT "):
            puts[0] = True
        writer.write(data)
        await writer.drain()


async def _down(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, puts: list[bool], delays: Delays
) -> None:
    while data := await reader.read(1 << 20):
        if puts[0] and not data.startswith(b"HTTP/1.1 100"):
            puts[0] = False
            await asyncio.sleep(delays.next_s())
        writer.write(data)
        await writer.drain()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def passing_on(target: int, delays: Delays) -> Handler:
    """What serves one connection."""

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", target)
        puts = [False]
        ways = {
            asyncio.ensure_future(_up(reader, forth, puts)),
            asyncio.ensure_future(_down(back, writer, puts, delays)),
        }
        # Whoever hangs up first ends both.
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, forth):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    return serve_one


async def serve(port: int, target: int, delays: Delays) -> None:
    server = await asyncio.start_server(passing_on(target, delays), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.parts.slow_store")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--target", type=int, required=True)
    parser.add_argument("--least-ms", type=float, default=LEAST_MS)
    parser.add_argument("--more-ms", type=float, default=MEAN_MORE_MS, help="in the mean")
    options = parser.parse_args()
    delays = Delays(options.least_ms, options.more_ms)
    uvloop.run(serve(options.port, options.target, delays))


if __name__ == "__main__":
    main()
