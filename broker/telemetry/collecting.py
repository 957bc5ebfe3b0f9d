"""Clients' metrics at an agent: what is asked of a client, and where what it pushes goes.

    ask ─▶ subscriptions that match ─▶ judged (`instances`) ─▶ what is asked, or a refusal
    push ─▶ judged ─▶ opened beside the loop ─▶ series, and the collector where there is one

What holds: of a client that nothing is asked of, nothing is kept; and what it pushes all the same is
not even opened. Subscriptions are those of this agent's replica, without a barrier: a client that asked an
agent which is behind hears of the newer ones when it asks, or pushes, next.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.calls.call import Call
from broker.calls.off_loop import MANY_RECORDS, OffLoop
from broker.calls.shares import owner_of
from broker.calls.slices import Slices
from broker.telemetry.forwarding import Forwarder
from broker.telemetry.instances import (
    NEVER,
    RESERVED_IDS,
    Instance,
    Instances,
    Push,
    validate_get,
    validate_push,
)
from broker.telemetry.otlp import Opened, labelled, opened
from broker.telemetry.series import Series, labels_of
from broker.telemetry.subscriptions import (
    NOTHING,
    Asked,
    Client,
    Subscriptions,
    id_text,
    subscription_id,
)
from coordinator.tables.administration.dynamic_configs import DynamicConfigs
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages import PushTelemetryRequest

NO_ID: Final = bytes(16)
_SLOW_LANE: Final = MANY_RECORDS + 1
"""Nobody is in a hurry for metrics: records that are looked at do not wait for them."""


@dataclass(slots=True)
class TelemetryStats:
    """Counters, read at each scrape."""

    pushes: dict[str, int] = field(default_factory=dict)
    """By what was answered, as Kafka calls it: "NONE", …"""
    left_out: dict[str, int] = field(default_factory=dict)
    """Points that are in no series, by the reason."""

    def count_push(self, code: ErrorCode) -> None:
        self.pushes[code.name] = self.pushes.get(code.name, 0) + 1


class Told(NamedTuple):
    """What a client is told that asks."""

    instance_id: bytes
    subscription_id: int
    asked: Asked


class ClientTelemetry:
    """Of one agent."""

    def __init__(
        self,
        configs: DynamicConfigs,
        *,
        bytes_max: int,
        slices: Slices,
        off_loop: OffLoop,
        boot_ms: Callable[[], int],
        rng: random.Random,
        series_bytes_max: int,
        forwarder: Forwarder | None = None,
    ) -> None:
        """`bytes_max`: of a payload, as sent and inflated; `series_bytes_max`: 0 for no series."""
        self.bytes_max = bytes_max
        self.stats = TelemetryStats()
        self.instances = Instances()
        self.series = Series(bytes_max=series_bytes_max)
        self.forwarder = forwarder
        self._subscriptions = Subscriptions(configs)
        self._slices = slices
        self._off_loop = off_loop
        self._boot_ms = boot_ms
        self._rng = rng
        self._has_series = series_bytes_max > 0

    async def ask(self, call: Call, instance_id: bytes) -> Told:
        """What a client shall push; an id of zeros is one that it gets now. Raises KafkaError."""
        if instance_id == NO_ID:
            instance_id = self._new_id()
        instance = await self._instance(call, instance_id)
        now_ms = self._boot_ms()
        instance.keep(now_ms)
        validate_get(instance, now_ms)
        return Told(instance_id, instance.subscription_id, instance.asked)

    async def push(self, call: Call, request: PushTelemetryRequest) -> None:
        """Take what a client pushes. Raises KafkaError."""
        try:
            await self._push(call, request)
        except KafkaError as error:
            self.stats.count_push(error.code)
            raise
        self.stats.count_push(ErrorCode.NONE)

    def text(self) -> Iterator[bytes]:
        """All series, in Prometheus' text format, a slice at a time."""
        self._forget_ended(self._boot_ms())
        return self.series.text()

    async def _push(self, call: Call, request: PushTelemetryRequest) -> None:
        instance_id = request.client_instance_id
        if instance_id in RESERVED_IDS:
            reason = (
                f"Invalid request from the client [{id_text(instance_id)}],"
                " invalid client instance id"
            )
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        instance = await self._instance(call, instance_id)
        now_ms = self._boot_ms()
        push = Push(
            request.subscription_id,
            request.terminating,
            request.compression_type,
            size=len(request.metrics),
            size_max=self.bytes_max,
            is_early=not instance.may_push(now_ms),
        )
        try:
            validate_push(instance, push, now_ms)
        finally:
            instance.keep(now_ms)
        if instance.asked.metrics and request.metrics:
            await self._take(call, instance, request)

    async def _take(self, call: Call, instance: Instance, request: PushTelemetryRequest) -> None:
        codec, data = request.compression_type, request.metrics
        try:
            found: Opened | None = await self._off_loop.run(
                opened(codec, data, bytes_max=self.bytes_max),
                records=_SLOW_LANE,
                call=call,
                gone=lambda: call.abandoned,
            )
        except ProtocolError as error:
            instance.last_error = ErrorCode.INVALID_RECORD
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"The metrics are broken: {error}"
            ) from error
        if found is None:
            return
        if self.forwarder is not None:
            self._forward(self.forwarder, call, instance, found)
        reading = found.reading
        if self._has_series and self.instances.of(instance.instance_id) is instance:
            work = self.series.take(instance, reading.points, reading)
            await self._slices.of(call).run(work)
        for reason, count in reading.left_out.items():
            self.stats.left_out[reason] = self.stats.left_out.get(reason, 0) + count

    def _forward(self, forwarder: Forwarder, call: Call, instance: Instance, found: Opened) -> None:
        client = _client(call, instance.instance_id)
        known = {name: text for name, text in client._asdict().items() if text is not None}
        try:
            forwarder.offer(labelled(found.data, known))
        except ProtocolError:
            found.reading.leave_out("resources")

    async def _instance(self, call: Call, instance_id: bytes) -> Instance:
        """The client as it is asked now; it is kept if something is asked of it. Raises KafkaError."""
        now_ms = self._boot_ms()
        self._forget_ended(now_ms)
        version = self._subscriptions.version
        instance = self.instances.of(instance_id)
        if instance is not None and instance.version == version:
            return instance
        client = _client(call, instance_id)
        asked = NOTHING
        if self._has_series or self.forwarder is not None:
            asked = await self._slices.of(call).run(self._subscriptions.asked_of(client))
        instance = self.instances.of(instance_id)
        if instance is None:
            instance = Instance(
                instance_id,
                owner_of(call.connection.peer),
                labels_of(
                    client.client_instance_id, client.client_id or "", client.client_software_name
                ),
                asked,
                subscription_id(asked, instance_id),
                version,
            )
            instance.keep(now_ms)
            if asked.metrics:
                self.instances.add(instance)
        elif instance.asked != asked:  # It begins anew.
            instance.asked, instance.subscription_id = asked, subscription_id(asked, instance_id)
            instance.got_ms = instance.pushed_ms = NEVER
            instance.is_terminating, instance.last_error = False, ErrorCode.NONE
        instance.version = version
        return instance

    def _forget_ended(self, now_ms: int) -> None:
        for instance in self.instances.ended(now_ms):
            self.series.forget(instance)

    def _new_id(self) -> bytes:
        """A random UUID (version 4) that no client here has."""
        while True:
            drawn = bytearray(self._rng.randbytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            if self.instances.of(bytes(drawn)) is None:
                return bytes(drawn)


def _client(call: Call, instance_id: bytes) -> Client:
    connection = call.connection
    host, _, port = connection.peer.rpartition(":")
    return Client(
        client_instance_id=id_text(instance_id),
        client_id=call.client_id,
        client_software_name=connection.software.name,
        client_software_version=connection.software.version,
        client_source_address=host,
        client_source_port=port,
    )
