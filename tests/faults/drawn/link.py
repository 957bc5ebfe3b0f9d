"""A network between real processes that can be cut: TCP proxies on loopback, in a thread of their own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Self

CHUNK_BYTES = 65536


class Link:
    """From a port of its own to `target`; what befalls it is set from any thread, and holds at once."""

    def __init__(self, network: "Network", target: int) -> None:
        self._network = network
        self.target = target
        self.port = 0
        self.torn = self.lost = 0
        """How many answers were."""
        self._ways: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._delay_s = 0.0
        self._damage, self._every, self._answers = "", 1, 0
        self._flows = asyncio.Event()
        self._flows.set()

    def befall(self, kind: str, amount: float = 0.0) -> None:
        """From now on, until `heal`."""
        self._network.do(lambda: self._befall(kind, amount))

    def heal(self) -> None:
        self._network.do(self._heal)

    def _befall(self, kind: str, amount: float) -> None:
        match kind:
            case "cut":
                self._is_cut = True
                self._hang_up()
            case "half-open":
                self._flows.clear()
            case "slow":
                self._delay_s = amount
            case "torn" | "lost":
                self._damage, self._every = kind, int(amount) or 1
            case _:
                raise AssertionError(kind)

    def _heal(self) -> None:
        self._is_cut, self._delay_s, self._damage = False, 0.0, ""
        self._flows.set()

    def _hang_up(self) -> None:
        for way in list(self._ways):
            way.transport.abort()

    async def open(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server

    async def close(self) -> None:
        self._server.close()
        self._hang_up()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        with self._way(writer):
            await self._flows.wait()
            try:
                far_reader, far = await asyncio.open_connection("127.0.0.1", self.target)
            except OSError:
                writer.transport.abort()
                return
            with self._way(far):
                there = asyncio.ensure_future(self._pump(reader, far, is_answer=False))
                back = asyncio.ensure_future(self._pump(far_reader, writer, is_answer=True))
                await asyncio.wait((there, back))

    @contextlib.contextmanager
    def _way(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._ways.add(writer)
        try:
            yield
        finally:
            self._ways.discard(writer)
            writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._flows.wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if is_answer and self._is_next_damaged():
                    await self._tear(data, writer)
                    return
                writer.write(data)
                await writer.drain()
            await self._flows.wait()
        writer.close()

    def _is_next_damaged(self) -> bool:
        """One of so many pieces."""
        if not self._damage:
            return False
        self._answers += 1
        return self._answers % self._every == 0

    async def _tear(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        """What was asked for is done, and its answer comes in part, or not at all."""
        if self._damage == "torn":
            self.torn += 1
            writer.write(data[: len(data) // 2])
            with contextlib.suppress(OSError):
                await writer.drain()
        else:
            self.lost += 1
        writer.close()


class Network:
    """All links of a run, on one loop."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self.links:
            asyncio.run_coroutine_threadsafe(link.close(), self._loop).result(10)
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        me = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def link(self, target: int) -> Link:
        """A new one, open."""
        link = Link(self, target)
        asyncio.run_coroutine_threadsafe(link.open(), self._loop).result(10)
        self.links.append(link)
        return link

    def do(self, what: Callable[[], None]) -> None:
        """On the loop; when this returns it is done."""

        async def doing() -> None:
            what()

        asyncio.run_coroutine_threadsafe(doing(), self._loop).result(10)
