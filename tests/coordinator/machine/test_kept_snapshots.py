"""What a kept snapshot points at is doomed by nobody while it is kept, and can be afterwards."""

import pytest

from coordinator.commands.entries import Entry, Pinned, Tick
from coordinator.commands.job_commands import DoomObjects, ObjectsDoomed, Trim, TrimLogs
from coordinator.machine.machine import Machine
from coordinator.snapshot.keeping import HOUR_MS, kept, next_pin, snapshot_pins
from coordinator.snapshot.snapshot import dump, restore
from protocol.types import Position
from storage.formats.spans import ObjectId
from tests.coordinator.machine.job_story import JobStory


class KeptStory(JobStory):
    """Snapshots are kept for two hours."""

    def __init__(self, *records: int) -> None:
        super().__init__(*records)
        self.clock_ms = 1_000_000
        self.snapshots: dict[Position, frozenset[ObjectId]] = {}
        """What each pointed at."""

    def pass_time(self, ms: int) -> None:
        self.clock_ms += ms
        self.do(self.agent, Tick(), clock_ms=self.clock_ms)

    def backup(self) -> None:
        pin = next_pin(self.machine.pins, self.machine.time_ms, retention_ms=2 * HOUR_MS)
        if pin is not None:
            assert isinstance(self.do(self.agent, pin, clock_ms=self.clock_ms), Pinned)
        self.snapshot()
        position = self.machine.snapshots.published[0].position
        self.snapshots[position] = frozenset(each for each, _ in self.machine.objects.referenced())

    def trim(self, offset: int) -> None:
        trims = TrimLogs((Trim(self.topic_id, 0, offset),))
        self.do(self.agent, trims, clock_ms=self.clock_ms)

    def doomable(self) -> set[ObjectId]:
        """All that apply lets go now: by a copy, so that nothing becomes of it."""
        copied = Machine()
        restore(copied, dump(self.machine))
        every = tuple(each.object_id for each in self.machine.objects.unreferenced())
        command = DoomObjects(0, every)
        entry = Entry(self.agent, self._n[self.agent] + 1, self.clock_ms, (command,))
        (outcome,) = copied.apply(Position(copied.position + 1), entry)
        assert isinstance(outcome, ObjectsDoomed)
        return set(outcome.objects)

    def kept_objects(self) -> set[ObjectId]:
        pins = snapshot_pins(self.machine.pins, self.machine.time_ms)
        return {each for one in kept(self.snapshots, pins) for each in self.snapshots[one]}


@pytest.mark.promise("P14")
def test_what_kept_snapshots_point_at_stays_until_the_last_of_them_goes():
    story = KeptStory(*[10] * 6)
    for offset in (10, 20, 30, 40, 50, 60):
        story.backup()
        story.pass_time(30 * 60_000)
        story.trim(offset)
        assert not story.doomable() & story.kept_objects()
    for _ in range(2):
        story.backup()
    gone = [len(story.doomable())]
    while story.kept_objects():
        story.pass_time(10 * 60_000)
        assert not story.doomable() & story.kept_objects()
        gone.append(len(story.doomable()))
    assert 0 < gone[0] < 6
    assert gone == sorted(gone)
    assert gone[-1] == 6


def test_what_was_let_go_of_between_the_pin_and_its_snapshot_is_kept_too():
    """It is kept for nobody, which is the safe side."""
    story = KeptStory(10, 10)
    pin = next_pin(story.machine.pins, story.machine.time_ms, retention_ms=2 * HOUR_MS)
    assert pin is not None
    story.do(story.agent, pin, clock_ms=story.clock_ms)
    story.trim(10)
    for _ in range(3):
        story.snapshot()
    assert story.doomable() == set()


def test_without_a_pin_two_newer_snapshots_let_go():
    story = KeptStory(10, 10)
    story.snapshot()
    story.trim(10)
    for _ in range(2):
        story.snapshot()
    assert story.doomable() == {ObjectId(story.agent, 0)}
