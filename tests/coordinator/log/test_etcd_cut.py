"""The cut on a real etcd: what is left, what comes late, what breaks off, and a full database."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Self

import pytest

from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd import EtcdLog
from coordinator.log.etcd_client import CompactedError, Endpoint, EtcdClient
from coordinator.log.etcd_keys import Keys, end_of, put
from coordinator.log.metadata_log import (
    LAST_UNKNOWN,
    LogCutError,
    LogRefusedError,
    LogUnavailableError,
    Session,
    SessionLostError,
)
from protocol.fault_codes import FaultCode
from protocol.types import POSITION_ZERO, Position, revision_of
from tests.coordinator.log.test_etcd import gateway, take
from tests.parts.servers import EtcdServer

pytestmark = [pytest.mark.integration, pytest.mark.real_loop]


class Client(EtcdClient):
    """Records what changes something, and can break off: its `fail_at`-th call does not come
    back, having taken effect or not."""

    def __init__(self, server: EtcdServer) -> None:
        super().__init__([Endpoint.parse(each) for each in server.endpoints])
        self.sent: list[pb.TxnRequest] = []
        self.calls = 0
        self.fail_at = -1
        self.fail_after = False

    async def _unary(self, method, request):
        failing = self.calls == self.fail_at
        self.calls += 1
        if isinstance(request, pb.TxnRequest):
            self.sent.append(pb.TxnRequest.FromString(request.SerializeToString()))
        if failing and not self.fail_after:
            raise LogUnavailableError("lost on the way there")
        answer = await super()._unary(method, request)
        if failing:
            raise LogUnavailableError("lost on the way back")
        return answer


class Logs:
    """Connections to one new log, and a look at its keys."""

    def __init__(self, server: EtcdServer, *, compact: bool = True, sessions_kept: int = 1) -> None:
        self._server = server
        self._prefix = server.new_prefix()
        self._options = {"compact": compact, "sessions_kept": sessions_kept}
        self.keys = Keys.of(prefix=self._prefix, cluster="c", era=1)
        self.clients: list[Client] = []

    def connect(self) -> tuple[EtcdLog, Client]:
        self.clients.append(Client(self._server))
        log = EtcdLog(self.clients[-1], prefix=self._prefix, cluster="c", **self._options)
        return log, self.clients[-1]

    async def content(self) -> dict[str, bytes]:
        """All keys of the log, without what is common to them."""
        base = self.keys.snapshot.removesuffix(b"snapshot")
        request = pb.RangeRequest(key=base, range_end=end_of(base))
        response = await self.clients[0].range(request)
        return {each.key.removeprefix(base).decode(): each.value for each in response.kvs}

    async def entries(self) -> list[tuple[int, int]]:
        """(session, n) of all entries that are there."""
        names = [name.split("/") for name in await self.content() if name.startswith("log/")]
        return [(int(name[2], 16), int(name[3], 16)) for name in names]

    async def __aenter__(self) -> Self:
        self._timeout = asyncio.timeout(60)
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for client in self.clients:
            await client.aclose()
        await self._timeout.__aexit__(*error)


async def opened(log: EtcdLog) -> Session:
    return await log.open(await log.grant(60_000), b"open")


async def append(log: EtcdLog, session: Session, *numbers: int) -> Position:
    for n in numbers:
        place = await log.append(session, n, b"%d" % n)
    return place


async def cut(log: EtcdLog, session: Session, through: int) -> int:
    await log.publish(session, b"two snapshots", older=Position(through))
    return await log.cut(session, Position(through))


async def test_keys_of_a_cut_log_are_those_of_the_design(etcd: EtcdServer) -> None:
    async with Logs(etcd) as logs:
        log, _ = logs.connect()
        gone, session = await opened(log), await opened(log)
        await log.revoke(gone.id)
        through = await append(log, session, 1, 2)
        await append(log, session, 3)
        assert await cut(log, session, through) == 4
        state = {"compact": 0, "forgotten": False}
        state |= {"done": revision_of(through), "through": revision_of(through)}
        assert await logs.content() == {
            f"log/0/{session.id:016x}/0000000003": b"3",
            f"last/0/{gone.id:016x}": b"0",
            f"last/0/{session.id:016x}": b"3",
            "head/0": b"%016x/3" % session.id,
            f"session/{session.id:016x}": b"open",
            "snapshot": b"%d\ntwo snapshots" % revision_of(through),
            "cut/0": json.dumps(state, sort_keys=True).encode(),
        }


async def test_history_goes_up_to_where_the_cut_before_ended(etcd: EtcdServer) -> None:
    async with Logs(etcd) as logs:
        log, client = logs.connect()

        async def readable(revision: int) -> bool:
            try:
                await client.range(pb.RangeRequest(key=logs.keys.head, revision=revision))
            except CompactedError:
                return False
            return True

        session = await opened(log)
        one = await append(log, session, 1)
        await cut(log, session, one)
        assert await readable(revision_of(one))
        ended = (await client.range(pb.RangeRequest(key=logs.keys.cut))).kvs[0].mod_revision
        two = await append(log, session, 2)
        await cut(log, session, two)
        assert not await readable(ended - 1)
        assert await readable(ended)


async def test_history_is_left_alone_where_that_is_the_setting(etcd: EtcdServer) -> None:
    async with Logs(etcd, compact=False) as logs:
        log, client = logs.connect()
        session = await opened(log)
        for n in range(1, 5):
            await cut(log, session, await append(log, session, n))
        for_ever = pb.RangeRequest(
            key=logs.keys.head, revision=revision_of(Position(session.incarnation))
        )
        assert (await client.range(for_ever)).kvs


async def test_whoever_is_catching_up_goes_on_through_a_cut(etcd: EtcdServer) -> None:
    async with Logs(etcd) as logs:
        (log, _), (other, _) = logs.connect(), logs.connect()
        session = await opened(log)
        through = await append(log, session, *range(1, 1200))
        async with aclosing(other.tail(POSITION_ZERO)) as batches:
            entries = list(await anext(batches))
            assert await cut(log, session, through) == 1200
            await append(log, session, 1200)
            # At the revision that it reads at, all is as it was.
            entries += await take(batches, 1201 - len(entries))
            assert [entry.n for entry in entries] == list(range(1201))


async def test_whoever_is_catching_up_is_told_when_others_compact_behind_a_cut(
    etcd: EtcdServer,
) -> None:
    async with Logs(etcd) as logs:
        (log, _), (other, _) = logs.connect(), logs.connect()
        session = await opened(log)
        through = await append(log, session, *range(1, 1200))
        async with aclosing(other.tail(POSITION_ZERO)) as batches:
            await anext(batches)
            await cut(log, session, through)
            place = await append(log, session, 1200)
            gateway(etcd, "kv/compaction", {"revision": str(revision_of(place))})
            with pytest.raises(LogCutError):
                await take(batches, 1201)


async def test_compaction_by_others_in_the_middle_of_a_cut_only_makes_it_come_again(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.log.etcd_cut.SESSIONS_PER_PAGE", 2)

    async with Logs(etcd) as logs:
        log, client = logs.connect()
        sessions = [await opened(log) for _ in range(5)]
        through = await append(log, sessions[0], 1)
        range_of = client.range

        async def compacting(request: pb.RangeRequest) -> pb.RangeResponse:
            if request.revision:
                await append(log, sessions[0], 2)
                now = (await range_of(pb.RangeRequest(key=logs.keys.head))).header.revision
                await client.compact(now)
            return await range_of(request)

        client.range = compacting
        with pytest.raises(LogUnavailableError):
            await cut(log, sessions[0], through)
        client.range = range_of
        assert await log.cut(sessions[0], through) == 6
        assert await logs.entries() == [(sessions[0].id, 2)]


class Story:
    """Two agents that wrote, sessions that are gone, and a holder about to cut."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs

    async def begin(self) -> None:
        self.log, self.client = self.logs.connect()
        self.heir_log, _ = self.logs.connect()
        self.gone = [await opened(self.log) for _ in range(3)]
        for session in self.gone:
            await append(self.log, session, 1)
            await self.log.revoke(session.id)
        self.holder, self.heir = await opened(self.log), await opened(self.heir_log)
        await append(self.log, self.holder, 1, 2)
        self.through = await append(self.heir_log, self.heir, 1, 2)
        await append(self.log, self.holder, 3)
        await append(self.heir_log, self.heir, 3)

    async def check(self) -> None:
        """All is as a cut through `through` leaves it, of whoever's hand."""
        self.client.fail_at = -1
        assert await self.logs.entries() == sorted([(self.holder.id, 3), (self.heir.id, 3)])
        assert await self.log.snapshots() == b"two snapshots"
        lasts = [(await self.heir_log.read_session(each.id)).last for each in self.gone]
        assert lasts == [LAST_UNKNOWN, LAST_UNKNOWN, 1]
        async with aclosing(self.heir_log.tail(self.through)) as batches:
            assert [each.n for each in await take(batches, 2)] == [3, 3]
        with pytest.raises(LogCutError):
            async with aclosing(self.heir_log.tail(Position(self.through - 1))) as batches:
                await anext(batches)


@pytest.mark.promise("P14")
@pytest.mark.parametrize("effect", ["before", "after"])
async def test_cut_that_breaks_off_at_any_call_is_finished_by_another_holder(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch, effect: str
) -> None:
    monkeypatch.setattr("coordinator.log.etcd_cut.CUT_ENTRIES_MAX", 2)

    async def broke_off(at: int) -> bool:
        async with Logs(etcd) as logs:
            story = Story(logs)
            await story.begin()
            story.client.calls, story.client.fail_at = 0, at
            story.client.fail_after = effect == "after"
            try:
                await cut(story.log, story.holder, story.through)
            except LogUnavailableError:
                await story.log.revoke(story.holder.id)
                await cut(story.heir_log, story.heir, story.through)
                await story.check()
                return True
            await story.check()
            return False

    at = 0
    while await broke_off(at):
        at += 1
    assert at > 20


async def test_what_comes_late_of_a_holder_changes_nothing(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.log.etcd_cut.CUT_ENTRIES_MAX", 2)

    async def scenario(*, holder_lives: bool) -> None:
        async with Logs(etcd) as logs:
            story = Story(logs)
            await story.begin()
            story.client.sent.clear()
            await cut(story.log, story.holder, story.through)
            late = list(story.client.sent)
            newer = await append(story.heir_log, story.heir, 4)
            await append(story.heir_log, story.heir, 5)
            await story.heir_log.publish(story.heir, b"newer", older=newer)
            if not holder_lives:
                await story.log.revoke(story.holder.id)
            for stage in ("published", "cut"):
                before = await logs.content()
                for request in late:
                    await story.client.txn(request)
                assert await logs.content() == before, stage
                await story.heir_log.cut(story.heir, newer)
            assert await logs.entries() == [(story.heir.id, 5)]

    await scenario(holder_lives=True)
    await scenario(holder_lives=False)


async def test_session_that_ends_in_the_middle_of_its_cut_ends_the_cut(
    etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.log.etcd_cut.CUT_ENTRIES_MAX", 2)

    async with Logs(etcd) as logs:
        (log, client), (other, _) = logs.connect(), logs.connect()
        session = await opened(log)
        through = await append(log, session, *range(1, 12))
        await log.publish(session, b"", older=through)
        txn = client.txn

        async def ending(request: pb.TxnRequest) -> pb.TxnResponse:
            response = await txn(request)
            if len(await logs.entries()) <= 8:
                await other.revoke(session.id)
            return response

        client.txn = ending
        with pytest.raises(SessionLostError) as lost:
            await log.cut(session, through)
        assert lost.value.last == 11
        assert len(await logs.entries()) == 8


@pytest.mark.promise("P14")
async def test_session_that_ends_while_it_publishes_publishes_nothing(etcd: EtcdServer) -> None:
    """Between the look at what is published and the put the holder may be over."""

    async with Logs(etcd) as logs:
        (log, client), (other, _) = logs.connect(), logs.connect()
        session = await opened(log)
        await log.publish(session, b"before", older=session.incarnation)
        newer = await append(log, session, 1)
        txn = client.txn

        async def ending(request: pb.TxnRequest) -> pb.TxnResponse:
            response = await txn(request)
            await other.revoke(session.id)
            return response

        client.txn = ending
        with pytest.raises(SessionLostError) as lost:
            await log.publish(session, b"after", older=newer)
        assert lost.value.last == 1
        assert await other.snapshots() == b"before"


@pytest.fixture
def small_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd whose database may not grow far."""
    server = EtcdServer(tmp_path, "--quota-backend-bytes", str(4 << 20))
    server.start()
    yield server
    server.stop()


@pytest.mark.fault_code("etcd-refused")
async def test_full_database_is_told_clearly_and_what_was_in_doubt_is_in_once_after_it(
    small_etcd: EtcdServer,
) -> None:
    async def fill(client: EtcdClient) -> None:
        for _ in range(100):
            await client.txn(pb.TxnRequest(success=[put(b"/somebody's", bytes(256 * 1024))]))

    async with Logs(small_etcd) as logs:
        log, client = logs.connect()
        assert await log.identify(b"me") == b"me"
        session = await opened(log)
        await append(log, session, 1, 2)
        with pytest.raises(LogRefusedError, match="alarm disarm") as refused:
            await fill(client)
        assert refused.value.fault is FaultCode.ETCD_REFUSED
        with pytest.raises(LogRefusedError, match="alarm disarm"):
            await log.append(session, 3, b"3")
        # Sessions go on, the log can be read, and an agent that starts finds its log.
        await log.keep_alive(session.id)
        assert (await log.read_session(session.id)).alive
        assert await log.identify(b"me") == b"me"
        async with aclosing(log.tail(POSITION_ZERO)) as batches:
            assert [each.n for each in await take(batches, 3)] == [0, 1, 2]

        # What the documentation tells the operator to do.
        now = (await client.range(pb.RangeRequest(key=logs.keys.head))).header.revision
        gateway(small_etcd, "kv/compaction", {"revision": str(now), "physical": True})
        gateway(small_etcd, "maintenance/defragment", {})
        (alarm,) = gateway(small_etcd, "maintenance/alarm", {"action": "GET"})["alarms"]
        gateway(small_etcd, "maintenance/alarm", {"action": "DEACTIVATE", **alarm})
        place = await log.append(session, 3, b"3")
        assert await log.append(session, 3, b"3") == place
        assert await cut(log, session, place) == 4


async def test_log_of_many_times_the_databases_size_goes_through_it(small_etcd: EtcdServer) -> None:
    async with Logs(small_etcd) as logs:
        log, client = logs.connect()
        session, n = await opened(log), 0
        for _ in range(30):
            before = await log.head()
            for _ in range(10):
                n += 1
                await log.append(session, n, bytes(32 * 1024))
            await cut(log, session, before)
        assert sum(request.ByteSize() for request in client.sent) > 2 * (4 << 20)
        assert len(await logs.entries()) == 10
