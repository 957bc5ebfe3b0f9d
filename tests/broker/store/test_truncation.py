"""An older log that was put back: agents refuse it before they acknowledge or delete anything."""

import asyncio
import contextlib
import copy

import pytest

from broker.agent import AgentError
from broker.jobs.kinds.collection_plan import PREFIXES
from coordinator.log.memory import MemoryLogCluster
from coordinator.log.metadata_log import EraOverError, LogReplacedError
from protocol.fault_codes import FaultCode
from protocol.types import Position
from storage.formats import log_checkpoint
from storage.formats.log_archive import ArchivedEntry, LogArchive, archive_key, encode_archive
from tests.broker.agents import serving
from tests.kit.faults import refused
from tests.kit.sockets import Place, Running, agent_of

pytestmark = pytest.mark.real_loop

OLDER = "metadata log is older than the object store"


def copied(cluster: MemoryLogCluster) -> dict[str, object]:
    """What a backup of the log holds."""
    state = {name: value for name, value in vars(cluster).items() if name != "_grown"}
    return copy.deepcopy(state)


def put_back(cluster: MemoryLogCluster, backup: dict[str, object]) -> None:
    """Under the adapters that are connected, too."""
    vars(cluster).update(copy.deepcopy(backup))
    cluster.wake()


async def produce(agent: Running, *values: bytes) -> None:
    """One chunk for each value."""
    client = await agent.connect()
    for value in values:
        assert (await client.produce("t", [value]))[0] == 0


async def backup_and_more(place: Place, *, more: int, kill: bool = False) -> dict[str, object]:
    """A copy of the log of five records, after which others were acknowledged."""
    async with serving(place) as agent:
        assert await (await agent.connect()).create("t") == 0
        await produce(agent, *[b"%d" % number for number in range(5)])
        backup = copied(place.cluster)
        await produce(agent, *[b"%d" % (5 + number) for number in range(more)])
        if not kill:
            await agent.agent.stop()
    return backup


async def refusal(place: Place) -> str:
    """How an agent ends that is started."""
    async with agent_of(place) as agent:
        with pytest.raises(AgentError) as ended:
            async with asyncio.timeout(60):
                await agent.task
        return str(ended.value)


def objects(place: Place) -> list[str]:
    return sorted(key for key in place.objects._objects if key.startswith(PREFIXES))


def leave_no_checkpoints(place: Place) -> None:
    for key in [*place.objects._objects]:
        if key.startswith(log_checkpoint.FOLDER):
            del place.objects._objects[key]


@pytest.mark.promise("P14")
@pytest.mark.parametrize("kill", [False, True])
async def test_an_older_log_is_refused_with_words_and_nothing_is_deleted(kill: bool) -> None:
    place = Place()
    backup = await backup_and_more(place, more=5, kill=kill)
    before, newest = objects(place), copied(place.cluster)
    put_back(place.cluster, backup)
    told = await refusal(place)
    assert OLDER in told
    assert "put the newest log back" in told
    assert objects(place) == before
    assert place.cluster.head() == backup["_head"]
    put_back(place.cluster, newest)
    async with serving(place) as agent:
        error, length = await (await agent.connect()).fetch("t", 9)
        assert error == 0
        assert length > 0


async def test_an_older_log_shows_by_the_checkpoint_of_who_left_though_there_is_no_chunk_after_it() -> (
    None
):
    place = Place()
    async with serving(place) as agent:
        backup = copied(place.cluster)
        assert await (await agent.connect()).create("t") == 0
        await agent.agent.stop()
    assert objects(place) == []
    put_back(place.cluster, backup)
    assert "checkpoints/" in await refusal(place)


async def test_an_older_log_shows_by_the_archive_of_what_it_lacks() -> None:
    place = Place()
    async with serving(place) as agent:
        backup = copied(place.cluster)
        assert await (await agent.connect()).create("t") == 0
        head = place.cluster.head()
    leave_no_checkpoints(place)
    entry = ArchivedEntry(head, 1, 1, False, b"")
    archive = LogArchive("dev", Position(head - 1), head, bytes(16), (entry,))
    key = archive_key(archive.after, archive.last)
    await place.objects.put_new(key, [encode_archive(archive)])
    await place.objects.put_new("archive/notes", [b"somebody else's"])
    put_back(place.cluster, backup)
    assert key in await refusal(place)


async def test_an_older_log_shows_by_what_a_chunk_says_in_its_header() -> None:
    place = Place()
    # The first of the two is like one that was put and never committed; the second is not.
    backup = await backup_and_more(place, more=2, kill=True)
    leave_no_checkpoints(place)
    put_back(place.cluster, backup)
    assert "chunks/" in await refusal(place)


async def test_an_older_log_shows_by_the_incarnations_that_wrote_after_it() -> None:
    place = Place()
    async with serving(place) as agent:
        assert await (await agent.connect()).create("t") == 0
        await agent.agent.stop()
    backup = copied(place.cluster)
    async with serving(place) as agent:
        await produce(agent, b"lost")
    leave_no_checkpoints(place)
    put_back(place.cluster, backup)
    assert "chunks/" in await refusal(place)


@pytest.mark.parametrize("folder", ["segments", "indexes", "snapshots"])
async def test_an_older_log_shows_by_every_kind_of_object(folder: str) -> None:
    place = Place()
    backup = await backup_and_more(place, more=0)
    put_back(place.cluster, backup)
    leave_no_checkpoints(place)
    beyond = f"{folder}/{place.cluster.head() + 2:016x}/00000000"
    await place.objects.put_new(beyond, [b"x"])
    assert beyond in await refusal(place)


async def test_a_chunk_that_was_put_and_not_committed_when_the_agent_was_killed_refuses_no_start() -> (
    None
):
    place = Place()
    await backup_and_more(place, more=0, kill=True)
    newest = objects(place)[-1]
    key = f"{newest.rpartition('/')[0]}/{int(newest[-8:], 16) + 1:08x}"
    await place.objects.put_new(key, [place.objects._objects[newest]])
    async with serving(place):
        assert key in objects(place)


@pytest.mark.parametrize("data", [b"", b"not a chunk, whatever it is"])
async def test_what_is_no_chunk_among_chunks_refuses_no_start(data: bytes) -> None:
    place = Place()
    await backup_and_more(place, more=0, kill=True)
    await place.objects.put_new(objects(place)[-1].rpartition("/")[0] + "/ffffffff", [data])
    async with serving(place):
        pass


async def test_agents_that_start_while_others_write_are_not_refused() -> None:
    place = Place()
    async with serving(place) as writing:
        assert await (await writing.connect()).create("t") == 0
        for number in range(5):
            load = asyncio.create_task(produce(writing, *[b"x"] * 50))
            async with serving(place, f"node.name=other{number}"):
                pass
            await load


@pytest.mark.promise("P1")
async def test_an_agent_under_which_an_older_log_is_put_back_ends_and_acknowledges_nothing() -> (
    None
):
    place = Place()
    async with serving(place) as agent:
        client = await agent.connect()
        assert await client.create("t") == 0
        backup = copied(place.cluster)
        await produce(agent, *[b"x"] * 5)
        before = objects(place)
        put_back(place.cluster, backup)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            assert (await client.produce("t", [b"lost"]))[0] != 0
        with pytest.raises(AgentError, match="acknowledges nothing any more"):
            async with asyncio.timeout(10):
                await agent.task
        assert set(objects(place)) >= set(before)


@pytest.mark.promise("P1")
@pytest.mark.parametrize(
    ("error", "advice", "no_advice"),
    [
        (LogReplacedError("it is older"), "Put the newest log back", "fuser"),
        (LogReplacedError("there are two", fault=FaultCode.DATA_FOLDER_IN_USE), "fuser", "Put "),
        (EraOverError(), "start it again", "Put "),
    ],
)
async def test_an_agent_whose_log_is_not_its_own_says_what_helps_and_nothing_else(
    error: LogReplacedError, advice: str, no_advice: str
) -> None:
    place = Place()
    async with serving(place) as agent:
        client = await agent.connect()
        agent.log.before["append"] = refused(error)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            assert await client.create("t") != 0
        with pytest.raises(AgentError, match=advice) as ended:
            async with asyncio.timeout(10):
                await agent.task
    assert ended.value.fault is error.fault
    assert no_advice not in str(ended.value)


async def test_the_store_knows_how_far_the_log_was_when_an_agent_has_left() -> None:
    place = Place()
    await backup_and_more(place, more=0)
    infos = await place.objects.list_after(log_checkpoint.FOLDER, "")
    checkpoints = log_checkpoint.found_in(infos)
    assert max(each.position for each in checkpoints) == place.cluster.head()
    # The first of the incarnation, and the last.
    assert sorted(each.is_first for each in checkpoints) == [False, True]
