"""Jobs that are overtaken by others and by clients at every await: nothing is lost by it."""

import asyncio

import pytest

from broker.jobs.kinds import compacting, merge_plan, merging
from broker.jobs.worker.context import JobContext
from coordinator.commands.entries import Command, DeleteTopic, Outcome
from coordinator.commands.group_commands import SetTopicConfigs
from coordinator.commands.job_commands import JobKind
from tests.broker.jobs.world import SETTINGS, Steps, World, opened

COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.0"}
STEPS_MAX = 60
CHANGE_AT = 220


def _merged_at(step: int) -> tuple[bool, list[tuple[bytes, bytes]]]:
    """Compaction with a whole merge at one of its awaits: was there such an await, and what a
    reader of committed records finds after it."""
    world = World(SETTINGS)
    place = world.place("compacted", **COMPACTED)
    other = world.place("other")
    world.produce((place, [(b"key", b"committed")]))
    producer = world.producer("aborts")
    # The chunk has a batch of another topic, so that it stays when these rows have left it.
    batches = sorted([(place, [(b"key", b"aborted")]), (other, [(b"a", b"b")])])
    world.produce(*batches, producer=producer)
    world.end(producer, commit=False)
    for number in range(6):
        world.produce((place, [(b"key%d" % number, b"value")]))
    world.pass_time(1_000_000)

    async def merge() -> None:
        await world.job(JobKind.MERGE, requested=False)

    steps = Steps(events={step: merge})
    world.round(JobKind.COMPACT, steps)
    read = world.records(place)
    world.close()
    return step <= steps.count, [(record.key, record.value) for record in read]


def test_keys_of_aborted_batches_are_not_learnt_though_a_merge_makes_the_partition_forget_them() -> (
    None
):
    for step in range(1, STEPS_MAX):
        was_there, read = _merged_at(step)
        assert (b"key", b"committed") in read, f"lost by a merge at await {step}"
        if not was_there:
            assert step > 10, "compaction hardly began"
            return
    raise AssertionError("compaction has more awaits than were tried")


@pytest.mark.parametrize("deleted", ["records", "topic"])
@pytest.mark.parametrize("step", [2, 3, 120])
def test_a_compaction_ends_when_all_of_its_partition_is_deleted(
    world: World, deleted: str, step: int
) -> None:
    configs = COMPACTED | {"cleanup_policy": "compact,delete"}
    place = world.place("compacted", **configs)
    for number in range(150):
        world.produce((place, [(b"key%d" % (number % 50), bytes(20))]))
    world.pass_time(1_000_000)

    async def delete() -> None:
        if deleted == "records":
            world.trim(place, -1)
            return
        world.do(DeleteTopic(place[0]))
        world.purge()

    async def compact() -> None:
        async with asyncio.timeout(20):
            await world.job(JobKind.COMPACT, steps=Steps(events={step: delete}))

    world.runner.run(compact())


def test_records_that_a_new_setting_keeps_are_not_deleted_by_the_old_one(world: World) -> None:
    for step in range(1, 4):
        full = world.place(f"full{step}", retention_ms="10000")
        kept = world.place(f"kept{step}", retention_ms="10000")
        for _ in range(990):
            world.produce((full, [(b"k", b"v")]))
        for _ in range(50):
            world.produce((kept, [(b"k", b"v")]))
        world.pass_time(100_000)
        log_start: list[int] = []

        async def keep(kept=kept, log_start=log_start) -> None:
            log_start.append(world.partition(kept).log_start)
            world.do(SetTopicConfigs(kept[0], (("retention.ms", "86400000"),)))

        world.round(JobKind.RETENTION, Steps(events={step: keep}))
        assert [world.partition(kept).log_start] == log_start, f"deleted after await {step}"


def test_a_topic_that_is_not_compacted_any_more_loses_nothing_to_a_compaction_under_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "WINDOW_BYTES_MAX", 2_000)
    place = world.place("compacted", **COMPACTED)
    for number in range(200):
        world.produce((place, [(b"key%d" % (number % 5), bytes(50))]))
    world.pass_time(1_000_000)
    steps = Steps()
    count: list[int] = []

    async def change() -> None:
        world.do(SetTopicConfigs(place[0], (("cleanup.policy", "delete"),)))
        count.append(len(await world.read(world.partition(place), committed=True)))

    # In the middle of what is rewritten: behind all that is learnt, and before the end.
    steps.events[CHANGE_AT] = change
    world.round(JobKind.COMPACT, steps)
    assert steps.count > CHANGE_AT
    read = world.records(place)
    assert [len(read)] == count


def set_defaults(world: World, **given: str) -> None:
    """Of all topics."""
    world.set_kafka(given={name.replace("_", "."): text for name, text in given.items()})


class _Defaults:
    """Changes a default of all topics at one await of a job, and notes whether that proposes anything afterwards; what it
    had proposed before is on its way, and cannot be called back."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, **given: str) -> None:
        self.changed = False
        self.proposed_after: list[Command] = []
        self._world, self._given = world, given
        propose = JobContext.propose

        async def noted(context: JobContext, command: Command) -> Outcome:
            if self.changed:
                self.proposed_after.append(command)
            return await propose(context, command)

        monkeypatch.setattr(JobContext, "propose", noted)

    async def change(self) -> None:
        set_defaults(self._world, **self._given)
        self.changed = True


@pytest.mark.parametrize("step", range(1, 5))
def test_records_that_a_new_default_keeps_are_not_deleted_by_the_old_one(
    step: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another partition is read for long, it may change behind the look at the first one."""
    set_defaults(world, log_retention_ms="10000")
    places = [world.place("a"), world.place("b")]
    for place in places:
        world.produce((place, [(b"k", b"v")]))
    world.pass_time(100_000)
    defaults = _Defaults(world, monkeypatch, log_retention_ms="86400000")
    world.round(JobKind.RETENTION, Steps(events={step: defaults.change}))
    assert defaults.changed
    assert defaults.proposed_after == []
    assert [world.row(place).log_start for place in places] == [0, 0]


def test_a_topic_that_by_a_new_default_is_not_compacted_loses_nothing_to_a_compaction_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = 0
    while _is_changed_at(steps + 1, monkeypatch):
        steps += 1
    assert 10 < steps < STEPS_MAX


def _is_changed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the compaction had such an await; it proposes nothing behind it."""
    with opened() as world, monkeypatch.context() as patched:
        set_defaults(world, log_cleanup_policy="compact")
        place = world.place("compacted", min_cleanable_dirty_ratio="0.0")
        for number in range(6):
            world.produce((place, [(b"key%d" % (number % 2), b"value")]))
        world.pass_time(1_000_000)
        defaults = _Defaults(world, patched, log_cleanup_policy="delete")
        world.round(JobKind.COMPACT, Steps(events={step: defaults.change}))
        assert defaults.proposed_after == []
        return defaults.changed


def test_a_merge_goes_on_when_a_partition_is_emptied_while_it_looks_for_waste(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = world.place("emptied", retention_ms="-1")
    for _ in range(20):
        world.produce((place, [(b"k", b"v")]))
    monkeypatch.setattr(merging, "ROWS_PER_TURN_MAX", 5)
    looked_at = merge_plan.add_used

    def empty(*arguments: object) -> None:
        looked_at(*arguments)
        world.trim(place, -1)

    monkeypatch.setattr(merge_plan, "add_used", empty)
    assert world.round(JobKind.MERGE)
    assert world.partition(place).row_count == 0
