"""The job that deletes objects: listed in the log first, then in the store, then forgotten.

What a predecessor listed and did not come to delete goes first. Orphans, which no command ever
named, are found by listing the bucket, seldom: in the first round of a worker, then hourly, or
when somebody asks. A listing that is cut off begins again; what was found on the way is gone.
Checkpoints of agents that have ended go with them. Snapshots go first, and what they alone point at
after them; old archives of the log go in every round.

What the store refuses to delete is forgotten as well, so that it never fills the list of what
waits. This worker tries it again as often as it lists the bucket; a later one meets it as an orphan.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from broker.jobs.kinds import archive_merging, collection_plan, snapshot_pins
from broker.jobs.kinds.archive_merging import MERGE_ROUNDS, Archived
from broker.jobs.kinds.collection_plan import OBJECTS_PER_COMMAND_MAX
from broker.jobs.kinds.unnamed_objects import checkpoints, pages
from broker.jobs.worker.context import JobContext
from coordinator.commands.job_commands import DoomObjects, ForgetObjects, ObjectsDoomed
from protocol.types import ERA
from storage.formats import era_marker
from storage.formats.spans import ObjectId

LISTING_ROUNDS: Final = 60


async def run(context: JobContext) -> None:
    machine = context.machine
    everything = context.requested or context.stats.runs % LISTING_ROUNDS == 1
    if everything:
        await context.try_refused_again()
    await _delete(context, list(machine.objects.doomed()))
    await snapshot_pins.renew(context)
    await _snapshots(context)
    grace_ms = context.settings.kafka.log_segment_delete_delay_ms
    await _doom(context, list(collection_plan.collectable(machine, grace_ms=grace_ms)))
    if everything:
        begun_ms = await _checkpoints(context)
        for prefix in collection_plan.PREFIXES:
            async for page in pages(context.store, prefix):
                orphans = collection_plan.orphans(machine, page, begun_ms=begun_ms)
                await _doom(context, list(orphans))
    await _archives(context, merge=context.requested or context.stats.runs % MERGE_ROUNDS == 0)
    if context.stats.refused:
        note = f"the object store refused to delete {context.stats.refused} (see the agent's log)"
        context.report(0, 0, note)


async def _snapshots(context: JobContext) -> None:
    """Delete those that nobody starts from, and nothing keeps."""
    found = [
        info async for page in pages(context.store, collection_plan.SNAPSHOTS) for info in page
    ]
    await context.delete_leftovers(collection_plan.old_snapshots(context.machine, found))
    if given_up := [*collection_plan.given_up_snapshots(context.machine, found)]:
        own = era_marker.era_key(context.machine.eras.leader_epoch + ERA)
        if not await context.store.list_after(f"{era_marker.FOLDER}/", own):
            await context.delete_leftovers(given_up)


async def _checkpoints(context: JobContext) -> int | None:
    """Delete old checkpoints; when the oldest live agent began, if that is known."""
    found = await checkpoints(context.store)
    old = collection_plan.old_checkpoints(context.machine, found)
    await context.delete_leftovers([checkpoint.key for checkpoint in old])
    return collection_plan.begun_ms(context.machine, found)


async def _archives(context: JobContext, *, merge: bool) -> None:
    """Delete old archives of the log, and make large ones of small ones."""
    published = context.machine.snapshots.published
    small: list[Archived] = []
    async for page in pages(context.store, collection_plan.ARCHIVES):
        old = frozenset(collection_plan.old_archives(context.machine, page))
        await context.delete_leftovers(old)
        needed = [info for info in page if info.key not in old]
        until = published[0].position if published else None
        small += archive_merging.small_archives(needed, until=until)
    for run in list(archive_merging.runs(small)) if merge else ():
        await archive_merging.merge(context, run)


async def _doom(context: JobContext, object_ids: Iterable[ObjectId]) -> None:
    """Delete these, as far as the log allows it."""
    grace_ms = context.settings.kafka.log_segment_delete_delay_ms
    every = list(object_ids)
    for done, some in enumerate(_slices(every)):
        context.report(done * OBJECTS_PER_COMMAND_MAX, len(every), "objects")
        outcome = await context.propose(DoomObjects(grace_ms, some))
        if isinstance(outcome, ObjectsDoomed):
            await _delete(context, outcome.objects)
    if every:
        context.report(len(every), len(every), "objects")


async def _delete(context: JobContext, object_ids: Sequence[ObjectId]) -> None:
    """Delete what is doomed, as far as the store does it, and say so."""
    for some in _slices(object_ids):
        await context.delete_objects([object_id.key for object_id in some])
        await context.propose(ForgetObjects(some))


def _slices(object_ids: Sequence[ObjectId]) -> list[tuple[ObjectId, ...]]:
    return [
        tuple(object_ids[first : first + OBJECTS_PER_COMMAND_MAX])
        for first in range(0, len(object_ids), OBJECTS_PER_COMMAND_MAX)
    ]
