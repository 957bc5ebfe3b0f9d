"""Payloads sent on to a collector: one that answers, one that refuses, one that is away."""

import asyncio
import contextlib
import logging
import ssl

import pytest
from aiohttp import web

from broker.telemetry.forwarding import QUEUE_BYTES_MAX, Forwarder
from tests.kit.certificates import Authority

pytestmark = pytest.mark.real_loop


class Collector:
    """An endpoint of OTLP/HTTP."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes, dict[str, str]]] = []
        self.status = 200

    async def _take(self, request: web.Request) -> web.Response:
        self.got.append((request.path, await request.read(), dict(request.headers)))
        return web.Response(status=self.status, headers={"Location": "/elsewhere"})

    @contextlib.asynccontextmanager
    async def serving(self, context=None):
        """Its address. With a `context`: over TLS."""
        app = web.Application()
        app.router.add_post("/{path:.*}", self._take)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            yield f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def settled(forwarder, count):
    """Wait until so many payloads have come to something."""
    async with asyncio.timeout(20):
        task = asyncio.create_task(forwarder.run())
        while sum(forwarder.counts.values()) < count:
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("path", "asked"),
    [("", "/v1/metrics"), ("/", "/v1/metrics"), ("/otlp/v1/metrics", "/otlp/v1/metrics")],
)
async def test_payloads_are_posted_in_order_with_the_headers_that_were_set(path, asked):
    collector = Collector()
    async with collector.serving() as address:
        forwarder = Forwarder(address + path, {"Authorization": "Bearer s3cret"})
        for payload in (b"one", b"two"):
            forwarder.offer(payload)
        await settled(forwarder, 2)
    assert [(path, data) for path, data, _ in collector.got] == [(asked, b"one"), (asked, b"two")]
    headers = collector.got[0][2]
    assert headers["Content-Type"] == "application/x-protobuf"
    assert headers["Authorization"] == "Bearer s3cret"
    assert forwarder.counts == {"sent": 2}
    assert forwarder.bytes_queued == 0


@pytest.mark.parametrize("status", [307, 400, 503])
async def test_what_a_collector_does_not_take_is_dropped_and_counted_and_said_once(status, caplog):
    caplog.set_level(logging.WARNING)
    collector = Collector()
    collector.status = status
    async with collector.serving() as address:
        forwarder = Forwarder(address, {"Authorization": "s3cret"})
        for _ in range(3):
            forwarder.offer(b"payload")
        await settled(forwarder, 3)
    assert forwarder.counts == {"failed": 3}
    assert len(collector.got) == 3, "no redirect is followed"
    told = [record for record in caplog.records if "dropped" in record.getMessage()]
    assert len(told) == 1
    assert "s3cret" not in caplog.text


async def test_a_collector_that_is_away_costs_payloads_and_nothing_else(caplog):
    collector = Collector()
    async with collector.serving() as address:
        pass
    forwarder = Forwarder(address, {})
    forwarder.offer(b"lost")
    await settled(forwarder, 1)
    assert forwarder.counts == {"failed": 1}


@pytest.mark.parametrize("host", ["collector..svc", "a" * 64, "127.0.0.1:99999"])
async def test_an_address_that_can_be_nobodys_costs_payloads_and_nothing_else(host, caplog):
    caplog.set_level(logging.WARNING)
    forwarder = Forwarder(f"http://{host}", {})
    for _ in range(2):
        forwarder.offer(b"x")
    await settled(forwarder, 2)
    assert forwarder.counts == {"failed": 2}
    assert caplog.text.count("metrics of clients are dropped") == 1


async def test_a_collector_shows_a_certificate_that_is_trusted(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    authority, trusted, shown = Authority(), tmp_path / "ca.pem", tmp_path / "collector.pem"
    shown.write_text(authority.sign().pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown)
    collector = Collector()
    async with collector.serving(context) as address:
        forwarder = Forwarder(address, {}, trusted=str(trusted))
        for written in (None, Authority("another").pem, authority.pem):
            if written is not None:
                trusted.write_text(written)
            forwarder.offer(b"payload")
            await settled(forwarder, 1 + sum(forwarder.counts.values()))
    assert forwarder.counts == {"failed": 2, "sent": 1}
    assert len(collector.got) == 1
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert ["No such file" in text for text in told] == [True]
    assert any("takes metrics of clients again" in record.getMessage() for record in caplog.records)


@pytest.mark.promise("P15")
async def test_what_waits_for_a_collector_is_bounded():
    forwarder = Forwarder("http://127.0.0.1:1", {})
    for _ in range(100):
        forwarder.offer(bytes(1 << 20))
    assert forwarder.bytes_queued == QUEUE_BYTES_MAX
    assert forwarder.counts == {"full": 92}
