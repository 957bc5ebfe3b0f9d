"""The Kafka listener: every connection, which of them may go on, and the turns of the loop.

One `KafkaServer` per agent, for all its listeners; `broker.edge.connection` has what happens on a
single connection, `broker.edge.pressure` who may go on when memory is scarce, `broker.edge.places`
for how many there is room, `broker.edge.starts` whose request begins next (P15), `broker.edge.muting`
who is not heard for a while. Answers of one loop turn leave in one write per connection. Those that are
given much have their turns behind all others. No kind of turns takes longer than `LIGHT_MS` or
`HEAVY_MS` in one turn of the loop: who is given much keeps nobody else waiting.

Left out: opening sockets (the composition root does), what requests mean.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from broker.api import Api
from broker.calls.stalls import TICK_MS, StallWatch
from broker.edge.authentication import Authenticator, Refusals
from broker.edge.connection import KafkaServerProtocol
from broker.edge.dispatch import Dispatcher
from broker.edge.limits import ServerLimits, changed_limits, limits_of
from broker.edge.muting import Mutes
from broker.edge.places import Guest, Pace, Places
from broker.edge.pressure import DUE_BYTES, RequestMemory
from broker.edge.starts import Starts
from broker.edge.tls_transport import Shaker, TlsTransport
from broker.node import Node
from broker.sasl.rules import SaslRules

if TYPE_CHECKING:
    from broker.edge.tls_listener import TlsListener

logger = logging.getLogger(__name__)

MiB: Final = 1 << 20
SCRATCH_BYTES: Final = MiB
LIGHT_MS: Final = 2
"""Of small answers in one turn of the loop."""
HEAVY_MS: Final = 5
"""A write of a MiB takes up to ms, since the kernel copies."""
SWEEPS_MAX: Final = 6
"""Of the server: what a connection holds of answers is to be taken in so many, while somebody waits for room."""


class KafkaServer:
    """All connections of an agent."""

    def __init__(
        self,
        node: Node,
        served: Mapping[int, Api],
        *,
        limits: ServerLimits | None = None,
        sasl: Mapping[str, SaslRules] = MappingProxyType({}),
        tls: "Mapping[str, TlsListener]" = MappingProxyType({}),
    ) -> None:
        """`sasl`, `tls`: of the listeners that speak it, by name."""
        self.node = node
        self.limits = limits_of(node) if limits is None else limits
        self.dispatcher = Dispatcher(node, served)
        self.watch = StallWatch(node.boot_ms(), stall_ms_max=node.settings.stall_ms)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        """What every connection receives into; emptied before anybody else receives."""
        self.connections: dict[int, KafkaServerProtocol] = {}
        self.serving = False
        self._tls = tls
        self._shaker = Shaker(
            node.stats,
            boot_ms=node.boot_ms,
            clock=lambda: node.log_client.machine.position,
        )
        limits = self.limits
        self.memory = RequestMemory(
            node.stats,
            self.connections,
            bytes_max=limits.held_bytes_max,
            patience=limits.patience,
            boot_ms=node.boot_ms,
            mark=lambda number: self.mark(self.connections[number]),
        )
        self.authenticator = Authenticator(node, sasl)
        self.refusals = Refusals(
            limits.refusal_delay_ms,
            boot_ms=node.boot_ms,
            call_later=lambda s, f: asyncio.get_running_loop().call_later(s, f),
        )
        self.mutes = Mutes(window_ms=node.quotas.window.whole_ms, boot_ms=node.boot_ms)
        self._places = Places(
            limits.connections_max,
            limits.connections_per_address_max,
            limits.connections_per_address,
        )
        self._pace = Pace(limits.connection_rate_max)
        node.in_force.on_change(self._settings_changed)
        self.untaken = node.fetching.untaken
        self.untaken.bytes_max = limits.held_bytes_max
        self._unsent: dict[int, int] = {}
        """By connection: bytes of answers that it did not take, at the sweep before."""
        self._dirty: deque[KafkaServerProtocol] = deque()
        self._heavy: deque[KafkaServerProtocol] = deque()
        self._number = 0
        self.keeps_connections = False
        self._turn_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._started = asyncio.Event()
        self._empty = asyncio.Event()
        producing = node.producing
        self.starts = Starts(
            node.stats,
            boot_ms=node.boot_ms,
            is_full=lambda: producing.full,
            schedule=self._schedule,
        )
        producing.on_room(self._schedule)

    def _settings_changed(self) -> None:
        limits = self.limits = changed_limits(self.limits, self.node.kafka)
        self._places.set_bounds(
            limits.connections_max,
            limits.connections_per_address_max,
            limits.connections_per_address,
        )
        self._pace.rate = limits.connection_rate_max

    def factory(self, listener: str) -> Callable[[], asyncio.BaseProtocol]:
        """What `loop.create_server` wants, for one listener."""
        tls = self._tls.get(listener)
        if tls is None:
            return lambda: KafkaServerProtocol(self, listener)
        return lambda: TlsTransport(tls, self._shaker, KafkaServerProtocol(self, listener))

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
            self._shaker.close()

    async def started(self) -> None:
        """Wait until connections are taken."""
        await self._started.wait()

    async def drain(self, timeout_ms: int, left: asyncio.Event | None = None) -> None:
        """Answer what was asked, close every connection, accept no new one.

        Returns when all are closed, or are cut off after `timeout_ms`. `run` goes on meanwhile.
        `left`: connections are kept, though not read, until then: whose connection ends asks another
        agent at once where to go, and that one is to know by then that this one is gone.
        """
        self.serving = False
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                if left is not None:
                    self.keeps_connections = True
                    self._leave_all()
                    await left.wait()
                    self.keeps_connections = False
                self._leave_all()
                while self.connections:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            for connection in list(self.connections.values()):
                connection.abort("leaving", "the agent is leaving and waited long enough")

    def _leave_all(self) -> None:
        for connection in list(self.connections.values()):
            if not connection.closed:
                connection.leave()

    # What connections call.

    @property
    def tasks(self) -> asyncio.TaskGroup:
        assert self._tasks is not None
        return self._tasks

    def admit(self, connection: KafkaServerProtocol) -> int:
        """A number for a new connection, or 0 when it cannot be served."""
        if not self.serving:
            return self._refuse(connection, "leaving")
        admission = self._places.admission(connection.address, connection.opened_ms)
        if admission.refused:
            return self._refuse(connection, admission.refused)
        if admission.instead_of is not None:
            self._evict(admission.instead_of, "crowded", "its place is another connection's now")
        self._number += 1
        connection.number = self._number
        self.connections[self._number] = connection
        self._places.add(connection)
        self.node.stats.connections_total += 1
        self.node.stats.connections_open = len(self.connections)
        delay_ms = self._pace.delay_ms(connection.opened_ms)
        if self.node.quotas.table:
            delay_ms = max(delay_ms, self.node.quotas.connection_delay_ms(connection.address))
        if delay_ms:
            connection.opened_ms += delay_ms
            connection.blocked = True
            asyncio.get_running_loop().call_later(delay_ms / 1000, self._let_in, connection)
        return self._number

    def forget(self, connection: KafkaServerProtocol) -> None:
        """The connection is gone."""
        del self.connections[connection.number]
        self._mark_all(self.untaken.forget(connection.number))
        self._places.remove(connection)
        self.node.stats.connections_open = len(self.connections)
        if not self.connections:
            self._empty.set()

    def show(self, connection: KafkaServerProtocol) -> None:
        """A request of the connection was answered for the first time."""
        self._places.show(connection)

    def mark(self, connection: KafkaServerProtocol) -> None:
        """Have `connection.turn()` called once, in this turn of the loop or soon."""
        if not connection.marked:
            connection.marked = True
            (self._heavy if connection.heavy else self._dirty).append(connection)
            self._schedule()

    def taken(self, connection: KafkaServerProtocol) -> None:
        """Some of its answers may have left."""
        self._mark_all(self.untaken.left(connection.number, connection.unsent_bytes))

    def _mark_all(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.mark(self.connections[number])

    # Who is let in.

    def _refuse(self, connection: KafkaServerProtocol, reason: str) -> int:
        self.node.stats.count_refused(reason)
        logger.debug("a connection from %s is refused: %s", connection.address, reason)
        return 0

    def _evict(self, guest: Guest, kind: str, reason: str) -> None:
        self._places.remove(guest)  # At once: the next one must not take the same place.
        self.connections[guest.number].abort(kind, reason)

    def _let_in(self, connection: KafkaServerProtocol) -> None:
        """Its turn has come at the rate of new connections."""
        connection.blocked = False
        self.mark(connection)

    # Turns and timers.

    def _schedule(self) -> None:
        if not self._turn_due and self._loop is not None:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = False
        self.node.rest()
        now_ms = self.node.boot_ms()
        self.watch.observe(now_ms)
        self.starts.begin_turn(now_ms)
        self.memory.begin_turn()
        try:
            self._give_turns(self._dirty, now_ms + LIGHT_MS)
            self.starts.serve()
            self._give_turns(self._heavy, now_ms + HEAVY_MS)
        finally:
            if self._dirty or self._heavy or self.starts.waiting:
                self._schedule()

    def _give_turns(self, marked: deque[KafkaServerProtocol], until_ms: int) -> None:
        """To one in any case. Those that are marked meanwhile have their turn in the next."""
        for _ in range(len(marked)):
            connection = marked.popleft()
            connection.marked = False
            connection.turn()
            if self.node.boot_ms() >= until_ms:
                return

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
            self._shed_unsent()
            if self._places.scarce:
                silent_ms_max = self.limits.silent_ms_max
                for guest in self._places.silent(now_ms, silent_ms_max):
                    reason = f"it asked nothing within {silent_ms_max} ms, and places are scarce"
                    self._evict(guest, "silent", reason)

    def _shed_unsent(self) -> None:
        """When answers that were not taken are more than requests may be: away with who takes none, or next
        to none: bytes one by one would keep an answer of many MiB for days."""
        before = self._unsent
        unsent = {each.number: each.unsent_bytes for each in self.connections.values()}
        self._unsent = {number: size for number, size in unsent.items() if size}
        for number, size in self._unsent.items():
            self._mark_all(self.untaken.left(number, size))
        excess = self.untaken.excess
        for number, size in sorted(self._unsent.items(), key=lambda item: -item[1]):
            if excess <= 0:
                break
            # Somebody waits: then a pace at which it would take all in half a minute is due.
            due = max(DUE_BYTES, size // SWEEPS_MAX) if self.untaken.is_waited_for else DUE_BYTES
            # More than before: it took all that it had, and was given more.
            if 0 <= before.get(number, size + due) - size < due:
                excess -= size
                reason = f"it takes next to nothing of {size} bytes of answers, and memory is full"
                self.connections[number].abort("unread", reason)
