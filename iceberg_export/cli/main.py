"""`frazil export run | plan | status | verify …`: arguments to calls, errors to one sentence and
a code.

The composition root of this package: clock, streams and signals are named here. Commands that
change tables by hand are in `table_commands`.
Exit codes are `parser.EXIT_CODES`; 130 when it was interrupted.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from iceberg_export.cli import table_commands
from iceberg_export.cli.parser import parse
from iceberg_export.cli.preview import preview_topic, render_preview, render_sample
from iceberg_export.cli.sessions import job_and_tables, job_and_topic, known_tables, open_session
from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.errors import ExportError, StateError
from iceberg_export.plan.agent_client import Topic
from iceberg_export.runs import failures, metrics
from iceberg_export.runs.job import Job, table_identifier
from iceberg_export.runs.loop import DEAD_LETTERS, Clock, Runner, StopRequest
from iceberg_export.runs.session import Missing, Session, matching_topics
from iceberg_export.runs.status import render, render_json, topic_status
from iceberg_export.runs.type_sample import sample_types
from iceberg_export.table.catalog import find_table
from iceberg_export.table.catalog_view import create_latest_view
from iceberg_export.table.latest_view import create_view_statement
from iceberg_export.table.state import told_lost
from iceberg_export.tasks import spark
from iceberg_export.verify.proof import Verdict, verify_topic
from iceberg_export.verify.upsert import is_upsert, verify_upsert
from protocol.fault_codes import told

INTERRUPTED = 130
REDACTIONS_SHOWN_MAX = 5


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _run(arguments: argparse.Namespace) -> int:
    stop = StopRequest()
    with open_session(arguments, Missing.IS_MADE) as session:
        runner = Runner(
            session,
            Clock(time.perf_counter, _wall_ms, time.sleep),
            stop,
            sys.stdout,
            arguments.topics,
            arguments.max_bytes_per_run,
            may_begin_anew=arguments.new_warehouse,
        )
        end_metrics = None
        if arguments.metrics_port is not None:
            port, end_metrics = metrics.serve(runner.numbers, arguments.metrics_port)
            session.progress.say(f"metrics on port {port}")
        before = signal.signal(signal.SIGTERM, stop.ask)
        try:
            return runner.once() if arguments.once else runner.forever(arguments.interval)
        finally:
            signal.signal(signal.SIGTERM, before)
            if end_metrics is not None:
                end_metrics()


def _status(arguments: argparse.Namespace) -> int:
    with open_session(arguments) as session:
        topics = session.client.topics()
        session.check_warehouse(topics)
        job = session.job(topics.cluster_id)
        wanted = known_tables(matching_topics(topics, arguments.topics))
        failed = failures.load(session.settings.data)
        statuses = []
        for count, topic in enumerate(wanted):
            session.progress.bar("asking about topics", count, len(wanted), topic.title)
            status = topic_status(job, topic, LetterCounts())
            statuses.append(status._replace(failure=failed.get(topic.title)))
        session.progress.clear()
        print((render_json if arguments.json else render)(statuses, _wall_ms()))
    if any(status.problem or status.failure for status in statuses):
        return 1
    return DEAD_LETTERS if any(status.names_dead_letters for status in statuses) else 0


def _plan(arguments: argparse.Namespace) -> int:
    with open_session(arguments, Missing.IS_EMPTY) as session:
        job, topic = job_and_topic(session, arguments)
        parallelism = spark.parallelism_of(session.settings.spark)
        preview = preview_topic(job, topic, parallelism=parallelism)
        sample = sample_types(job, topic) if arguments.infer else None
        session.progress.clear()
        print(render_preview(preview))
        if sample is not None:
            print(render_sample(topic.name, sample))
    return 0


def _view(arguments: argparse.Namespace) -> int:
    with open_session(arguments) as session:
        job, topic = job_and_topic(session, arguments)
        identifier = table_identifier(job, topic)
        table = find_table(job.catalog, identifier)
        if table is None:
            raise StateError(f"topic {topic.name} has no table yet; run `frazil export run`")
        if arguments.create:
            name = create_latest_view(
                job.catalog, identifier, table, _wall_ms(), in_trino=arguments.catalog or ""
            )
            hint = (
                ""
                if arguments.catalog
                else "; for Trino, add what it calls the catalog: --catalog NAME"
            )
            print(f"{topic.name}: view {name} shows the newest record of each key{hint}")
            return 0
        parts = (arguments.catalog, *identifier) if arguments.catalog else identifier
        columns = [field.name for field in table.schema().fields]
        print(create_view_statement(parts, columns, arguments.dialect) + ";")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    with open_session(arguments) as session:
        job, tables = job_and_tables(session, arguments)
        return max(_verify_table(session, job, topic) for topic in tables)


def _verify_table(session: Session, job: Job, topic: Topic) -> int:
    upsert = is_upsert(topic)
    with session.pinned(job):
        verdict = (verify_upsert if upsert else verify_topic)(job, topic)
    session.progress.clear()
    if not verdict.problems:
        print(
            f"{verdict.topic}: {verdict.records} records, each exactly once in table "
            f"{verdict.table} (checksum {verdict.checksum}){_remarks(verdict)}"
        )
        return 0
    for problem in verdict.problems:
        print(problem)
    print(f"{verdict.topic}: table {verdict.table} differs from the log{_remarks(verdict)}")
    return 1


def _remarks(verdict: Verdict) -> str:
    """What a proof leaves aside, behind its sentence."""
    columns = ", ".join(verdict.not_compared)
    counted = (
        (verdict.older, "older ones are in the table alone, retention or compaction took them from the log"),
        (verdict.skipped, "keys lie in several partitions and were not compared"),
        (verdict.gone, "offsets were gone from the log before they were exported"),
        (verdict.passed_over, "offsets were skipped on purpose, by reset-offsets or init"),
        (verdict.behind, "later offsets are not exported yet"),
        (len(verdict.not_compared), f"columns are not compared, since they came back or were masked while there were rows ({columns})"),
    )  # fmt: skip
    lost = "".join(f"; {sentence}" for sentence in told_lost(verdict.lost))
    return (
        _redactions(verdict)
        + "".join(f"; {count} {what}" for count, what in counted if count)
        + lost
    )


def _redactions(verdict: Verdict) -> str:
    """What was redacted, and by whom: the newest first."""
    if not verdict.redacted:
        return ""
    newest = verdict.redactions[: -REDACTIONS_SHOWN_MAX - 1 : -1]
    told = [
        f"{one.records} by {one.by} on {time.strftime('%Y-%m-%d', time.gmtime(one.at_ms // 1000))}"
        f" ({one.reason})"
        for one in newest
    ]
    if (more := len(verdict.redactions) - len(newest)) > 0:
        told.append(f"and {more} earlier ones")
    return f"; less {verdict.redacted} redacted: {', '.join(told)}"


CALLS: Final = {
    "run": _run,
    "status": _status,
    "plan": _plan,
    "view": _view,
    "verify": _verify,
    **table_commands.CALLS,
}
"""What the parser's commands do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    return run(parse(argv))


def run(arguments: argparse.Namespace) -> int:
    """The same, of arguments that were parsed."""
    try:
        code = CALLS[arguments.command](arguments)
    except ExportError as error:
        print(f"frazil export: {told(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("frazil export: interrupted; nothing half-done is visible", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`frazil export status --json | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code
