"""The worker: it loads, follows the log, and runs what its incarnation holds."""

import asyncio

import pytest

from broker.jobs.kinds import snapshotting
from broker.jobs.worker.context import JobContext, JobStoppedError
from coordinator.commands.config_commands import ChangeConfigs, ConfigKind
from coordinator.commands.entries import DONE, CreateTopic
from coordinator.commands.job_commands import DropRows, JobKind, ReleaseJobs, ReportJob, RequestJob
from coordinator.log.memory import MemoryLogCluster
from protocol.types import INCARNATION_NONE
from storage.stores.object_store import StoreRefusedError
from tests.broker.jobs.hosts import HostingAgent, asked, running_host, until

pytestmark = pytest.mark.schedules(5)


class Rounds:
    """A job that notes its rounds and does what it is told."""

    def __init__(self, work=None) -> None:
        self.contexts: list[JobContext] = []
        self.work = work

    async def run(self, context: JobContext) -> None:
        self.contexts.append(context)
        if self.work is not None:
            await self.work(context)


async def nothing(_context: JobContext) -> None:
    pass


async def test_all_kinds_run_and_one_that_was_asked_for_knows_it() -> None:
    merge, collect = Rounds(), Rounds()
    async with asked(
        JobKind.COLLECT, {JobKind.MERGE: merge.run, JobKind.COLLECT: collect.run}
    ) as agent:
        await until(lambda: merge.contexts and collect.contexts, seconds=5)
        assert merge.contexts[0].requested is False
        assert collect.contexts[0].requested is True
        await until(lambda: agent.machine.jobs.get(JobKind.COLLECT).reported_ms > 0, seconds=1)
        await asyncio.sleep(agent.given.merge_interval_ms / 1000 * 3)
        assert 3 <= len(merge.contexts) <= 5


async def test_a_bug_in_one_job_is_counted_and_harms_no_other() -> None:
    async def fails(_context: JobContext) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(0.1))
            raise KeyError("a bug")

    async def refused(_context: JobContext) -> None:
        raise StoreRefusedError("a full disk")

    merge, spill, collect = Rounds(fails), Rounds(refused), Rounds()
    jobs = {JobKind.MERGE: merge.run, JobKind.SPILL: spill.run, JobKind.COLLECT: collect.run}
    async with asked(JobKind.COLLECT, jobs) as agent:
        await asyncio.sleep(150)
        assert len(agent.workers) == 1
        stats = agent.host.stats
        for kind, rounds in ((JobKind.MERGE, merge), (JobKind.SPILL, spill)):
            assert stats.job(kind).failures == stats.job(kind).runs == len(rounds.contexts)
            assert 4 <= len(rounds.contexts) <= 7
        assert stats.job(JobKind.COLLECT).failures == 0
        assert len(collect.contexts) >= 2


async def test_a_proposal_returns_when_the_workers_own_machine_has_applied_it() -> None:
    seen: list[bool] = []

    async def work(context: JobContext) -> None:
        applied: list[object] = []
        take_off = context.on_applied(lambda each: applied.extend(each.entry.commands))
        command = DropRows(())
        assert await context.propose(command) is DONE
        seen.append(command in applied)
        take_off()
        count = len(applied)
        await context.propose(command)
        seen.append(len(applied) == count)

    async with asked(JobKind.RETENTION, {JobKind.RETENTION: work}) as agent:
        await until(lambda: len(seen) >= 2)
        assert seen[:2] == [True, True]
        await until(lambda: not agent.machine.jobs.get(JobKind.RETENTION).running)


async def test_a_job_is_stopped_when_it_is_another_agents_meanwhile() -> None:
    stopped: list[JobStoppedError] = []
    begun = asyncio.Event()

    async def work(context: JobContext) -> None:
        begun.set()
        try:
            while True:
                await context.propose(DropRows(()))
                await asyncio.sleep(0.01)
        except JobStoppedError as error:
            stopped.append(error)
            raise

    async with asked(JobKind.RETENTION, {JobKind.RETENTION: work, JobKind.MERGE: nothing}) as agent:
        await begun.wait()
        release = ReleaseJobs((JobKind.RETENTION,), INCARNATION_NONE)
        await agent.log_client.propose(release)
        await until(lambda: bool(stopped), seconds=2)


async def test_a_job_that_somebody_asks_for_in_the_middle_of_a_round_runs_again() -> None:
    gate = asyncio.Event()
    merge = Rounds(lambda _context: gate.wait())
    async with asked(JobKind.MERGE, {JobKind.MERGE: merge.run}) as agent:
        await until(lambda: len(merge.contexts) == 1)
        await agent.request(JobKind.MERGE)
        await asyncio.sleep(5)
        assert len(merge.contexts) == 1
        gate.set()
        await until(lambda: len(merge.contexts) == 2, seconds=3)


async def test_reports_of_a_running_job_reach_the_log_seldom_and_the_last_one_always() -> None:
    async def work(context: JobContext) -> None:
        for second in range(60):
            context.report(second, 60, "counting")
            await asyncio.sleep(1)
        context.report(60, 60, "counting")

    async with asked(JobKind.MERGE, {JobKind.MERGE: work}) as agent:
        row = agent.machine.jobs.get
        await until(lambda: row(JobKind.MERGE).running)
        await until(lambda: row(JobKind.MERGE).done == 60)
        assert not row(JobKind.MERGE).running
        reports = agent.commands(ReportJob)
        assert 8 <= len(reports) <= 13


async def test_what_jobs_move_together_is_paced() -> None:
    loop = asyncio.get_running_loop()
    times: dict[JobKind, float] = {}

    async def work(context: JobContext) -> None:
        begun_s = loop.time()
        for number in range(10):
            await context.put(f"x/{context.kind}/{number}", [bytes(64 * 1024)])
        times[context.kind] = loop.time() - begun_s

    agent = HostingAgent(
        MemoryLogCluster(),
        jobs={JobKind.MERGE: work, JobKind.SPILL: work, JobKind.COMPACT: work},
        settings=("jobs.bytes.per.second=64KiB", "log.cleaner.io.max.bytes.per.second=16384"),
    )
    async with running_host(agent):
        await agent.request(JobKind.MERGE)
        await until(lambda: len(times) == 3)
        assert max(times[JobKind.MERGE], times[JobKind.SPILL]) >= 18
        assert times[JobKind.COMPACT] >= 35, "the cleaner's own pace"


def changed(who: str, **configs: str) -> ChangeConfigs:
    changes = ((name.replace("_", "."), text) for name, text in sorted(configs.items()))
    return ChangeConfigs(ConfigKind.BROKER, who, tuple(changes))


async def test_jobs_follow_settings_that_change_while_they_run() -> None:
    compact = Rounds()
    agent = HostingAgent(MemoryLogCluster(), jobs={JobKind.COMPACT: compact.run})
    async with running_host(agent):
        await agent.request(JobKind.COMPACT)
        await until(lambda: compact.contexts)
        await agent.log_client.propose(CreateTopic("t", 1, ()))
        topic = agent.machine.topics.by_name("t")
        assert topic is not None
        (context,) = compact.contexts
        assert context.rules.of(topic).retention_ms == 604_800_000
        own = str(agent.log_client.node_id())
        await agent.log_client.propose(
            changed("", log_retention_ms="5", log_cleaner_dedupe_buffer_size="7")
        )
        await agent.log_client.propose(
            changed(own, log_cleaner_backoff_ms="1000", log_segment_delete_delay_ms="9")
        )
        await until(lambda: context.rules.of(topic).retention_ms == 5, seconds=5)
        seen = len(compact.contexts)
        await asyncio.sleep(10)
        assert len(compact.contexts) - seen >= 4, "the interval that was set, not 15 s"
        newest = compact.contexts[-1].settings.kafka
        assert newest.log_cleaner_dedupe_buffer_size == 7
        assert newest.log_segment_delete_delay_ms == 9


async def test_a_worker_that_starts_has_what_was_set_before() -> None:
    compact = Rounds()
    agent = HostingAgent(MemoryLogCluster(), jobs={JobKind.COMPACT: compact.run})
    async with running_host(agent):
        own = str(agent.log_client.node_id())
        await agent.log_client.propose(changed(own, log_segment_delete_delay_ms="9"))
        await agent.request(JobKind.COMPACT)
        await until(lambda: compact.contexts)
        assert compact.contexts[0].settings.kafka.log_segment_delete_delay_ms == 9


async def test_the_cleaners_pace_follows() -> None:
    loop = asyncio.get_running_loop()
    rounds: list[float] = []

    async def work(context: JobContext) -> None:
        begun_s = loop.time()
        for number in range(10):
            await context.put(f"x/{len(rounds)}/{number}", [bytes(64 * 1024)])
        rounds.append(loop.time() - begun_s)

    agent = HostingAgent(MemoryLogCluster(), jobs={JobKind.COMPACT: work})
    async with running_host(agent):
        await agent.request(JobKind.COMPACT)
        await until(lambda: rounds)
        assert rounds[0] < 1
        await agent.log_client.propose(changed("", log_cleaner_io_max_bytes_per_second="16384"))
        await until(lambda: len(rounds) > 1)
        assert rounds[-1] >= 35


async def snapshot(agent: HostingAgent, *, wanted: int) -> None:
    """Have one made, and wait until the log is told of it and cut."""
    await agent.request(JobKind.SNAPSHOT)
    await until(lambda: len(agent.machine.snapshots.published) == wanted)
    await until(lambda: not agent.machine.jobs.get(JobKind.SNAPSHOT).running)
    await asyncio.sleep(3)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_worker_begins_with_the_newest_snapshot_and_not_with_the_log(count: int) -> None:
    cluster = MemoryLogCluster()
    first = HostingAgent(cluster, jobs={JobKind.SNAPSHOT: snapshotting.run})
    async with running_host(first):
        await first.log_client.propose(CreateTopic("t", 3, ()))
        for number in range(count):
            await snapshot(first, wanted=min(number + 1, 2))
        older = first.machine.snapshots.published[-1].position
        before = first.incarnation()
        for session in list(cluster._leases):
            cluster.expire(session)
        await first.ready(besides=before)
        await first.request(JobKind.SNAPSHOT)
        await until(lambda: len(first.workers) == 2)
        await until(lambda: first.worker.started)
        assert first.worker.stats.replica.snapshot_position > 0
        assert first.worker.machine.topics.by_name("t") is not None
        if count > 1:
            assert cluster.entries[0].position > older
        await until(lambda: first.worker.machine.position == first.machine.position)
        assert first.worker.machine.digest() == first.machine.digest()


async def test_an_idle_worker_writes_nothing_into_the_log() -> None:
    jobs = dict.fromkeys(JobKind, nothing)
    async with asked(JobKind.MERGE, jobs) as agent:
        await until(lambda: bool(agent.workers))
        await asyncio.sleep(5)
        count = len(agent.commands(ReportJob, RequestJob))
        await asyncio.sleep(900)
        assert len(agent.commands(ReportJob, RequestJob)) == count
        assert agent.host.stats.job(JobKind.MERGE).runs > 12
