"""What a run of bounded topics says of objects that go."""

import random

from coordinator.commands.entries import Entry
from coordinator.commands.job_commands import DoomObjects, ObjectsDoomed
from coordinator.log_client import Applied
from coordinator.machine.machine import Machine
from coordinator.tables.objects import Unreferenced
from protocol.types import Incarnation, Position
from storage.formats.spans import ObjectId
from tests.kit.loop import current
from tests.sim.bounded_world import BoundedWorld


def waiting(since: int, since_ms: int) -> list[Unreferenced]:
    return [Unreferenced(ObjectId(Incarnation(1), 2), Position(since), since_ms)]


async def test_objects_that_have_waited_and_that_no_pin_reaches_may_go() -> None:
    world = BoundedWorld(current(), random.Random(1))
    world._look_at_waited(9000, 1000, None, waiting(50, 8000))
    world._look_at_waited(9000, 1000, Position(50), waiting(50, 8000))
    assert world.violations == []


async def test_an_object_that_goes_too_soon_or_in_spite_of_a_pin_is_seen() -> None:
    world = BoundedWorld(current(), random.Random(1))
    world._look_at_waited(9000, 1000, None, waiting(50, 8001))
    world._look_at_waited(9000, 1000, Position(49), waiting(50, 8000))
    key = "chunks/0000000000000001/00000002"
    assert world.violations == [
        f"{key} went after 999 ms, not after 1000 (P14)",
        f"{key} went, and a pin at 0x31 reaches it (P14)",
    ]


async def test_an_object_that_two_commands_of_an_entry_name_goes_by_the_first() -> None:
    world, machine = BoundedWorld(current(), random.Random(1)), Machine()
    machine.time_ms = 9000
    (one,) = waiting(50, 8000)
    commands = (DoomObjects(1000, (one.object_id,)), DoomObjects(20_000, (one.object_id,)))
    gone = ObjectsDoomed((one.object_id,))
    for first, second in (commands, commands[::-1]):
        world._waiting = {one.object_id: one}
        entry = Entry(Incarnation(1), 1, 0, (first, second))
        world._look_at_doomed(machine, Applied(Position(60), Incarnation(1), entry, (gone, gone)))
    key = "chunks/0000000000000001/00000002"
    assert world.violations == [f"{key} went after 1000 ms, not after 20000 (P14)"]
