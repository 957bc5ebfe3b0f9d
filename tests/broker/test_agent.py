"""The life of an agent: P12, P16, leaving, and the ways in which it ends."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack

import pytest
import uvloop

from broker import agent
from broker.agent import Agent, AgentError
from broker.composition import Parts
from broker.store import probe
from coordinator import session
from coordinator.commands.codec import decode_entry
from coordinator.commands.entries import Close, Open
from coordinator.log.memory import MemoryLog
from protocol import apis
from protocol.errors import ErrorCode
from protocol.fault_codes import FaultCode
from protocol.messages import ApiVersionsRequest
from tests.broker.agents import serving
from tests.kit.faults import FaultyLog, FaultyStore, held, lost
from tests.kit.sockets import Place, Running, SocketClient, agent_of, settings_of
from tests.parts.process import free_port

pytestmark = pytest.mark.real_loop

NewLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = [asyncio.SelectorEventLoop, uvloop.Loop]

RETRIABLE = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


async def turned_away(port: int, *, host: str = "127.0.0.1") -> bool:
    """Whether a connection is refused; one that is accepted must be answered."""
    try:
        client = SocketClient(*await asyncio.open_connection(host, port))
    except ConnectionRefusedError:
        return True
    try:
        await client.call(apis.API_VERSIONS, 0, ApiVersionsRequest(), seconds=3)
    finally:
        await client.close()
    return False


async def assert_waits_then_serves(place: Place, *, store: FaultyStore, log: FaultyLog) -> None:
    away = store if store.down else log
    async with agent_of(place, store=store, log=log) as running:
        await asyncio.sleep(0.3)
        assert (await running.http("GET", "/health/live"))[0] == 200
        status, answer = await running.http("GET", "/health/ready")
        assert status == 503
        assert "away" in answer["reasons"][0]
        # A log of memory:// has no code for what is done to it here.
        assert answer.get("codes") == (["store-unreachable"] if away is store else None)
        assert await turned_away(running.port)
        away.down = False
        await running.until(ready=True)
        assert not await turned_away(running.port)


@pytest.mark.promise("P16")
async def test_an_agent_whose_store_is_away_at_start_waits_and_turns_clients_away() -> None:
    place = Place()
    store = place.store()
    store.down = True
    await assert_waits_then_serves(place, store=store, log=place.log())


async def test_an_agent_whose_log_is_away_at_start_waits_and_turns_clients_away() -> None:
    place = Place()
    log = place.log()
    log.down = True
    await assert_waits_then_serves(place, store=place.store(), log=log)


@pytest.mark.promise("P16")
@pytest.mark.parametrize("loop", LOOPS)
def test_whoever_connects_while_an_agent_starts_is_refused_or_served(loop: NewLoop) -> None:
    errors: list[dict[str, object]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        port, knocks = free_port(), 0

        async def knock() -> None:
            nonlocal knocks
            while await turned_away(port):
                knocks += 1

        knocking = asyncio.create_task(knock())
        async with agent_of(Place(), f"listen=localhost:{port}") as running:
            await knocking
            assert knocks > 0
            await running.until(ready=True)
            hosts = {host for host, _ in running.agent._doors[0][1]._servers}
            assert "127.0.0.1" in hosts
            for host in hosts:
                assert not await turned_away(running.port, host=host)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert errors == []


@pytest.mark.promise("P12")
async def test_who_connects_while_an_agent_starts_waits_and_is_answered_when_it_serves() -> None:
    place, go_on = Place(), asyncio.Event()
    store = place.store()
    store.before["get"] = held(go_on)
    async with agent_of(place, f"listen=127.0.0.1:{free_port()}", store=store) as running:
        waiting = asyncio.create_task(turned_away(running.port))
        assert not await running.ready()
        assert not waiting.done()
        go_on.set()
        assert not await waiting


@pytest.mark.promise("P17")
async def test_who_waited_for_an_agent_for_longer_than_a_stall_is_turned_away_when_it_serves() -> (
    None
):
    place, go_on = Place(), asyncio.Event()
    store = place.store()
    store.before["get"] = held(go_on)
    async with agent_of(place, f"listen=127.0.0.1:{free_port()}", store=store) as running:
        client = await SocketClient.connect(running.port)
        creating = asyncio.create_task(client.create("late"))
        await asyncio.sleep(0)  # It is written.
        running.agent._ajar_since_ms -= 5_000
        go_on.set()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await creating
        await running.until(ready=True)
        again = await SocketClient.connect(running.port)
        assert await again.create("late") == ErrorCode.NONE
        await again.close()


@pytest.mark.promise("P16")
@pytest.mark.parametrize(
    ("log", "bound"),
    [("memory://", "AJAR_ALONE_S_MAX"), ("etcd://127.0.0.1:1/frazil", "AJAR_S_MAX")],
)
async def test_who_waits_for_an_agent_that_takes_long_is_turned_away(
    log: str, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, bound, 0.3)
    place, go_on = Place(), asyncio.Event()
    store = place.store()
    store.before["get"] = held(go_on)
    settings = (f"listen=127.0.0.1:{free_port()}", f"log={log}")
    async with agent_of(place, *settings, store=store) as running:
        with contextlib.suppress(ConnectionResetError, asyncio.IncompleteReadError):
            assert await turned_away(running.port)
        go_on.set()
        await running.until(ready=True)
        assert not await turned_away(running.port)


@pytest.mark.promise("P16")
async def test_who_waits_for_an_agent_whose_store_is_away_is_turned_away() -> None:
    place = Place()
    store = place.store()
    store.down = True
    async with agent_of(place, f"listen=127.0.0.1:{free_port()}", store=store) as running:
        assert await turned_away(running.port)
        store.down = False
        await running.until(ready=True)
        assert not await turned_away(running.port)


@pytest.mark.parametrize("loop", LOOPS)
def test_of_two_agents_that_waited_with_one_port_one_serves_and_one_says_why_not(
    loop: NewLoop,
) -> None:
    async def main() -> None:
        flag = f"listen=127.0.0.1:{free_port()}"
        places = [Place(), Place()]
        stores = [place.store() for place in places]
        for store in stores:
            store.down = True
        async with AsyncExitStack() as both:
            agents = [
                await both.enter_async_context(agent_of(place, flag, store=store))
                for place, store in zip(places, stores, strict=True)
            ]
            for store in stores:
                store.down = False
            (ended,), (serving,) = await asyncio.wait(
                [agent.task for agent in agents],
                timeout=20,
                return_when=asyncio.FIRST_COMPLETED,
            )
            with pytest.raises(AgentError, match=r"in use\).*\(listen\)"):
                await ended
            (winner,) = (agent for agent in agents if agent.task is serving)
            await winner.until(ready=True)
            assert not await turned_away(winner.port)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_agents_of_one_machine_live_beside_each_other_by_default() -> None:
    place = Place()
    async with agent_of(place, "node.name=") as one, agent_of(place, "node.name=") as two:
        await one.until(ready=True)
        await two.until(ready=True)
        live = [row.node_name for row in two.agent.node.log_client.machine.incarnations]
        assert sorted(live) == sorted(f"localhost/127.0.0.1:{each.port}" for each in (one, two))
        client = await one.connect()
        assert await client.create("t") == 0


async def test_an_agent_that_comes_back_to_its_address_takes_over_from_itself_at_once() -> None:
    place = Place()
    flags = (
        "node.name=",
        f"listen=127.0.0.1:{free_port()}",
        "lease.ttl.ms=600000",
        "session.deadline.ms=400000",
    )
    async with serving(place, *flags):
        pass
    async with serving(place, *flags) as running:
        (row,) = running.agent.node.log_client.machine.incarnations
        assert row.node_id == 0


@pytest.mark.promise("P12")
async def test_nothing_is_served_before_the_logs_end_was_reached() -> None:
    place = Place()
    log = place.log()

    async def hide_the_end(*_arguments):
        log.before["head"] = lost()

    log.after["open"] = hide_the_end
    async with agent_of(place, log=log) as running:
        await asyncio.sleep(0.5)
        assert log.called("open")
        assert not await running.ready()
        assert await turned_away(running.port)
        log.before.clear()
        await running.until(ready=True)


@contextlib.asynccontextmanager
async def _with_topic(
    place: Place | None = None, *flags: str
) -> AsyncGenerator[tuple[Running, SocketClient], None]:
    async with serving(place, *flags) as running:
        client = await running.connect()
        assert await client.create("t") == 0
        assert await client.produce("t", [b"a", b"b"]) == (0, 0)
        yield running, client


async def assert_survives(
    running: Running, client: SocketClient, away: FaultyStore | FaultyLog
) -> None:
    """What is known is served, writes fail in time, readiness says no; then all is well again."""
    away.down = True
    await running.until(ready=False)
    assert (await running.http("GET", "/health/live"))[0] == 200
    error, _ = await client.produce("t", [b"c"], timeout_ms=500)
    assert error in RETRIABLE
    error, count = await client.fetch("t", 0)
    assert (error, count > 0) == (0, True)
    away.down = False
    await running.until(ready=True)
    async with asyncio.timeout(10):
        while (await client.produce("t", [b"d"]))[0] != 0:
            await asyncio.sleep(0.1)


async def test_an_agent_outlives_an_outage_of_its_store_with_its_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "PROBE_S", 0.1)
    monkeypatch.setattr(probe, "PROBE_FAILED_S", 0.1)
    async with _with_topic() as (running, client):
        await assert_survives(running, client, running.store)


@pytest.mark.promise("P16")
async def test_an_agent_outlives_an_outage_of_its_log_with_its_connections() -> None:
    async with _with_topic() as (running, client):
        await assert_survives(running, client, running.log)


def commands_of(place: Place) -> list[object]:
    entries = [decode_entry(entry.payload) for entry in place.cluster.entries]
    return [command for entry in entries for command in entry.commands]


async def test_leaving_closes_the_incarnation_so_that_no_lease_must_run_out() -> None:
    place = Place()
    async with _with_topic(place) as (running, _client):
        async with asyncio.timeout(5):
            await running.agent.stop()
        assert running.task.done()
        assert running.task.exception() is None
    assert isinstance(commands_of(place)[-1], Close)


async def test_leaving_answers_what_was_asked_before() -> None:
    async with _with_topic() as (running, client):
        asked = asyncio.create_task(client.produce("t", [b"last"]))
        await asyncio.sleep(0.001)
        await running.agent.stop()
        error, offset = await asked
        assert (error, offset) == (0, 2)


async def test_a_leaving_agent_is_not_ready_takes_no_connections_and_flushes() -> None:
    async with _with_topic() as (running, client):
        running.store.before["put_new"] = lost()
        waiting = asyncio.create_task(client.produce("t", [b"c"]))
        await asyncio.sleep(0.05)
        leaving = asyncio.create_task(running.agent.stop())
        await asyncio.sleep(0.05)
        status, answer = await running.http("GET", "/health/ready")
        assert (status, answer["reasons"][0]) == (503, "the agent is leaving")
        with pytest.raises(OSError):
            await running.connect()
        running.store.before.clear()
        assert await waiting == (0, 2)
        await leaving


async def test_connections_end_when_the_log_says_that_the_agent_is_gone_and_not_before() -> None:
    """Whoever loses one asks another agent at once, which would name this one again."""
    place, may_close, closes = Place(), asyncio.Event(), asyncio.Event()

    async def gate(_session: object, _n: int, payload: bytes) -> None:
        if any(isinstance(command, Close) for command in decode_entry(payload).commands):
            closes.set()
            await may_close.wait()

    async with _with_topic(place) as (running, client):
        running.log.before["append"] = gate
        lost_it = asyncio.create_task(client._reader.read())
        leaving = asyncio.create_task(running.agent.stop())
        await closes.wait()
        done, _ = await asyncio.wait([lost_it], timeout=0.1)
        assert not done
        may_close.set()
        assert await lost_it == b""
        assert isinstance(commands_of(place)[-1], Close)
        await leaving


async def test_leaving_ends_in_time_when_store_and_log_are_away() -> None:
    async with _with_topic(Place(), "drain.ms=500") as (running, client):
        running.store.down = running.log.down = True
        hopeless = asyncio.create_task(client.produce("t", [b"x"], timeout_ms=60_000))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(8):
            await running.agent.stop()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await hopeless


async def test_stop_while_waiting_for_the_store_ends_at_once() -> None:
    place = Place()
    store = place.store()
    store.down = True
    async with agent_of(place, store=store) as running:
        async with asyncio.timeout(2):
            await running.agent.stop()
        assert running.task.exception() is None


async def test_an_agent_that_was_killed_comes_back_with_everything_acknowledged() -> None:
    place = Place()
    async with _with_topic(place):
        pass
    assert not isinstance(commands_of(place)[-1], Close)
    async with serving(place) as running:
        client = await running.connect()
        error, count = await client.fetch("t", 0)
        assert (error, count > 0) == (0, True)
        assert await client.produce("t", [b"c"]) == (0, 2)


@pytest.mark.fault_code("node-name-taken")
async def test_a_process_that_was_replaced_ends_with_a_sentence() -> None:
    place = Place()
    async with serving(place) as first, serving(place):
        with pytest.raises(AgentError, match="taken over the node name 'one'") as ended:
            await asyncio.wait_for(first.task, 5)
        assert ended.value.fault is FaultCode.NODE_NAME_TAKEN


@pytest.mark.fault_code("version-mismatch")
async def test_an_agent_that_is_too_old_for_its_cluster_says_so_with_the_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place()
    async with serving(place):
        monkeypatch.setattr(session, "FEATURE_LEVEL_MAX", 0)
        async with agent_of(place, "node.name=two"), asyncio.timeout(10):
            while not (told := [each for each in caplog.records if "not accept" in each.msg]):
                await asyncio.sleep(0.02)
    assert "too old for transaction.version" in told[0].getMessage()
    assert vars(told[0])["code"] == "version-mismatch"


async def test_an_entry_that_cannot_be_read_ends_the_agent_and_is_not_skipped() -> None:
    place = Place()
    async with serving(place) as running:
        log = MemoryLog(place.cluster)
        await log.open(await log.grant(10_000), b"garbage")
        with pytest.raises(AgentError, match="cannot be decoded"):
            await asyncio.wait_for(running.task, 5)


@pytest.mark.fault_code("other-cluster")
async def test_a_store_of_another_cluster_is_refused_with_both_names() -> None:
    place = Place()
    async with serving(place):
        pass
    other = Place()
    other.objects = place.objects
    async with agent_of(other, "cluster.id=second") as running:
        with pytest.raises(AgentError, match=r"'frazil'.*'second'") as ended:
            await asyncio.wait_for(running.task, 5)
        assert ended.value.fault is FaultCode.OTHER_CLUSTER


async def test_a_port_in_use_is_told_with_the_setting_to_change() -> None:
    async with serving() as running:
        flag = f"listen=127.0.0.1:{running.port}"
        place = Place()
        parts = Parts(
            store=place.store(),
            log=place.log(),
            now_ms=lambda: 0,
            boot_ms=lambda: 0,
            rng=None,
        )
        with pytest.raises(AgentError, match=r"in use\).*\(listen\)"):
            await Agent(settings_of(flag), parts).run()


async def test_the_open_entry_names_the_port_that_was_bound_and_as_how_many_nodes_it_is_shown() -> (
    None
):
    place = Place()
    async with serving(place) as running:
        opened = commands_of(place)[0]
        assert isinstance(opened, Open)
        assert opened.listeners[0] == ("PLAINTEXT", "127.0.0.1", running.port)
        assert opened.listeners[1] == ("PLAINTEXT/8", "127.0.0.1", running.port)
