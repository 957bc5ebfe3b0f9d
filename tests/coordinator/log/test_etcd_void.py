"""Voids on a real etcd: what comes between looking and writing, and a write whose answer is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd import EtcdLog
from coordinator.log.etcd_client import Endpoint, EtcdClient
from coordinator.log.metadata_log import (
    LiveSessionsError,
    LogEntry,
    LogRefusedError,
    LogUnavailableError,
)
from protocol.types import POSITION_ZERO
from tests.coordinator.support import void_of
from tests.parts.servers import EtcdServer

pytestmark = [pytest.mark.integration, pytest.mark.real_loop]

Step = Callable[[], Awaitable[None]]


class Interrupted(EtcdClient):
    """Before or after its transactions that write, something else happens, once."""

    before: Step | None = None
    after: Step | None = None

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        writes = any(each.HasField("request_put") for each in request.success)
        step, self.before = (self.before, None) if writes else (None, self.before)
        if step is not None:
            await step()
        response = await super().txn(request)
        step, self.after = (self.after, None) if writes else (None, self.after)
        if step is not None:
            await step()
        return response


class Scene:
    """A log with an entry of a session that is over, and another agent."""

    def __init__(self, client: Interrupted, log: EtcdLog, other: EtcdLog) -> None:
        self.client = client
        self.log = log
        self.other = other
        self.entry: LogEntry

    async def write(self) -> None:
        session = await self.other.open(await self.other.grant(30_000), b"open")
        place = await self.other.append(session, 1, b"x")
        await self.other.revoke(session.id)
        self.entry = LogEntry(place, session.id, 1, b"x")

    async def void(self) -> int:
        return await self.log.void(void_of(self.entry), b"notice", snapshots=b"")


@contextlib.asynccontextmanager
async def scene_on(etcd: EtcdServer) -> AsyncIterator[Scene]:
    endpoints = [Endpoint.parse(each) for each in etcd.endpoints]
    client, prefix = Interrupted(endpoints), etcd.new_prefix()
    log = EtcdLog(client, prefix=prefix, cluster="c")
    other = EtcdLog(EtcdClient(endpoints), prefix=prefix, cluster="c")
    scene = Scene(client, log, other)
    try:
        async with asyncio.timeout(40):
            await scene.write()
            yield scene
    finally:
        await log.aclose()
        await other.aclose()


@pytest.mark.promise("P13")
async def test_a_session_that_is_opened_at_the_last_moment_refuses_the_void(
    etcd: EtcdServer,
) -> None:
    async with scene_on(etcd) as scene:

        async def open_another() -> None:
            await scene.other.open(await scene.other.grant(30_000), b"open")

        scene.client.before = open_another
        with pytest.raises(LiveSessionsError):
            await scene.void()
        assert await scene.other.voids() == []


@pytest.mark.promise("P13")
async def test_a_snapshot_that_is_published_at_the_last_moment_refuses_the_void(
    etcd: EtcdServer,
) -> None:
    async with scene_on(etcd) as scene:

        async def publish() -> None:
            session = await scene.other.open(await scene.other.grant(30_000), b"open")
            await scene.other.publish(session, b"one", older=POSITION_ZERO)
            await scene.other.revoke(session.id)

        scene.client.before = publish
        with pytest.raises(LogRefusedError, match="another snapshot"):
            await scene.void()
        assert await scene.other.voids() == []


async def test_a_void_whose_answer_was_lost_is_there_once(etcd: EtcdServer) -> None:
    async with scene_on(etcd) as scene:

        async def lose() -> None:
            raise LogUnavailableError("lost on the way back")

        scene.client.after = lose
        with pytest.raises(LogUnavailableError):
            await scene.void()
        place = await scene.void()
        assert place == await scene.other.head()
        assert await scene.other.voids() == [void_of(scene.entry)]


async def test_the_lease_of_the_notice_is_given_back(etcd: EtcdServer) -> None:
    async with scene_on(etcd) as scene:
        granted: list[int] = []
        grant = scene.client.grant

        async def remembered(ttl_s: int) -> int:
            granted.append(await grant(ttl_s))
            return granted[-1]

        scene.client.grant = remembered
        await scene.void()
        assert [await scene.client.time_to_live(each) for each in granted] == [-1]
