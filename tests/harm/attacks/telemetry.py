"""Metrics of clients: as many, as large and as often as an agent takes them."""

import asyncio
import contextlib
from collections.abc import Iterator
from itertools import cycle

from protocol import apis, messages
from protocol.compression import Codec, compress
from protocol.messages import (
    GetTelemetrySubscriptionsRequest,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    PushTelemetryRequest,
)
from protocol.primitives import uvarint
from tests.harm.scene import Peer, Scene, attack
from tests.kit.otlp import gauge, histogram, payload
from tests.kit.requests import error_of

CLIENT_METRICS = 16
SECONDS = 4.0
CONNECTIONS = 20
CLIENTS = 12_000
BYTES_MAX = 1 << 20


async def _subscribe(scene: Scene) -> None:
    """All metrics of all clients, as often as it can be asked for."""
    configs = [
        IncrementalAlterableConfig(name=name, value=value)
        for name, value in (("metrics", "*"), ("interval.ms", "100"))
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name="all", configs=configs
    )
    peer = await scene.connect()
    request = IncrementalAlterConfigsRequest(resources=[resource])
    altered = await peer.ask(apis.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert not error_of(altered), altered


def _empty() -> bytes:
    """A megabyte of half a million empty messages, in some hundred bytes."""
    scopes = b"\x12\x00" * (BYTES_MAX // 2 - 10)
    return compress(Codec.ZSTD, b"\x0a" + uvarint(len(scopes)) + scopes)


def _histograms() -> bytes:
    bounds = [float(each) for each in range(60)]
    labels = {f"label{number}": "x" * 128 for number in range(8)}
    return compress(
        Codec.ZSTD,
        payload(
            *[histogram(f"h{number}", bounds, [1] * 61, 1.0, **labels) for number in range(300)]
        ),
    )


def _gauges() -> bytes:
    """As many as are read of one push."""
    return compress(Codec.ZSTD, payload(*[gauge(f"g{number}", 1.5) for number in range(9_000)]))


async def _push(scene: Scene, bodies: Iterator[bytes], ends: float) -> None:
    """One client that pushes as often as it can: every other push is its last, which is never too
    early, and the one between is refused."""
    loop = asyncio.get_running_loop()
    peer = await scene.connect()
    asked = GetTelemetrySubscriptionsRequest()
    told = await peer.ask(apis.GET_TELEMETRY_SUBSCRIPTIONS, 0, asked)
    for is_last, body in zip(cycle((True, False)), bodies, strict=False):
        if loop.time() >= ends:
            return
        request = PushTelemetryRequest(
            client_instance_id=told.client_instance_id,
            subscription_id=told.subscription_id,
            terminating=is_last,
            compression_type=Codec.ZSTD,
            metrics=body,
        )
        await peer.send(peer.frame(apis.PUSH_TELEMETRY, 0, request))
        await peer.receive()


async def _scrape(scene: Scene, ends: float) -> None:
    while asyncio.get_running_loop().time() < ends:
        peer = await scene.connect(scene.http_port)
        await peer.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await peer.read()
        peer.close()
        await asyncio.sleep(0.1)


@attack()
async def clients_that_push_as_much_as_they_can(scene: Scene) -> None:
    """Twenty of them: payloads of nothing but empty messages, of thousands of series, and of the longest
    histograms; and somebody who looks at all of it."""
    await _subscribe(scene)
    bodies = (_empty(), _gauges(), _histograms())
    ends = asyncio.get_running_loop().time() + SECONDS
    pushing = [_push(scene, cycle(bodies), ends) for _ in range(CONNECTIONS)]
    async with asyncio.timeout(60.0):
        await asyncio.gather(*pushing, _scrape(scene, ends))


@attack()
async def clients_without_end(scene: Scene) -> None:
    """Each question comes without an id, so each is of a new client."""
    await _subscribe(scene)
    request = GetTelemetrySubscriptionsRequest()
    body = messages.encode_request(apis.GET_TELEMETRY_SUBSCRIPTIONS, 0, request)

    async def ask(peer: Peer) -> None:
        for _ in range(CLIENTS // CONNECTIONS):
            await peer.send(peer.frame(apis.GET_TELEMETRY_SUBSCRIPTIONS, 0, None, body=body))
            await peer.skip()

    peers = [await scene.connect() for _ in range(CONNECTIONS)]
    with contextlib.suppress(OSError, EOFError):
        await asyncio.gather(*map(ask, peers))
