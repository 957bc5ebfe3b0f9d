"""`frazil log void`: agents that all stop, the way out of it, and what is refused."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from broker.agent import AgentError
from broker.cli import doctor
from broker.cli.admin_client import AgentPlace
from broker.cli.arguments import FailedError
from broker.cli.command_result import ToolError
from broker.cli.log import void_tool
from broker.cli.log.log_tail import tail
from broker.reports.log_lines import place as told
from broker.store import identity
from coordinator.commands.entries import CreateTopic, Tick
from coordinator.commands.job_commands import JobKind, RequestJob
from coordinator.log.memory import MemoryLog
from coordinator.machine.machine import Machine
from protocol.fault_codes import FaultCode
from protocol.types import position as position_of
from storage.formats.era_marker import EraMarker, encode_era, era_key
from tests.coordinator.support import Writer
from tests.kit.sockets import Place, Running, agent_of, settings_of

pytestmark = pytest.mark.real_loop

BAD = CreateTopic("bad", 1, ())


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    """A cluster that the tool finds, too."""
    made = Place()

    def open_adapters(_settings: object) -> object:
        return made.store(), made.log()

    monkeypatch.setattr(void_tool, "open_adapters", open_adapters)
    return made


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that cannot apply one command; when it finds out, it has changed something."""
    apply = Machine._apply_command

    def faulty(machine: Machine, position, index, writer, command):
        outcome = apply(machine, position, index, writer, command)
        if command == BAD:
            raise KeyError("a bug")
        return outcome

    monkeypatch.setattr(Machine, "_apply_command", faulty)


async def void(position: int, asked: list[str] | None = None) -> list[str]:
    lines = [] if asked is None else asked
    return await void_tool.void(
        settings_of(), position, "a bug in 0.1", ask=lines.extend, tell=lines.append
    )


async def starts(stack: AsyncExitStack, place: Place, *names: str) -> list[Running]:
    agents = []
    for name in names:
        agents.append(await stack.enter_async_context(agent_of(place, f"node.name={name}")))
        await agents[-1].until(ready=True)
    return agents


async def leave(*agents: Running) -> None:
    for running in agents:
        await running.agent.stop()


async def claim(place: Place) -> None:
    """As an agent does that starts."""
    rng = random.Random("a log")
    await identity.check(place.store(), place.log(), settings_of().cluster_id, rng)


async def bad_entry(place: Place, payload: bytes | None = None) -> int:
    """Of a session that is over when this returns: it cannot be decoded, or cannot be applied."""
    await claim(place)
    writer = Writer(place.cluster)
    await writer.open("writer")
    position = await (writer.write(BAD) if payload is None else writer.write_bytes(payload))
    await writer.write(CreateTopic("behind", 1, ()))
    await writer.log.revoke(writer.session.id)
    return position


async def end_of(place: Place, name: str) -> str:
    """The sentence by which an agent ends that cannot start."""
    async with agent_of(place, f"node.name={name}") as running:
        with pytest.raises(AgentError) as error:
            await running.task
    return str(error.value)


@pytest.mark.promise("P13")
@pytest.mark.parametrize("payload", [None, b"of a later version"], ids=["raises", "undecodable"])
async def test_agents_that_all_stop_at_an_entry_start_again_and_lose_nothing(
    place: Place, raising: None, payload: bytes | None
) -> None:
    async with AsyncExitStack() as stack:
        agents = await starts(stack, place, "one", "two")
        client = await agents[0].connect()
        assert await client.create("t") == 0
        assert await client.produce("t", [b"before"] * 3) == (0, 0)
        await leave(*agents)
    position = await bad_entry(place, payload)
    for name in ("one", "two", "three"):
        assert f"frazil log void {told(position)} (docs/design/running.md" in await end_of(
            place, name
        )

    asked: list[str] = []
    lines = await void(position, asked)
    assert lines[0].startswith(f"{told(position)} VOID n=1")
    assert lines[0].endswith(": a bug in 0.1")
    assert ("KeyError" in asked[1]) == (payload is None)
    assert "Nothing that was acknowledged is lost" in asked[-1]
    assert await void(position) == lines[:1]

    async with AsyncExitStack() as stack:
        agents = await starts(stack, place, "one", "two")
        client = await agents[1].connect()
        assert await client.produce("t", [b"after"] * 2) == (0, 3)
        assert (await client.fetch("t", 0))[1] > 0
        assert (await client.fetch("t", 4))[1] > 0
        await agents[0].agent.node.log_client.propose(RequestJob(JobKind.SNAPSHOT))
        machines = [each.agent.node.log_client.machine for each in agents]
        async with asyncio.timeout(30):
            while not machines[0].snapshots.published or not place.cluster.published:
                await asyncio.sleep(0.02)
        agents += await starts(stack, place, "three")
        await same_digest(agents)
        for running in agents:
            topics = running.agent.node.log_client.machine.topics
            assert [topic.name for topic in topics] == ["t", "behind"]
        assert agents[2].agent.node.log_client.stats.snapshot_position > position


async def same_digest(agents: list[Running]) -> None:
    """They are equal at a position that all of them have reached."""
    clients = [running.agent.node.log_client for running in agents]
    async with asyncio.timeout(30):
        while True:
            await asyncio.gather(*[client.barrier() for client in clients])
            if len({client.machine.position for client in clients}) == 1:
                break
    assert len({client.machine.digest() for client in clients}) == 1


@pytest.mark.promise("P13")
async def test_while_an_agent_lives_nothing_is_voided_and_it_is_named(place: Place) -> None:
    async with AsyncExitStack() as stack:
        (running,) = await starts(stack, place, "one")
        running.log.tail_gate.clear()  # It does not come to what stops it.
        position = await bad_entry(place, b"of a later version")
        with pytest.raises(ToolError, match=r"agents have sessions: [0-9a-f]+ of one\. End them"):
            await void(position)
        assert await MemoryLog(place.cluster).voids() == []


async def test_an_entry_at_which_no_agent_stops_is_not_voided(place: Place) -> None:
    await claim(place)
    writer = Writer(place.cluster)
    await writer.open("writer")
    good = await writer.write(Tick())
    await writer.log.revoke(writer.session.id)
    with pytest.raises(ToolError, match=f"do not stop at {told(good)}, but nowhere"):
        await void(good)
    bad = await bad_entry(place, b"of a later version")
    with pytest.raises(ToolError, match=f"but at {told(bad)}"):
        await void(good)
    assert await MemoryLog(place.cluster).voids() == []


async def test_an_entry_that_a_snapshot_holds_is_not_voided(place: Place) -> None:
    async with AsyncExitStack() as stack:
        (running,) = await starts(stack, place, "one")
        log_client = running.agent.node.log_client
        position = log_client.machine.position
        await log_client.propose(RequestJob(JobKind.SNAPSHOT))
        async with asyncio.timeout(30):
            while not place.cluster.published:
                await asyncio.sleep(0.02)
        await leave(running)
    with pytest.raises(ToolError, match=f"holds what {told(position)} did"):
        await void(position)


async def test_what_is_no_entry_of_the_log_is_told_apart(place: Place) -> None:
    bad = await bad_entry(place, b"of a later version")
    with pytest.raises(ToolError, match=f"no entry at {told(bad - 1)}: the next one is at"):
        await void(bad - 1)
    with pytest.raises(ToolError, match="the log ends at"):
        await void(bad + 100)
    with pytest.raises(ToolError, match="positions are like 1:"):
        await void(42)

    with pytest.raises(ToolError, match="no entry at 1:0: the log begins behind it"):
        await void(position_of(1, 0))


@pytest.mark.promise("P13")
async def test_in_a_log_that_is_not_the_store_s_nothing_is_voided(place: Place) -> None:
    async with AsyncExitStack() as stack:
        await leave(*await starts(stack, place, "one"))
    objects, other = place.objects, Place()
    place.objects, place.cluster = other.objects, other.cluster
    bad = await bad_entry(place, b"of a later version")
    place.objects = objects
    with pytest.raises(ToolError, match="belongs to another metadata log") as refused:
        await void(bad)
    assert refused.value.fault is FaultCode.OTHER_CLUSTER
    place.objects = Place().objects
    with pytest.raises(ToolError, match="belongs to nobody"):
        await void(bad)
    assert await MemoryLog(place.cluster).voids() == []


@pytest.mark.promise("P13")
async def test_in_the_log_of_an_era_that_is_over_nothing_is_voided(place: Place) -> None:
    bad = await bad_entry(place, b"of a later version")
    life = "0123456789abcdef"
    marker = EraMarker(settings_of().cluster_id, 2, life, life, bad, "00", 1)
    await place.objects.put_new(era_key(2), [encode_era(marker)])
    with pytest.raises(ToolError, match="but the object store to") as refused:
        await void(bad)
    assert refused.value.fault is FaultCode.OTHER_CLUSTER
    assert await MemoryLog(place.cluster).voids() == []


async def test_nothing_is_voided_when_the_answer_is_no(place: Place) -> None:
    bad = await bad_entry(place, b"of a later version")

    def no(_lines: list[str]) -> None:
        raise FailedError("nothing is done")

    with pytest.raises(FailedError):
        await void_tool.void(settings_of(), bad, "why", ask=no, tell=print)
    assert await MemoryLog(place.cluster).voids() == []


async def test_who_is_asked_is_told_what_lies_behind_it_and_what_may_be_lost(place: Place) -> None:
    bad = await bad_entry(place, b"of a later version")
    worse = await bad_entry(place, b"of the same")
    asked: list[str] = []
    await void(bad, asked)
    assert asked[0].endswith("18 bytes")
    assert "cannot be decoded: an entry of format version" in asked[1]
    assert asked[2] == "4 entries lie behind it, 1 of them sessions that agents began"
    assert asked[3] == f"1 of them cannot be decoded, either: {told(worse)}"
    assert "agents of another release went past it" in asked[4]


async def test_a_voided_entry_is_shown_by_the_tail_of_the_log_and_by_the_doctor(
    place: Place, raising: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        await leave(*await starts(stack, place, "one"))
    await void(first := await bad_entry(place))
    await void(second := await bad_entry(place, b"of a later version"))
    monkeypatch.setattr(doctor, "open_log", lambda *_: place.log())
    found = [each.line() async for each in doctor._log(settings_of(), running=False)]
    assert [line.startswith("note log") for line in found] == [False, True, True]
    assert f"agents pass over {told(first)} VOID" in found[1]

    async with AsyncExitStack() as stack:
        (running,) = await starts(stack, place, "one")
        agent = AgentPlace(f"http://127.0.0.1:{running.agent.listening()['http'][1]}")
        printed = await asyncio.to_thread(
            lambda: list(tail(agent, after=0, follow=False, as_json=False))
        )
    at = next(n for n, line in enumerate(printed) if line.startswith(f"{told(first)} VOID"))
    assert printed[at].endswith(": a bug in 0.1")
    assert printed[at + 2] == "    CreateTopic name=bad partition_count=1 configs=[]"
    assert any(line.startswith(f"{told(second)} VOID n=1") for line in printed)
    notices = [line for line in printed if " voids n=0 " in line]
    assert len(notices) == 2
