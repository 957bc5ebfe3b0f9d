"""A replay decodes a topic's dead letters again, once a schema or a setting was mended.

Letters that are good by now become rows of the table in one commit, which changes no offset and names
itself in the state; then they leave the dead-letter table (`dead_letters.reconcile`), in a commit of its
own. So after a crash between the two, a rollback of either table, or an exporter at the same time, each
record is in exactly one of them, and a second replay finds what the first one has left.

Decoding takes the time that it takes, and exports go on meanwhile; the commit wants the letters to be
there still. Tables of mode append alone: in mode upsert an old letter would stand over newer records
of its key.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pyiceberg.manifest import DataFile

from iceberg_export.dead_letters import dead_letter_table
from iceberg_export.dead_letters.dead_letter_table import REPLAYS_MAX, dead_offsets
from iceberg_export.errors import FencedError, OvertakenError, SettingsError, StateError
from iceberg_export.files.read import group_files, scan_files
from iceberg_export.files.rewrite import deleted_unless_committed
from iceberg_export.files.target import target_of
from iceberg_export.plan.agent_client import Topic
from iceberg_export.runs.job import Job, TopicExport, begin_export, evolved_table, open_tables
from iceberg_export.steps import Step
from iceberg_export.table import commit
from iceberg_export.table.catalog import existing_table
from iceberg_export.table.redactions import (
    Places,
    find_redactions,
    redacted_places,
    without_places,
)
from iceberg_export.table.run_marks import RunMark
from iceberg_export.table.state import State
from iceberg_export.tasks.replay_letters import (
    LettersSplit,
    ReplayResult,
    ReplaySetup,
    replay_letters,
)
from iceberg_export.tasks.run_splits import run_splits


class ReplayReport(NamedTuple):
    """What a replay of one topic did."""

    table: str
    rows: int
    """Letters that are rows now."""
    left: Mapping[str, int]
    """Number of those that stay, by reason."""
    first_reason: str = ""
    """Why the first of those that were tried stays."""


def replay(job: Job, topic: Topic) -> ReplayReport:
    """Replays the topic's dead letters. Raises OvertakenError when they were changed meanwhile, or
    FencedError when exports were always faster (the same again goes on), ExportError."""
    export = begin_export(job, topic)
    if export.upsert:
        raise SettingsError(
            f"table {export.name} has the newest record of each key (mode upsert), and an old one would "
            "stand over it; write the records that count to the topic again"
        )
    state, dead = open_tables(job, topic, export.types)
    if dead is None:
        return ReplayReport(export.name, 0, {})
    table = existing_table(job.catalog, export.identifier)
    with RunMark(table, job.run_id):
        results = _decode(export, state)
        places = _joined(results)
        files = [file for result in results for file in result.files]
        if files:
            with deleted_unless_committed(table, files):
                _commit(export, files, places, state)
            job.hook(Step.COMMITTED)
            open_tables(job._replace(run_id=f"{job.run_id}.done"), topic, export.types)
    left: Counter[str] = Counter()
    for result in results:
        left.update(result.left)
    reasons = [result.first_reason for result in results if result.first_reason]
    rows = sum(map(len, places.values()))
    return ReplayReport(export.name, rows, left, reasons[0] if reasons else "")


def _decode(export: TopicExport, state: State) -> list[ReplayResult]:
    """Returns what tasks made of all letters; nothing is committed."""
    job = export.job
    letters = dead_letter_table.load(job.catalog, export.identifier)
    groups = group_files(scan_files(letters), job.settings.number("split.bytes.max"))
    if not groups:
        return []
    table = existing_table(job.catalog, export.identifier)
    redacted = redacted_places(find_redactions(table, export.topic.topic_id))
    bytes_max = job.settings.number("file.bytes.max")

    def setup() -> ReplaySetup:
        nonlocal table
        table, typing = evolved_table(export, table, has_data=True)
        return ReplaySetup(
            job.run_id,
            target_of(letters),
            target_of(table, bytes_max),
            typing,
            state.offsets,
            redacted,
        )

    return run_splits(
        job.runner(),
        [LettersSplit(number, tuple(files)) for number, files in enumerate(groups)],
        task=replay_letters,
        setup=setup,
        fetch_schemas=export.fetch_schemas,
        title=f"{export.topic.name}: dead letters in {sum(map(len, groups))} files",
    )


def _joined(results: Sequence[ReplayResult]) -> Places:
    """Returns the places of all letters that are good. Raises StateError when one is there twice."""
    empty = np.empty(0, np.int64)
    partitions = {partition for result in results for partition in result.places}
    found = {
        partition: np.concatenate([result.places.get(partition, empty) for result in results])
        for partition in partitions
    }
    written = sum(file.record_count for result in results for file in result.files)
    if written != sum(len(np.unique(offsets)) for offsets in found.values()):
        raise StateError(
            "a record is among the dead letters twice: somebody has added it there; delete the doubles"
        )
    return found


def _commit(
    export: TopicExport, files: Sequence[DataFile], places: Places, decoded_at: State
) -> None:
    """Adds the files to the table, whatever exports have added since."""
    job = export.job
    fenced: FencedError | None = None
    for number, _ in enumerate(job.pause.attempts()):
        attempt = job._replace(run_id=f"{job.run_id}.{number}")
        state, dead = open_tables(attempt, export.topic, export.types)
        _check_letters(export, places, decoded_at, state)
        assert dead is not None
        run_id = f"{attempt.run_id}-replay"
        new = state._replace(
            seq=state.seq + 1,
            run_id=run_id,
            dead_letters="",
            dead_letters_mark="",
            replays=(*state.replays, run_id)[-REPLAYS_MAX:],
        )
        try:
            commit.commit(
                job.catalog,
                export.identifier,
                files,
                expected=state,
                new=new,
                pause=job.pause,
                hook=job.hook,
            )
        except FencedError as error:
            if not error.files_unused:
                raise
            fenced = error
        else:
            return
    assert fenced is not None
    raise fenced


def _check_letters(export: TopicExport, places: Places, decoded_at: State, state: State) -> None:
    """Raises OvertakenError unless the letters are all there, below the table's offsets."""
    letters = dead_letter_table.load(export.job.catalog, export.identifier)
    gone = without_places(places, dead_offsets(letters, 0))
    moved_back = any(state.offsets.get(p, 0) < end for p, end in decoded_at.offsets.items())
    if gone or moved_back:
        raise OvertakenError(
            f"the dead letters of table {export.name} were changed by others while they were decoded; "
            "none of them was moved, run again"
        )
