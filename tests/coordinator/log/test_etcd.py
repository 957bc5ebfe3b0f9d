"""The log on a real etcd: other people's compaction, members that fall silent, login, layout."""

import asyncio
import base64
import contextlib
import json
import shutil
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from coordinator.log.etcd import EtcdLog
from coordinator.log.etcd_client import Endpoint, EtcdClient, EtcdOptions
from coordinator.log.metadata_log import (
    LogEntry,
    LogHoleError,
    LogRefusedError,
    LogReplacedError,
    LogUnavailableError,
    Session,
)
from protocol.fault_codes import FaultCode
from protocol.types import Position, revision_of
from tests.parts.servers import EtcdServer
from tests.parts.tcp_proxy import Proxy

NO_LOGIN = EtcdOptions()

pytestmark = [pytest.mark.integration, pytest.mark.real_loop]


def gateway(server: EtcdServer, path: str, body: dict[str, object], token: str = "") -> dict:
    """A call of etcd's JSON gateway: what others than us do to it."""
    request = urllib.request.Request(
        f"{server.url}/v3/{path}",
        json.dumps(body).encode(),
        {"Authorization": token} if token else {},
    )
    with urllib.request.urlopen(request, timeout=5) as response:
        return json.load(response)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def end_of(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd that a test may break."""
    server = EtcdServer(tmp_path)
    server.start()
    yield server
    server.stop()


@contextlib.asynccontextmanager
async def log_on(
    *endpoints: str, prefix: str = "/t", options: EtcdOptions = NO_LOGIN
) -> AsyncIterator[EtcdLog]:
    client = EtcdClient([Endpoint.parse(each) for each in endpoints], options)
    log = EtcdLog(client, prefix=prefix, cluster="c")
    try:
        async with asyncio.timeout(40):
            yield log
    finally:
        await log.aclose()


async def opened(log: EtcdLog) -> Session:
    return await log.open(await log.grant(30_000), b"open")


async def take(batches, count: int) -> list[LogEntry]:
    entries: list[LogEntry] = []
    while len(entries) < count:
        entries += await anext(batches)
    return entries


def test_keys_are_those_of_the_design(etcd: EtcdServer) -> None:
    prefix = etcd.new_prefix()

    async def scenario() -> tuple[int, int]:
        async with log_on(*etcd.endpoints, prefix=prefix) as log:
            await log.identify(b"me")
            session = await opened(log)
            place = await log.append(session, 1, b"one")
            return session.id, revision_of(place)

    session, revision = asyncio.run(scenario())
    body = {"key": encoded(prefix), "range_end": encoded(end_of(prefix))}
    rows = gateway(etcd, "kv/range", body)["kvs"]
    found = {
        base64.b64decode(row["key"]).decode(): (
            base64.b64decode(row["value"]),
            int(row.get("lease", 0)),
        )
        for row in rows
    }
    assert found == {
        f"{prefix}/c/identity": (b"me", 0),
        f"{prefix}/c/1/log/0/{session:016x}/0000000000": (b"open", 0),
        f"{prefix}/c/1/log/0/{session:016x}/0000000001": (b"one", 0),
        f"{prefix}/c/1/last/0/{session:016x}": (b"1", 0),
        f"{prefix}/c/1/head/0": (b"%016x/1" % session, 0),
        f"{prefix}/c/1/session/{session:016x}": (b"open", session),
    }
    newest = [row for row in rows if int(row["mod_revision"]) == revision]
    assert len(newest) == 3


async def test_compaction_by_others_strands_no_reader(etcd: EtcdServer) -> None:
    async with log_on(*etcd.endpoints, prefix=etcd.new_prefix()) as log:
        session = await opened(log)
        places = [await log.append(session, n, b"%d" % n) for n in range(1, 1500)]
        async with aclosing(log.tail(Position(0))) as reading:
            entries = list(await anext(reading))  # In the middle of catching up.
            revision = revision_of(places[-1])
            gateway(etcd, "kv/compaction", {"revision": str(revision), "physical": True})
            entries += await take(reading, 1500 - len(entries))
            assert [entry.n for entry in entries] == list(range(1500))
            await log.append(session, 1500, b"later")
            assert [entry.n for entry in await take(reading, 1)] == [1500]
        async with aclosing(log.tail(places[700])) as reading:
            assert (await take(reading, 1))[0].n == 702


async def test_compaction_at_the_newest_revision_strands_no_reader(etcd: EtcdServer) -> None:
    async with log_on(*etcd.endpoints, prefix=etcd.new_prefix()) as log:
        session = await opened(log)
        place = await log.append(session, 1, b"x")
        gateway(etcd, "kv/compaction", {"revision": str(revision_of(place))})
        async with aclosing(log.tail(Position(0))) as reading:
            assert [entry.n for entry in await take(reading, 2)] == [0, 1]
            following = asyncio.ensure_future(take(reading, 1))
            await asyncio.sleep(0.3)
            await log.append(session, 2, b"y")
            assert [entry.n for entry in await following] == [2]


async def test_call_goes_to_the_next_endpoint_when_one_does_not_answer(etcd: EtcdServer) -> None:
    async with Proxy(etcd.port) as silent:
        silent.freeze()
        endpoints = [silent.address, *etcd.endpoints]
        async with log_on(*endpoints, prefix=etcd.new_prefix()) as log:
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            await log.head()
            assert loop.time() - started_s < 3
            started_s = loop.time()
            session = await opened(log)
            await log.append(session, 1, b"x")
            assert loop.time() - started_s < 1


async def test_call_without_any_answer_ends_by_its_deadline(etcd: EtcdServer) -> None:
    async with Proxy(etcd.port) as silent:
        silent.freeze()
        async with log_on(silent.address) as log:
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            with pytest.raises(LogUnavailableError):
                await log.head()
            assert loop.time() - started_s < 6
            silent.thaw()
            await log.head()


async def test_append_whose_answer_was_lost_is_in_once(etcd: EtcdServer) -> None:
    prefix = etcd.new_prefix()
    async with (
        Proxy(etcd.port) as proxy,
        log_on(proxy.address, prefix=prefix) as log,
        log_on(*etcd.endpoints, prefix=prefix) as other,
    ):
        session = await opened(log)
        appending = asyncio.ensure_future(log.append(session, 1, b"x"))
        proxy.freeze()
        with pytest.raises(LogUnavailableError):
            await appending
        proxy.thaw()
        place = await log.append(session, 1, b"x")
        assert place == await other.head()
        async with aclosing(other.tail(Position(0))) as reading:
            assert [entry.n for entry in await take(reading, 2)] == [0, 1]


async def test_tail_on_a_member_that_falls_silent_is_given_up(etcd: EtcdServer) -> None:
    prefix = etcd.new_prefix()
    async with (
        Proxy(etcd.port) as proxy,
        log_on(proxy.address, *etcd.endpoints, prefix=prefix) as log,
        log_on(*etcd.endpoints, prefix=prefix) as other,
    ):
        session = await opened(other)
        async with aclosing(log.tail(Position(0))) as reading:
            (first,) = await take(reading, 1)
            proxy.freeze()
            await other.append(session, 1, b"x")
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            with pytest.raises(LogUnavailableError):
                await take(reading, 1)
            assert loop.time() - started_s < 4
        async with aclosing(log.tail(first.position)) as reading:
            assert [entry.n for entry in await take(reading, 1)] == [1]


async def test_quiet_log_does_not_look_like_a_silent_member(etcd: EtcdServer) -> None:
    async with (
        log_on(*etcd.endpoints, prefix=etcd.new_prefix()) as log,
        aclosing(log.tail(Position(0))) as reading,
    ):
        following = asyncio.ensure_future(take(reading, 1))
        await asyncio.sleep(4.5)
        assert not following.done()
        await opened(log)
        assert len(await following) == 1


async def test_log_goes_on_after_etcd_was_restarted(own_etcd: EtcdServer) -> None:
    async with log_on(*own_etcd.endpoints) as log:
        session = await opened(log)
        async with aclosing(log.tail(Position(0))) as reading:
            (first,) = await take(reading, 1)
            await asyncio.to_thread(own_etcd.stop)
            with pytest.raises(LogUnavailableError):
                await take(reading, 1)
        with pytest.raises(LogUnavailableError):
            await log.append(session, 1, b"x")
        await asyncio.to_thread(own_etcd.start)
        await log.append(session, 1, b"x")
        await log.keep_alive(session.id)
        async with aclosing(log.tail(first.position)) as reading:
            assert [entry.n for entry in await take(reading, 1)] == [1]


async def test_etcd_that_forgot_what_was_read_was_replaced(
    own_etcd: EtcdServer, tmp_path: Path
) -> None:
    async with log_on(*own_etcd.endpoints) as log:
        session = await opened(log)
        last = await log.append(session, 1, b"x")
        await asyncio.to_thread(own_etcd.stop)
        shutil.rmtree(tmp_path / "data")
        await asyncio.to_thread(own_etcd.start)
        async with aclosing(log.tail(last)) as reading:
            with pytest.raises(LogReplacedError, match="was at"):
                await take(reading, 1)


async def test_entry_deleted_by_others_is_a_hole(etcd: EtcdServer) -> None:
    prefix = etcd.new_prefix()
    async with log_on(*etcd.endpoints, prefix=prefix) as log:
        session = await opened(log)
        for n in range(1, 5):
            await log.append(session, n, b"x")
        key = f"{prefix}/c/1/log/0/{session.id:016x}/0000000002"
        gateway(etcd, "kv/deleterange", {"key": encoded(key)})
        async with aclosing(log.tail(Position(0))) as reading:
            with pytest.raises(LogHoleError):
                await take(reading, 5)


async def test_endpoints_of_two_clusters_are_refused(
    etcd: EtcdServer, own_etcd: EtcdServer
) -> None:
    async with (
        Proxy(etcd.port) as first,
        log_on(first.address, *own_etcd.endpoints) as log,
    ):
        await log.head()
        first.freeze()
        with pytest.raises(LogReplacedError, match="several clusters"):
            await log.head()


def enable_login(server: EtcdServer) -> None:
    gateway(server, "auth/user/add", {"name": "root", "password": "secret"})
    gateway(server, "auth/user/grant", {"user": "root", "role": "root"})
    gateway(server, "auth/enable", {})


async def test_login_is_renewed_when_the_token_is_no_longer_valid(own_etcd: EtcdServer) -> None:
    enable_login(own_etcd)

    user = EtcdOptions(user="root", password="secret")
    async with log_on(*own_etcd.endpoints, options=user) as log:
        session = await opened(log)
        async with aclosing(log.tail(Position(0))) as reading:
            await take(reading, 1)
        log._client._token = "no longer valid"
        await log.append(session, 1, b"x")
        log._client._token = "no longer valid"
        await log.keep_alive(session.id)
        await asyncio.to_thread(own_etcd.stop)
        await asyncio.to_thread(own_etcd.start)
        await log.append(session, 2, b"x")


@pytest.mark.fault_code("etcd-refused")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (EtcdOptions(), "asks for a user"),
        (EtcdOptions(user="root", password="wrong"), "authentication failed"),
    ],
)
async def test_login_that_is_not_accepted_is_refused(
    own_etcd: EtcdServer, options: EtcdOptions, sentence: str
) -> None:
    enable_login(own_etcd)

    async with log_on(*own_etcd.endpoints, options=options) as log:
        with pytest.raises(LogRefusedError, match=sentence) as refused:
            await log.head()
        assert refused.value.fault is FaultCode.ETCD_REFUSED


async def test_user_for_an_etcd_without_login_is_no_obstacle(etcd: EtcdServer) -> None:
    user = EtcdOptions(user="root", password="secret")
    prefix = etcd.new_prefix()
    async with log_on(*etcd.endpoints, prefix=prefix, options=user) as log:
        assert await log.head() == 0


async def test_an_etcd_that_asks_for_a_login_from_some_moment_on_gets_it(
    own_etcd: EtcdServer,
) -> None:
    """The way to turn it on: first all agents have user and password, then etcd asks for them."""
    user = EtcdOptions(user="root", password="secret")
    async with log_on(*own_etcd.endpoints, options=user) as log:
        session = await opened(log)
        async with aclosing(log.tail(Position(0))) as reading:
            await take(reading, 1)
            enable_login(own_etcd)
            await log.append(session, 1, b"x")
            await log.keep_alive(session.id)
            await take(reading, 1)
        async with aclosing(log.tail(Position(0))) as reading:
            await take(reading, 2)
