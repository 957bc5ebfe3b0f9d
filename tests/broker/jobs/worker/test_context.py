"""What a job has in its hands."""

import asyncio
from collections.abc import Callable

import pytest

from broker.config.topic_rules import TopicRules
from broker.jobs.worker import context as module
from broker.jobs.worker.context import JobContext, JobStoppedError, ObjectNumbers
from coordinator.commands.entries import Entry, Open
from coordinator.commands.job_commands import JobKind, ReportJob
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.machine.machine import Machine
from protocol.types import INCARNATION_NONE, Incarnation, Position
from storage.formats.spans import ObjectId, ObjectKind
from storage.stores.memory import MemoryStore
from storage.stores.object_store import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)
from storage.stores.retry_policy import RetryPolicy
from tests.kit.faults import FaultyStore, refused, slow
from tests.kit.sockets import settings_of

pytestmark = pytest.mark.real_loop

ME = Incarnation(1)
LARGE = bytes(1000)


def machine_of_me() -> Machine:
    machine = Machine()
    machine.apply(
        Position(ME), Entry(INCARNATION_NONE, 0, 5, (Open(1, "one", -1, "", (), "0", 1),))
    )
    return machine


def context_of(store: MemoryStore | None = None, **more: object) -> JobContext:
    settings = settings_of()

    async def propose(_command: object) -> object:
        raise JobStoppedError

    return JobContext(
        JobKind.MERGE,
        machine=machine_of_me(),
        log=MemoryLog(MemoryLogCluster()),
        store=store or MemoryStore(),
        settings=settings,
        rules=TopicRules(settings),
        incarnation=ME,
        propose=propose,
        on_applied=lambda _callback: lambda: None,
        **more,
    )


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", RetryPolicy(longest_s=0.001))


async def test_a_store_that_is_away_is_asked_again_until_it_answers() -> None:
    store = FaultyStore(MemoryStore())
    context = context_of(store)
    store.before["put_new"] = refused(StoreUnavailableError("away"), 1)
    store.before["get"] = refused(StoreUnavailableError("away"), 5)
    store.after["put_new"] = refused(TimeoutError(), 1)
    await context.put("a", [b"12", b"3"])
    assert bytes(await context.read("a")) == b"123"
    assert (context.stats.bytes_written, context.stats.bytes_read) == (3, 3)


async def test_a_large_object_has_time_on_a_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "RETRY", RetryPolicy(attempt_s_max=0.05, bytes_per_second_min=len(LARGE) / 2)
    )
    store = FaultyStore(MemoryStore())
    store.before["put_new"] = store.before["get_range"] = slow(0.2)
    context = context_of(store)
    async with asyncio.timeout(10):
        await context.put("a", [LARGE])
        assert await context.read("a", 0, len(LARGE)) == LARGE


@pytest.mark.parametrize(
    "error", [ObjectNotFoundError("x"), ObjectExistsError("x"), StoreRefusedError("x")]
)
async def test_a_definite_answer_of_the_store_is_the_jobs(error: Exception) -> None:
    store = FaultyStore(MemoryStore())
    store.before["put_new"] = refused(error, 1)
    with pytest.raises(type(error)):
        await context_of(store).put("a", [b"1"])


async def test_all_bytes_are_paced_before_they_are_moved_if_their_number_is_known() -> None:
    paced: list[int] = []

    async def pace(length: int) -> None:
        paced.append(length)

    context = context_of(pace=pace)
    await context.put("a", [b"12345"])
    assert bytes(await context.read("a", 1, 2)) == b"23"
    await context.read("a")
    assert paced == [5, 2, 5]


def test_numbers_go_up_from_behind_what_is_committed_for_each_kind() -> None:
    machine = machine_of_me()
    row = machine.incarnations.get(ME)
    assert row is not None
    row.segment_last = 4
    numbers = ObjectNumbers(machine, ME)
    assert numbers.next(ObjectKind.SEGMENT) == ObjectId(ME, 5, ObjectKind.SEGMENT)
    assert numbers.next(ObjectKind.SEGMENT) == ObjectId(ME, 6, ObjectKind.SEGMENT)
    assert numbers.next(ObjectKind.INDEX) == ObjectId(ME, 0, ObjectKind.INDEX)
    row.segment_last = 9
    assert numbers.next(ObjectKind.SEGMENT) == ObjectId(ME, 10, ObjectKind.SEGMENT)


def test_an_incarnation_that_is_over_names_no_objects() -> None:
    with pytest.raises(JobStoppedError):
        ObjectNumbers(Machine(), ME).next(ObjectKind.SEGMENT)


def reported(act: Callable[[JobContext], None], **more: object) -> tuple[list[ReportJob], object]:
    """What was sent while `act` went on, and what is said at the end."""

    async def work() -> tuple[list[ReportJob], object]:
        sent: list[ReportJob] = []
        context = context_of(send_report=sent.append, **more)
        act(context)
        return sent, context.last_report(failure=None)

    return asyncio.run(work())


def test_a_round_that_had_nothing_to_do_says_nothing() -> None:
    assert reported(lambda context: context.report(0, 0, "looked")) == ([], None)


def test_a_round_that_was_asked_for_says_how_it_ended_though_there_was_nothing_to_do() -> None:
    sent, last = reported(lambda context: context.report(3, 3, "looked"), requested=True)
    assert sent == []
    assert last == ReportJob(JobKind.MERGE, 3, 3, running=False, note="looked")


def test_progress_is_told_at_most_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(context: JobContext) -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        for second in range(20):
            monkeypatch.setattr(loop, "time", lambda second=second: start_s + second)
            for _ in range(10):
                context.report(second, 20, "x" * 1000)

    sent, last = reported(act)
    assert [report.done for report in sent] == [5, 10, 15]
    assert {len(report.note) for report in sent} == {module.NOTE_MAX}
    assert last is not None


async def test_a_proposal_counts_as_something_done() -> None:
    context = context_of()
    with pytest.raises(JobStoppedError):
        await context.propose(ReportJob(JobKind.MERGE, 0, 0, running=True, note=""))
    assert context.stats.commands == 1
    last = context.last_report(failure="the store is away")
    assert last is not None
    assert last.note == "failed: the store is away"
