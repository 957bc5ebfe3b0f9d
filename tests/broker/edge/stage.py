"""A server whose handlers do nothing by themselves: the test answers the calls."""

import asyncio
import contextlib
from dataclasses import replace
from types import SimpleNamespace

from broker.api import Cold, Hot
from broker.calls.slices import Slices
from broker.calls.untaken import UntakenAnswers
from broker.dynamic.in_force import SettingsInForce
from broker.edge.server import KafkaServer
from broker.handlers import SERVED
from broker.node import EdgeStats
from broker.quotas.quotas import Quotas
from broker.quotas.rates import Window
from coordinator.tables.administration.client_quotas import ClientQuotas
from coordinator.tables.administration.dynamic_configs import DynamicConfigs
from protocol import apis, messages
from protocol.types import POSITION_ZERO
from tests.kit.agents import settings
from tests.kit.client import Client, settle


class Gate:
    """A ProducePath as far as the server looks at it."""

    def __init__(self) -> None:
        self.full = False
        self.callbacks = []

    def on_room(self, callback) -> None:
        self.callbacks.append(callback)

    def make_room(self) -> None:
        self.full = False
        for callback in self.callbacks:
            callback()


class Stage:
    """See the module. `started`, `refused`, `cold`: calls so far."""

    def __init__(self, loop, *, limits=None, handlers=None, **changes: str) -> None:
        self.loop = loop
        self.skew_ms = 0
        self.started = []
        self.refused = []
        self.cold = []
        self.over_quota = False
        told = settings(**changes)
        self.node = SimpleNamespace(
            settings=told,
            kafka=told.kafka,
            in_force=SettingsInForce(told.kafka, DynamicConfigs()),
            producing=Gate(),
            fetching=SimpleNamespace(untaken=UntakenAnswers(0)),
            slices=Slices(),
            rights=None,
            rest=lambda: None,
            quotas=Quotas(
                ClientQuotas(),
                window=Window(),
                controller_window=Window(),
                boot_ms=lambda: int(loop.time() * 1000) + self.skew_ms,
                loop_ns=lambda: int(loop.time() * 1e9) + self.skew_ms * 1_000_000,
            ),
            stats=EdgeStats(),
            log_client=SimpleNamespace(machine=SimpleNamespace(position=POSITION_ZERO)),
            boot_ms=lambda: int(loop.time() * 1000) + self.skew_ms,
        )
        table = {
            key: replace(api, handler=Hot(self._start), changes=False)
            for key, api in SERVED.items()
        }
        changed = {
            apis.PRODUCE: Hot(self._start, self._refuse),
            apis.CREATE_TOPICS: Cold(self._handle, self._refusal),
        }
        for key, handler in (changed | (handlers or {})).items():
            table[key] = replace(SERVED[key], handler=handler)
        self.server = KafkaServer(self.node, table, limits=limits)

    def connect(self, address: str = "127.0.0.1") -> Client:
        return Client(self.server, address=address)

    async def answer(self, index: int = 0, *body: bytes) -> None:
        """Answer that call, and let all happen that follows."""
        self.started[index].answer([*body] or [b"x"])
        await settle()

    def stall(self, ms: int = 1_500) -> None:
        """The loop stood still; nobody has looked at the clock since."""
        self.skew_ms += ms

    def _start(self, node, call) -> None:
        self.started.append(call)
        call.throttle_ms = 100 * self.over_quota

    def _refuse(self, node, call, error) -> None:
        self.refused.append((call.correlation_id, error.code))
        call.answer([b"refused"])

    async def _handle(self, node, call, request):
        self.cold.append(call)
        return messages.CreateTopicsResponse()

    def _refusal(self, call, request, error):
        self.refused.append((call.correlation_id, error.code))
        return messages.CreateTopicsResponse()


@contextlib.asynccontextmanager
async def staged(**more):
    """A stage whose server runs."""
    stage = Stage(asyncio.get_running_loop(), **more)
    server = asyncio.get_running_loop().create_task(stage.server.run())
    await settle()
    try:
        yield stage
    finally:
        server.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await server
    assert stage.node.stats.held_bytes == 0


@contextlib.asynccontextmanager
async def connected(**more):
    """A stage whose server runs, and a client."""
    async with staged(**more) as stage:
        yield stage, stage.connect()
