"""The agent's side of the jobs: who holds them, when a worker runs, and the cut of the log."""

import asyncio

import pytest

from broker.jobs.kinds import snapshotting
from broker.jobs.restarts import ENDS_MAX
from broker.jobs.worker.context import JobContext, JobStoppedError
from broker.jobs.worker_process import WorkerEndedError
from coordinator.commands.entries import CreateTopic, Rejected
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DropRows,
    JobKind,
    PublishSnapshot,
    ReleaseJobs,
    RequestJob,
)
from coordinator.log.memory import MemoryLogCluster
from coordinator.replica import ReplicaStoppedError, first_error
from coordinator.snapshot.manifest import decode_published
from protocol.types import INCARNATION_NONE, Position
from tests.broker.jobs.hosts import (
    DELAY_S,
    HostingAgent,
    away,
    back,
    killed,
    one_host,
    running_host,
    until,
    working,
)
from tests.coordinator.support import now_s
from tests.kit.faults import lost

pytestmark = pytest.mark.schedules(5)

ALL = tuple(JobKind)


def expire_all(cluster: MemoryLogCluster) -> None:
    for session in list(cluster._leases):
        cluster.expire(session)


def three() -> list[HostingAgent]:
    cluster = MemoryLogCluster()
    return [HostingAgent(cluster, name) for name in "abc"]


def holder(agents: list[HostingAgent]) -> HostingAgent:
    (found,) = [agent for agent in agents if agent.host.held_jobs]
    return found


def three_that_archive_nothing() -> list[HostingAgent]:
    cluster = MemoryLogCluster()
    return [HostingAgent(cluster, name, settings=("log.archive.ms=0",)) for name in "abc"]


async def test_one_agent_of_several_holds_all_jobs_and_starts_one_worker_after_a_while() -> None:
    agents = three_that_archive_nothing()
    async with running_host(*agents):
        await until(lambda: any(agent.host.held_jobs for agent in agents), seconds=10)
        claimed_s = now_s()
        assert holder(agents).host.held_jobs == ALL
        await asyncio.sleep(DELAY_S - 2)
        assert [agent.workers for agent in agents] == [[], [], []]
        await until(lambda: any(agent.workers for agent in agents), seconds=10)
        assert now_s() - claimed_s >= DELAY_S - 1
        await asyncio.sleep(600)
        assert sum(len(agent.workers) for agent in agents) == 1
        assert holder(agents).workers[0][1] == holder(agents).incarnation()


async def test_an_agent_that_is_here_for_a_moment_claims_nothing() -> None:
    async with one_host() as agent:
        await asyncio.sleep(3)
        await agent.host.leave(2)
        assert agent.commands(ClaimJobs, ReleaseJobs) == []


async def test_nobody_claims_jobs_while_an_agent_of_an_older_release_is_live() -> None:
    cluster = MemoryLogCluster()
    agent, older = HostingAgent(cluster, "a"), HostingAgent(cluster, "b", enabled=False)
    async with running_host(agent, older):
        row = agent.log_client.machine.incarnations.get(older.incarnation())
        row.feature_level_max = 1
        await asyncio.sleep(60)
        assert agent.commands(ClaimJobs) == []
        row.feature_level_max = 2
        await until(lambda: agent.host.held_jobs == ALL, seconds=30)


async def test_a_job_that_is_asked_for_starts_a_worker_at_once() -> None:
    agents = three()
    async with running_host(*agents):
        await agents[1].request(JobKind.MERGE)
        await until(lambda: any(agent.workers for agent in agents), seconds=3)
        worker = holder(agents)
        row = worker.machine.jobs.get(JobKind.MERGE)
        assert row.requested >= row.claimed, "the worker would not see what was asked of nobody"


async def test_what_was_asked_in_the_logs_past_starts_no_worker_now() -> None:
    cluster = MemoryLogCluster()
    first = HostingAgent(cluster, "a", enabled=False)
    async with running_host(first):
        await first.request(JobKind.MERGE)
        later = HostingAgent(cluster, "b", settings=("log.archive.ms=0",))
        async with running_host(later):
            await asyncio.sleep(DELAY_S - 2)
            assert later.workers == []


async def test_when_the_holder_dies_another_agent_goes_on() -> None:
    agents = three()
    async with working(*agents) as dead:
        await killed(dead)
        others = [agent for agent in agents if agent is not dead]
        await until(lambda: any(agent.workers for agent in others), seconds=DELAY_S + 60)
        assert holder(others).host.held_jobs == ALL


async def test_who_leaves_ends_its_worker_first_and_gives_its_jobs_to_another() -> None:
    agents = three()
    async with working(*agents) as leaving:
        await leaving.host.leave(2)
        (release,) = leaving.commands(ReleaseJobs)
        assert release.jobs == ALL
        assert leaving.ended[0] <= leaving.released_s[0]
        (successor,) = [agent for agent in agents if agent.incarnation() == release.successor]
        assert successor is not leaving
        await until(lambda: successor.host.held_jobs == ALL, seconds=2)
        await until(lambda: bool(successor.workers), seconds=DELAY_S + 5)
        await asyncio.sleep(100)
        assert leaving.host.held_jobs == ()
        assert len(leaving.workers) == 1


async def test_who_leaves_alone_frees_its_jobs() -> None:
    async with one_host() as agent:
        await until(lambda: agent.host.held_jobs == ALL)
        await agent.host.leave(2)
        (release,) = agent.commands(ReleaseJobs)
        assert release.successor == INCARNATION_NONE


async def test_leaving_ends_in_time_though_the_log_is_away() -> None:
    async with one_host() as agent:
        await until(lambda: agent.host.held_jobs == ALL)
        away(agent.log)
        begun_s = now_s()
        await agent.host.leave(2)
        assert now_s() - begun_s <= 2.1


async def test_a_worker_that_ends_is_followed_by_others_after_pauses_that_double() -> None:
    agent = HostingAgent(MemoryLogCluster())
    agent.failing = WorkerEndedError("killed")
    async with running_host(agent):
        await agent.request(JobKind.MERGE)
        await until(lambda: len(agent.workers) == 9)
        starts = [at_s for at_s, _ in agent.workers]
        pauses = [later - end for end, later in zip(agent.ended, starts[1:], strict=False)]
        for pause_s, least_s in zip(pauses, (1, 2, 4, 8, 16, 32, 60, 60), strict=True):
            assert least_s - 0.01 <= pause_s <= least_s + 1.5
        assert agent.host.stats.workers_failed >= 5


async def test_jobs_go_to_another_agent_when_no_worker_lives_long() -> None:
    agents = three()
    async with working(*agents) as poor:
        poor.failing = WorkerEndedError("out of memory")
        poor.dying.set()
        others = [agent for agent in agents if agent is not poor]
        await until(lambda: any(agent.workers for agent in others))
        assert len(poor.workers) == ENDS_MAX
        await asyncio.sleep(100)
        assert poor.host.held_jobs == ()


async def test_a_new_incarnation_has_a_worker_of_its_own_when_the_old_one_has_ended() -> None:
    cluster = MemoryLogCluster()
    async with working(HostingAgent(cluster)) as agent:
        before = agent.incarnation()
        expire_all(cluster)
        await agent.ready(besides=before)
        await until(lambda: len(agent.workers) == 2)
        assert agent.workers[1][1] == agent.incarnation() != before
        assert agent.ended[0] <= agent.workers[1][0]


async def test_a_lapse_of_the_session_does_not_end_the_worker() -> None:
    async with working() as agent:
        before = agent.incarnation()
        agent.log.before["keep_alive"] = lost()
        await until(lambda: agent.incarnation() is None)
        back(agent.log)
        assert await agent.ready() == before
        await asyncio.sleep(30)
        assert len(agent.workers) == 1
        assert agent.ended == []


async def test_what_a_worker_of_an_old_incarnation_proposes_is_not_done() -> None:
    cluster = MemoryLogCluster()
    async with working(HostingAgent(cluster)) as agent:
        before, propose = agent.incarnation(), agent.propose
        position, outcome = await propose(DropRows(()))
        assert position >= agent.machine.incarnations.get(before).incarnation
        assert not isinstance(outcome, Rejected)
        expire_all(cluster)
        with pytest.raises(JobStoppedError):
            await propose(DropRows(()))
        await agent.ready(besides=before)
        with pytest.raises(JobStoppedError, match="is over"):
            await propose(DropRows(()))
        assert len(agent.commands(DropRows)) == 1


async def test_an_agent_without_jobs_gives_them_up() -> None:
    cluster = MemoryLogCluster()
    able, unable = HostingAgent(cluster, "a"), HostingAgent(cluster, "b", enabled=False)
    async with running_host(able, unable):
        await until(lambda: able.host.held_jobs == ALL)
        release = ReleaseJobs(ALL, unable.incarnation())
        await able.log_client.propose(release)
        await until(lambda: able.host.held_jobs == ALL and unable.host.held_jobs == ())
        assert unable.workers == []


async def published(agent: HostingAgent, *, count: int) -> None:
    """Snapshots in the log, made without a worker."""
    for number in range(count):
        await agent.log_client.propose(CreateTopic(f"t{number}", 1, ()))
        await agent.log_client.propose(BeginSnapshot())
        begun = agent.machine.snapshots.begun
        command = PublishSnapshot(begun.position, begun.digest, f"snapshots/{number}")
        assert not isinstance(await agent.log_client.propose(command), Rejected)


def named(cluster: MemoryLogCluster) -> list[Position]:
    """Snapshots that the log was told of."""
    return [each.position for each in decode_published(cluster.published)]


@pytest.mark.promise("P14")
async def test_log_is_cut_behind_the_older_snapshot_only() -> None:
    cluster = MemoryLogCluster()
    agent = HostingAgent(cluster)
    async with running_host(agent):
        await until(lambda: agent.host.held_jobs == ALL)
        await published(agent, count=1)
        await until(lambda: len(named(cluster)) == 1)
        await asyncio.sleep(10)
        assert cluster.entries[0].position == agent.incarnation(), "nothing is cut yet"
        await published(agent, count=3)
        newest, older = [each.position for each in agent.machine.snapshots.published]
        await until(lambda: named(cluster) == [newest, older])
        await until(lambda: cluster.entries[0].position > older)
        # What leads on from the older one is there: the entry that began the newest, too.
        assert newest in [entry.position for entry in cluster.entries]
        assert agent.host.stats.entries_cut > 0


@pytest.mark.parametrize("call", ["publish", "cut"])
@pytest.mark.parametrize("lost_in", ["before", "after"])
async def test_the_cut_is_repeated_until_it_is_done(call: str, lost_in: str) -> None:
    cluster = MemoryLogCluster()
    agent = HostingAgent(cluster)
    async with running_host(agent):
        await until(lambda: agent.host.held_jobs == ALL)
        getattr(agent.log, lost_in)[call] = lost(2)
        await published(agent, count=2)
        older = agent.machine.snapshots.older.position
        await until(lambda: cluster.entries[0].position > older)
        await until(lambda: len(agent.log.called(call)) >= 3)


async def test_the_machine_is_never_two_snapshots_ahead_of_what_the_log_names() -> None:
    cluster = MemoryLogCluster()
    async with working(HostingAgent(cluster)) as agent:

        async def snapshots() -> None:
            while True:
                await agent.propose(BeginSnapshot())
                begun = agent.machine.snapshots.begun
                key = f"snapshots/{begun.position:016x}/manifest"
                await agent.propose(PublishSnapshot(begun.position, begun.digest, key))
                await asyncio.sleep(30)

        making = asyncio.ensure_future(snapshots())
        await asyncio.sleep(100)
        agent.log.before["publish"] = lost()
        before = named(cluster)
        assert len(before) == 2
        await asyncio.sleep(600)
        assert named(cluster) == before
        assert agent.machine.snapshots.published[1].position == before[0]
        agent.log.before.clear()
        await asyncio.sleep(600)
        found = [each.position for each in agent.machine.snapshots.published]
        assert found[1] > before[0]
        assert named(cluster) == found
        making.cancel()


@pytest.mark.promise("P13")
async def test_an_agent_ends_when_two_workers_that_loaded_anew_have_another_machine() -> None:
    """It holds the jobs, so no other agent makes a snapshot that would tell it."""
    agent = HostingAgent(MemoryLogCluster(), jobs={JobKind.SNAPSHOT: snapshotting.run})
    async with running_host(agent):
        await agent.log_client.propose(CreateTopic("first", 1, ()))
        await until(lambda: agent.machine.snapshots.published, seconds=2000)
        await agent.log_client.propose(CreateTopic("later", 1, ()))
        agent.machine._digest = bytes(16)
        (_, host), before = agent.tasks, len(agent.workers)
        await until(lambda: len(agent.ended) == before, seconds=1000)
        # The second one does not wait until a snapshot is due.
        with pytest.raises(ExceptionGroup) as ended:
            await asyncio.wait_for(host, 60)
        agent.tasks = agent.tasks[:1]
        assert isinstance(first_error(ended.value), ReplicaStoppedError)
        assert "not what log and snapshot say" in str(first_error(ended.value))
        assert len(agent.workers) == before + 1
        assert len(agent.machine.snapshots.published) == 1


async def test_an_agent_goes_on_when_only_one_worker_had_another_machine() -> None:
    damaged = [True, False, True, False]

    async def snapshot(context: JobContext) -> None:
        await context.propose(BeginSnapshot())
        begun = context.machine.snapshots.begun
        digest = bytes(16) if damaged.pop(0) else begun.digest
        await context.propose(PublishSnapshot(begun.position, digest, "snapshots/x"))

    agent = HostingAgent(MemoryLogCluster(), jobs={JobKind.SNAPSHOT: snapshot})
    async with running_host(agent):
        for count in (1, 2):
            await agent.request(JobKind.SNAPSHOT)
            await until(lambda count=count: len(agent.machine.snapshots.published) == count)
        assert damaged == []


async def test_log_on_the_way_to_its_budget_is_cut_as_soon_as_jobs_run() -> None:
    """As when an agent that made no snapshots is replaced by one that does."""

    async def snapshot(context: JobContext) -> None:
        await context.propose(BeginSnapshot())
        begun = context.machine.snapshots.begun
        await context.propose(PublishSnapshot(begun.position, begun.digest, "snapshots/x"))

    cluster = MemoryLogCluster()
    configs = tuple((f"config.{number:02}", "x" * 1000) for number in range(50))
    early = HostingAgent(cluster, enabled=False)
    async with running_host(early):
        for number in range(15):
            await early.log_client.propose(CreateTopic(f"t{number}", 1, configs))
    settings = ("log.bytes.max=1MiB", "snapshot.log.bytes=1GiB")
    late = HostingAgent(cluster, "late", jobs={JobKind.SNAPSHOT: snapshot}, settings=settings)
    async with running_host(late):
        await asyncio.sleep(DELAY_S + 60)
        found = late.machine.snapshots.published
        assert len(found) == 2
        assert len(cluster.entries) < 15
        await asyncio.sleep(600)
        assert late.machine.snapshots.published == found


async def test_whoever_gets_the_jobs_finishes_the_cut_of_the_one_before() -> None:
    cluster = MemoryLogCluster()
    first, second = HostingAgent(cluster, "a"), HostingAgent(cluster, "b")
    async with running_host(first):
        await until(lambda: first.host.held_jobs == ALL)
        first.log.before["publish"] = lost()
        await published(first, count=2)
        older = first.machine.snapshots.older.position
        async with running_host(second):
            await killed(first)
            await until(lambda: second.host.held_jobs == ALL)
            await until(lambda: cluster.entries[0].position > older)


async def test_a_worker_whose_machine_is_another_publishes_nothing_and_is_ended() -> None:
    agent = HostingAgent(MemoryLogCluster())

    async def astray(context) -> None:
        await context.propose(BeginSnapshot())
        begun = context.machine.snapshots.begun
        wrong = bytes(16)
        await context.propose(PublishSnapshot(begun.position, wrong, "snapshots/x"))

    agent.jobs = {JobKind.SNAPSHOT: astray}
    async with running_host(agent):
        await agent.request(JobKind.SNAPSHOT)
        await until(lambda: bool(agent.ended))
        assert agent.commands(PublishSnapshot) == []
        assert agent.host.stats.workers_failed == 1
        await until(lambda: len(agent.workers) == 2)


async def test_requests_while_a_worker_runs_are_its_own() -> None:
    async with working() as agent:
        count = len(agent.commands(RequestJob))
        await agent.request(JobKind.COLLECT)
        await asyncio.sleep(30)
        assert len(agent.commands(RequestJob)) == count + 1
        assert len(agent.workers) == 1
        assert agent.machine.jobs.get(JobKind.COLLECT).requested > Position(0)
