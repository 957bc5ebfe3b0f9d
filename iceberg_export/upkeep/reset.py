"""A reset sets the offsets that a table's export goes on at: back, to export again; ahead, to skip.

Going back removes the rows at and after the new offsets in the same commit that sets the state: so
the table is exact before and after, and no record can come twice. Going ahead records what is
skipped as gaps. The commit demands the head that was loaded, and takes
the next number: an export at work is fenced, whatever it has done.

Works on tables whose state cannot be read, too (rolled back behind their first known export):
then every partition needs an offset. The dead-letter table follows in a commit of its own; when
that one fails, the same command again brings both to the same offsets.
"""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from pyiceberg.table import Table

from iceberg_export.dead_letters import dead_letter_table
from iceberg_export.dead_letters.dead_letter_table import LostDeadLettersError
from iceberg_export.dead_letters.reconcile import reconcile
from iceberg_export.errors import SettingsError, StateError
from iceberg_export.files.read import scan_files
from iceberg_export.files.rewrite import Unwanted, deleted_unless_committed, rows_at_or_after
from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import TopicPlan, check_not_ahead, check_not_lost
from iceberg_export.runs.job import Job, table_identifier
from iceberg_export.table import commit, state, topic_settings
from iceberg_export.table.catalog import Identifier, find_table, state_of, view_of
from iceberg_export.table.settings_kept import keep_setting, mode_setting, route_setting
from iceberg_export.table.state import FOLLOWS_NOTHING, Follows, Gap, State, lost_before
from iceberg_export.upkeep import maintain
from iceberg_export.upkeep.without_rows import without_rows


class ResetReport(NamedTuple):
    table: str
    offsets: Mapping[int, int]
    """Where each partition of the topic goes on."""
    rows_removed: int
    skipped: int
    """Offsets that will never be exported."""


def _identifier(table: Table) -> Identifier:
    namespace, name = table.name()[-2:]
    return namespace, name


class WantedOffsets(NamedTuple):
    """Where a topic's export is to go on, checked against the log."""

    identifier: Identifier
    table: Table
    plan: TopicPlan
    offsets: dict[int, int]

    @property
    def name(self) -> str:
        return ".".join(self.identifier)

    def read_state(self) -> State | None:
        """Returns the table's state, None when there is no readable one.

        Raises AheadError where rows would stay that the log does not have: nothing would be known
        of them any more.
        """
        state = readable_state(self.table)
        known = state.offsets if state else {}
        check_not_ahead(self.plan, {**known, **self.offsets})
        if state is not None:
            stays = {p: min(offset, self.offsets.get(p, offset)) for p, offset in known.items()}
            check_not_lost(self.plan, stays, state.position)
        return state


def check_reset(job: Job, topic: Topic, to: Mapping[int, int] | None) -> WantedOffsets:
    """Returns the offsets that the export is to go on at; `to` None: each log's start.

    Raises ExportError.
    """
    identifier = table_identifier(job, topic)
    table = find_table(job.catalog, identifier)
    if table is None:
        raise StateError(
            f"topic {topic.name} has no table {'.'.join(identifier)} yet: there is nothing to reset"
        )
    plan = job.client.plan(topic, {}, bytes_enough=0)
    bounds = {p: (part.log_start, part.stable) for p, part in plan.partitions.items()}
    return WantedOffsets(identifier, table, plan, check_offsets(to, bounds))


def reset_offsets(job: Job, topic: Topic, to: Mapping[int, int] | None) -> ResetReport:
    """Lets the topic's export go on at `to`; None: at each log's start. Raises ExportError."""
    wanted = check_reset(job, topic, to)
    dead_identifier = dead_letter_table.dead_letter_identifier(wanted.identifier)
    dead = find_table(job.catalog, dead_identifier)
    if dead is not None:
        # Where all is exported again nobody misses dead letters that are lost.
        with contextlib.suppress(*((LostDeadLettersError,) if to is None else ())):
            _reconcile(job, wanted.table, dead)
    before = wanted.read_state()
    target = _ResetTarget(topic, wanted.offsets, wanted.plan.position)
    new, report = _reset_table(job, wanted.table, target)
    if dead is not None:
        # If the state could not be read, the next export reconciles the dead letters again.
        dead = maintain.load(job, dead_identifier)
        known = readable_state(dead)
        replays = dict(known.follows.replays) if known is not None else {}
        if to is None:
            # Letters that a rollback behind a replay would bring back are exported again, too.
            replays = {one: replays.get(one, "") for one in new.replays}
        follows = Follows(
            mark=new.mark if before is not None else "",
            seq_by_line={new.line: new.seq},
            was_reset=True,
            replays=replays,
        )
        _reset_table(job, dead, target._replace(to=dict(report.offsets), follows=follows))
    if to is None:
        _follow_settings(job, topic, wanted)
    return report


def _follow_settings(job: Job, topic: Topic, wanted: WantedOffsets) -> None:
    """Lets the table, whose records are all to come again, have those that the settings say by now, and its
    mode."""
    settings = topic_settings.parse(topic.configs, topic.name)
    table = maintain.load(job, wanted.identifier)
    for kept in (mode_setting(settings.mode), route_setting(settings.route(topic.route))):
        table = keep_setting(
            job.catalog, wanted.identifier, table, kept, has_data=False, pause=job.pause
        )


def _reconcile(job: Job, table: Table, dead: Table) -> None:
    """Commits dead letters that a crash left out, so that the reset sees them."""
    main, dead_state = readable_state(table), readable_state(dead)
    if main is not None and dead_state is not None:
        reconcile(
            job.catalog, table, main, dead_state, run_id=job.run_id, pause=job.pause, hook=job.hook
        )


def check_offsets(
    to: Mapping[int, int] | None, bounds: Mapping[int, tuple[int, int]]
) -> dict[int, int]:
    """Returns the offsets to go on at. Raises SettingsError for what the log does not have."""
    if to is None:
        return {partition: start for partition, (start, _) in bounds.items()}
    for partition, offset in to.items():
        if partition not in bounds:
            raise SettingsError(f"the topic has no partition {partition}")
        start, end = bounds[partition]
        if not start <= offset <= end:
            raise SettingsError(
                f"partition {partition} has offsets {start} to {end}, {offset} is not among them"
            )
    return dict(to)


def readable_state(table: Table) -> State | None:
    """Returns the table's state, None when there is no readable one."""
    try:
        return state_of(table)
    except StateError:
        return None


def _gaps_before(gaps: tuple[Gap, ...], to: Mapping[int, int]) -> tuple[Gap, ...]:
    """Returns the parts of the gaps before the offsets that the export goes back to."""
    cut = [gap._replace(end=min(gap.end, to.get(gap.partition, gap.end))) for gap in gaps]
    return tuple(gap for gap in cut if gap.start < gap.end)


class _ResetTarget(NamedTuple):
    """Where a table's export is to go on."""

    topic: Topic
    to: dict[int, int]
    position: int
    """Of the log that the offsets are of."""
    follows: Follows = FOLLOWS_NOTHING


def _reset_table(job: Job, table: Table, target: _ResetTarget) -> tuple[State, ResetReport]:
    topic, to = target.topic, target.to
    view = view_of(table)
    before = readable_state(table)
    missing = [p for p in range(topic.partition_count) if p not in to]
    if before is None and missing:
        raise SettingsError(
            f"table {view.name} does not say where its export stands; give every partition an "
            f"offset (partition {missing[0]} has none), or say earliest"
        )
    known = before.offsets if before else {}
    gaps = before.gaps if before else ()
    starts = {p: known.get(p, 0) for p in sorted(to)} if before else {}
    skipped = tuple(
        Gap(p, start, to[p], skipped=True) for p, start in starts.items() if start < to[p]
    )
    new = State(
        topic_id=topic.topic_id,
        offsets={**known, **to},
        seq=state.highest_seq(view) + 1,
        run_id=f"{job.run_id}-reset",
        gaps=_gaps_before(gaps, to) + skipped,
        lost=lost_before(before.lost, to) if before else (),
        line=f"{job.run_id}-reset",
        follows=target.follows,
        position=target.position,
        last_records={p: record for p, record in before.last_records.items() if p not in to}
        if before
        else {},
        replays=before.replays if before else (),
    )
    # A partition that only moves ahead has no rows to lose, and its files are left alone.
    delete_from = {p: o for p, o in to.items() if before is None or o < known.get(p, 0)}
    files = (
        scan_files(table, rows_at_or_after(delete_from))
        if delete_from and table.current_snapshot()
        else []
    )
    change, results = without_rows(job, table, files, Unwanted(delete_from), new.run_id)
    with deleted_unless_committed(table, change.added):
        commit.set_state(
            job.catalog,
            _identifier(table),
            change,
            seen=view,
            new=new,
            pause=job.pause,
            hook=job.hook,
        )
    return new, ResetReport(
        view.name,
        new.offsets,
        rows_removed=sum(result.rows_read - result.rows_written for result in results),
        skipped=sum(gap.end - gap.start for gap in skipped),
    )
