"""The Kafka listener: every connection, which of them may go on, and the turns of the loop.

One `KafkaServer` per agent, for all its listeners; `broker.edge.connection` has what happens on a
single connection. What holds (P15): all connections together hold a bounded number of request
bytes. At the bound only one connection is read from: the one that has been receiving a frame for
longest, so that something always ends. Answers of one loop turn leave in one write per connection.

Left out: opening sockets (the composition root does), TLS and SASL, quotas, what requests mean.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from broker.api import Api
from broker.calls.stalls import TICK_MS, StallWatch
from broker.edge.connection import KafkaServerProtocol
from broker.edge.dispatch import Dispatcher
from broker.edge.limits import ServerLimits, limits_of
from broker.node import Node

logger = logging.getLogger(__name__)

MiB: Final = 1 << 20
SCRATCH_BYTES: Final = MiB


class KafkaServer:
    """All connections of an agent."""

    def __init__(
        self, node: Node, served: Mapping[int, Api], *, limits: ServerLimits | None = None
    ) -> None:
        self.node = node
        self.limits = limits_of(node) if limits is None else limits
        self.dispatcher = Dispatcher(node, served)
        self.watch = StallWatch(node.boot_ms(), stall_ms_max=node.settings.stall_ms)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        """What every connection receives into; emptied before anybody else receives."""
        self.connections: dict[int, KafkaServerProtocol] = {}
        self.serving = False
        self.choked = False
        """All together hold too much: only `first_receiving` is read from."""
        self._receiving: dict[int, KafkaServerProtocol] = {}
        self._blocked: dict[int, KafkaServerProtocol] = {}
        self._dirty: deque[KafkaServerProtocol] = deque()
        self._number = 0
        self._turn_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._started = asyncio.Event()
        self._empty = asyncio.Event()
        node.producing.on_room(self._room)

    def factory(self, listener: str) -> Callable[[], KafkaServerProtocol]:
        """What `loop.create_server` wants, for one listener."""
        return lambda: KafkaServerProtocol(self, listener)

    async def run(self) -> None:
        """Serve until cancelled; owns the tasks of all handlers. Connections end with it."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self.serving = True
                self._started.set()
                tasks.create_task(self._tick(), name="stall watch")
                tasks.create_task(self._sweep(), name="idle connections")
        finally:
            self.serving = False
            for connection in list(self.connections.values()):
                connection.abort("stopped", "the agent has stopped")

    async def started(self) -> None:
        """Wait until connections are taken."""
        await self._started.wait()

    async def drain(self, timeout_ms: int) -> None:
        """Answer what was asked, close every connection, accept no new one.

        Returns when all are closed, or are cut off after `timeout_ms`. `run` goes on meanwhile.
        """
        self.serving = False
        for connection in list(self.connections.values()):
            connection.leave()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self.connections:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            for connection in list(self.connections.values()):
                connection.abort("leaving", "the agent is leaving and waited long enough")

    # What connections call.

    @property
    def tasks(self) -> asyncio.TaskGroup:
        assert self._tasks is not None
        return self._tasks

    def admit(self, connection: KafkaServerProtocol) -> int:
        """A number for a new connection, or 0 when it cannot be served."""
        if not self.serving or len(self.connections) >= self.limits.connections_max:
            self.node.stats.connections_refused += 1
            return 0
        self._number += 1
        self.connections[self._number] = connection
        self.node.stats.connections_total += 1
        self.node.stats.connections_open = len(self.connections)
        return self._number

    def forget(self, connection: KafkaServerProtocol) -> None:
        """The connection is gone."""
        del self.connections[connection.number]
        self._blocked.pop(connection.number, None)
        self.set_receiving(connection, receiving=False)
        self.node.stats.connections_open = len(self.connections)
        if not self.connections:
            self._empty.set()

    def mark(self, connection: KafkaServerProtocol) -> None:
        """Have `connection.turn()` called once in this turn of the loop, or the next."""
        if not connection.marked:
            connection.marked = True
            self._dirty.append(connection)
            self._schedule()

    def hold(self, byte_count: int) -> None:
        """So many more request bytes are held (negative: fewer)."""
        stats = self.node.stats
        stats.held_bytes += byte_count
        assert stats.held_bytes >= 0
        if self.choked:
            over = stats.held_bytes > self.limits.held_bytes_max * 3 // 4
        else:
            over = stats.held_bytes > self.limits.held_bytes_max
        if over != self.choked:
            self.choked = over
            logger.info("request memory %s", "full: clients wait" if over else "has room again")
            for connection in self.connections.values():
                self.mark(connection)

    def set_receiving(self, connection: KafkaServerProtocol, *, receiving: bool) -> None:
        """Whether a frame of the connection is under way; the oldest may go on when choked."""
        if receiving:
            self._receiving.setdefault(connection.number, connection)
        elif self._receiving.pop(connection.number, None) is not None and self.choked:
            first = self.first_receiving
            if first is not None:
                self.mark(first)

    @property
    def first_receiving(self) -> KafkaServerProtocol | None:
        return next(iter(self._receiving.values()), None)

    def block(self, connection: KafkaServerProtocol) -> None:
        """The connection has a Produce request that waits for room."""
        self._blocked[connection.number] = connection

    # Turns and timers.

    def _room(self) -> None:
        blocked = self._blocked
        self._blocked = {}
        for connection in blocked.values():
            connection.blocked = False
            self.mark(connection)

    def _schedule(self) -> None:
        if not self._turn_due and self._loop is not None:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        self.watch.observe(self.node.boot_ms())
        try:
            # Those that are marked during this turn have their turn in the next.
            for _ in range(len(self._dirty)):
                connection = self._dirty.popleft()
                connection.marked = False
                connection.turn()
        finally:
            if self._dirty:
                self._schedule()

    async def _tick(self) -> None:
        watch = self.watch
        stats = self.node.stats
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            watch.observe(self.node.boot_ms())
            if watch.stalls != stats.stalls:
                logger.warning(
                    "the loop stood still (%d times so far, at most %d ms)",
                    watch.stalls,
                    watch.longest_ms,
                )
                stats.stalls = watch.stalls
                stats.stall_longest_ms = watch.longest_ms

    async def _sweep(self) -> None:
        limit_ms = self.limits.idle_ms_max
        idle_ms_max = limit_ms if limit_ms >= 0 else sys.maxsize
        while True:
            await asyncio.sleep(min(max(idle_ms_max / 10_000, 0.1), 5.0))
            now_ms = self.node.boot_ms()
            for connection in list(self.connections.values()):
                connection.close_if_idle(now_ms, idle_ms_max)
            first = self.first_receiving
            if self.choked and first is not None:
                first.close_if_idle(now_ms, self.limits.frame_pause_ms_max, receiving=True)
