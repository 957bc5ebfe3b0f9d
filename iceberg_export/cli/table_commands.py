"""`frazil export init | reset-offsets | backfill | redact | replay | maintain`: commands that change tables by hand."""

import argparse
import getpass
from collections.abc import Callable, Mapping
from typing import Final

from iceberg_export.cli.reset_preview import preview_reset
from iceberg_export.cli.sessions import job_and_topic, known_tables, open_session
from iceberg_export.dead_letters.dead_letter_table import dead_letter_identifier
from iceberg_export.errors import AgentError, ExportError, SettingsError, SparkError
from iceberg_export.plan.agent_client import Topic
from iceberg_export.runs.backfill import backfill
from iceberg_export.runs.job import Job, load_topic_types, open_tables, table_identifier
from iceberg_export.runs.session import Missing, Session, matching_topics
from iceberg_export.runs.status import offsets_of_all, table_source
from iceberg_export.table.catalog import Identifier, find_table, keeps_branches
from iceberg_export.units import show_duration
from iceberg_export.upkeep.compact import CLOSED_MS, Limits, compact
from iceberg_export.upkeep.maintain import ORPHANS_UNKNOWN, delete_orphans, expire, store_now_ms
from iceberg_export.upkeep.redact import plan_redaction, redact
from iceberg_export.upkeep.replay import replay
from iceberg_export.upkeep.reset import ResetReport, reset_offsets
from iceberg_export.upkeep.target import End, Target, find_offsets, parse_target, parse_time
from protocol.fault_codes import told

OLDER_THAN_MS_MIN = 3_600_000


def _target(
    arguments: argparse.Namespace, name: str = "place", default: End = End.EARLIEST
) -> Target:
    """What `_add_place` was given, or the default. Raises SettingsError."""
    place, time = getattr(arguments, name), getattr(arguments, f"{name}_time")
    if time is not None:
        return parse_time(time)
    return default if place is None else parse_target(place)


def _init(arguments: argparse.Namespace) -> int:
    target = _target(arguments)
    with open_session(arguments, Missing.IS_MADE) as session:
        job, topic = job_and_topic(session, arguments)
        name = ".".join(table_identifier(job, topic))
        state, _ = open_tables(job, topic, load_topic_types(job, topic))
        begins = ""
        if target is not End.EARLIEST:
            if state.offsets:
                raise SettingsError(
                    f"the export into table {name} has begun; reset-offsets says where it goes on"
                )
            report = _move(session, job, topic, find_offsets(job, topic, target))
            begins = f", its export begins at {_pairs(report.offsets)}"
        session.progress.clear()
        print(f"{topic.name}: table {name} is ready{begins}")
    return 0


def _move(session: Session, job: Job, topic: Topic, to: Mapping[int, int] | None) -> ResetReport:
    report = reset_offsets(job, topic, to)
    try:
        offsets = offsets_of_all(job, topic, report.offsets)
        source = table_source(job, topic, offsets)
        session.client.report_progress(topic, offsets, source)
    except ExportError as error:
        session.progress.say(
            f"the agents did not hear of it, the next run tells them: {told(error)}"
        )
    return report


def _pairs(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def _reset(arguments: argparse.Namespace) -> int:
    target = _target(arguments)
    with open_session(arguments) as session:
        job, topic = job_and_topic(session, arguments)
        to = find_offsets(job, topic, target)
        if not arguments.yes:
            raise SettingsError(f"{preview_reset(job, topic, to)}; say --yes to do it")
        report = _move(session, job, topic, to)
        session.progress.clear()
        print(
            f"{topic.name}: the export goes on at {_pairs(report.offsets)}"
            f"; {report.rows_removed} rows left table {report.table}"
            + (f", {report.skipped} offsets are skipped until a backfill" if report.skipped else "")
        )
    return 0


def _redact(arguments: argparse.Namespace) -> int:
    with open_session(arguments) as session:
        job, topic = job_and_topic(session, arguments)
        plan = plan_redaction(job, topic, arguments.where)
        if not arguments.yes:
            raise SettingsError(
                f"{plan.row_count} rows would leave table {plan.name} for good; say --yes to do it"
            )
        by = arguments.by or _user()
        reason = arguments.reason or arguments.where or ""
        removed = redact(job, topic, plan, by=by, reason=reason)
        session.progress.clear()
        print(
            f"{topic.name}: {removed} rows left table {plan.name}, redacted by {by}; older snapshots have them "
            "until they expire (frazil export maintain --expire), the log until retention or DeleteRecords"
        )
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    with open_session(arguments) as session:
        job, topic = job_and_topic(session, arguments)
        done = replay(job, topic)
        session.progress.clear()
        left = ", ".join(f"{count} {code}" for code, count in sorted(done.left.items()))
        print(
            f"{topic.name}: {done.rows} dead letters became rows of table {done.table}; "
            + (f"{sum(done.left.values())} stay: {left}" if left else "none is left")
            + (f" ({done.first_reason})" if done.first_reason else "")
        )
    return 0


def _backfill(arguments: argparse.Namespace) -> int:
    first, last = _target(arguments, "first"), _target(arguments, default=End.LATEST)
    with open_session(arguments) as session:
        job, topic = job_and_topic(session, arguments)
        starts, ends = find_offsets(job, topic, first), find_offsets(job, topic, last) or {}
        bounds = {
            number: (0 if starts is None else starts[number], end)
            for number, end in ends.items()
            if starts is None or number in starts
        }
        with session.pinned(job):
            done = backfill(job, topic, bounds)
        session.progress.clear()
        exported = done.exported
        print(
            f"{topic.name}: {done.offsets} skipped offsets filled, {exported.rows} rows into table "
            f"{exported.table}"
            + (f", {exported.dead} into its dead letters" if exported.dead else "")
            + (f" ({exported.first_reason})" if exported.first_reason else "")
            + (f"; {done.gone} are gone from the log" if done.gone else "")
            + (f"; {done.left} others stay skipped" if done.left else "")
        )
    return 0


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError) as error:
        # In containers a user often has a number and no name.
        raise SettingsError("this user has no name; say --by who redacts") from error


def _maintain(arguments: argparse.Namespace) -> int:
    if arguments.older_than < OLDER_THAN_MS_MIN:
        raise SettingsError("--older-than must be at least 1h: younger files may be of a run")
    every = not (arguments.expire or arguments.orphans or arguments.compact)
    steps: list[Callable[[Job, Identifier, int], str]] = []
    if every or arguments.compact:
        limits = Limits(arguments.min_age or CLOSED_MS, arguments.max_bytes)
        steps.append(lambda job, table, now_ms: _compacted(job, table, now_ms, limits))
    if every or arguments.expire:
        steps.append(_expired)
    if every or arguments.orphans:
        older_than_ms = arguments.older_than
        steps.append(lambda job, table, _now: _orphans(job, table, older_than_ms, asked=not every))
    code = 0
    with open_session(arguments) as session:
        topics = session.client.topics()
        for topic in known_tables(matching_topics(topics, arguments.topics)):
            job = session.job(topics.cluster_id)
            try:
                main = table_identifier(job, topic)
                tables = [main, dead_letter_identifier(main)]
                found = [one for one in tables if find_table(job.catalog, one) is not None]
            except (AgentError, SparkError):
                raise
            except ExportError as error:
                session.progress.say(f"{topic.title}: {told(error)}")
                code = max(code, error.exit_code)
                continue
            for table in found:
                code = max(code, _keep(session, job, table, steps))
    return code


def _keep(
    session: Session,
    job: Job,
    table: Identifier,
    steps: list[Callable[[Job, Identifier, int], str]],
) -> int:
    """Runs the steps for one table; its error is printed and does not stop the others."""
    name = ".".join(table)
    try:
        now_ms = store_now_ms(job, table)
        for step in steps:
            outcome = step(job, table, now_ms)
            session.progress.clear()
            print(f"{name}: {outcome}", flush=True)
    except (AgentError, SparkError):
        raise
    except ExportError as error:
        session.progress.say(f"{name}: {told(error)}")
        return error.exit_code
    return 0


def _compacted(job: Job, table: Identifier, now_ms: int, limits: Limits) -> str:
    done = compact(job, table, now_ms, limits)
    if not done.files_before:
        return f"no small files that are {show_duration(limits.age_ms_min)} old"
    left = f"; {done.left} small ones wait for the next time" if done.left else ""
    return (
        f"{done.files_before} files became {done.files_after}, with the same {done.rows} rows{left}"
    )


def _expired(job: Job, table: Identifier, now_ms: int) -> str:
    return f"{expire(job, table, now_ms).snapshots_expired} snapshots expired"


def _orphans(job: Job, table: Identifier, older_than_ms: int, *, asked: bool) -> str:
    """Deletes orphans. Where none can be known, that is an error only if they were `asked` for."""
    if not asked and keeps_branches(job.catalog):
        return ORPHANS_UNKNOWN
    done = delete_orphans(job, table, older_than_ms)
    left = f"; {done.orphans_left} wait for the end of a live run" if done.orphans_left else ""
    return f"{done.files_deleted} orphans deleted ({done.bytes_deleted} bytes){left}"


CALLS: Final = {
    "init": _init,
    "reset-offsets": _reset,
    "redact": _redact,
    "replay": _replay,
    "backfill": _backfill,
    "maintain": _maintain,
}
"""What the parser's commands do."""
