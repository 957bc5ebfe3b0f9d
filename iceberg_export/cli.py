"""`frazil export run | status | verify`: arguments to calls, errors to one sentence and a code.

The composition root of this package: clock, chance, streams, Spark and catalog are named here.
Exit codes: 0 done; 1 it failed, or the proof did; 2 wrong use; 3 another exporter won.
"""

import argparse
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from iceberg_export import spark
from iceberg_export.agent_client import AgentClient, Pinned, Topic
from iceberg_export.catalog import open_catalog
from iceberg_export.commit import Pause
from iceberg_export.errors import AgentError, ExportError, SettingsError, SparkError
from iceberg_export.job import Job, export_topic, new_run_id
from iceberg_export.progress import Progress
from iceberg_export.settings import Settings, parse
from iceberg_export.status import render, topic_status
from iceberg_export.verify import verify_topic

INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="frazil export", description="Turns topics into Iceberg tables, each record once."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="export what is new in every topic")
    run.add_argument("--once", action="store_true", required=True, help="up to now, then end")
    status = commands.add_parser("status", help="how far tables are behind, per partition")
    for command in (run, status):
        command.add_argument("--topics", metavar="REGEX", help="only topics that match as a whole")
    verify = commands.add_parser("verify", help="prove that a table holds each record once")
    verify.add_argument("--topic", metavar="TOPIC", required=True)
    for command in (run, status, verify):
        command.add_argument("--agent", metavar="URL", help="admin address of an agent")
        command.add_argument(
            "--data", metavar="DIR", type=Path, default=Path("frazil-data"),
            help="folder of the embedded warehouse (default: ./frazil-data)",
        )  # fmt: skip
        command.add_argument("--config", metavar="FILE", type=Path, help="TOML file of settings")
        command.add_argument("--set", metavar="NAME=VALUE", action="append", default=[])
    return parser


class _Session:
    """What a command works with. Spark starts when it is first needed."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        rng = random.SystemRandom()
        client = AgentClient(
            settings.agents, timeout_ms=settings.number("agent.timeout.ms"), sleep=time.sleep
        )
        self.settings = settings
        self.progress = progress
        self.topics = client.topics()
        self._tasks: spark.Tasks | None = None
        self.job = Job(
            settings=settings,
            client=client,
            catalog=open_catalog(settings.catalog, settings.data),
            cluster_id=self.topics.cluster_id,
            run_id=new_run_id(rng),
            runner=self._runner,
            pause=Pause(time.sleep, rng),
        )

    def _runner(self) -> spark.Tasks:
        if self._tasks is None:
            self.progress.say("starting Spark")
            self._tasks = spark.start(self.settings.spark, self.progress)
        return self._tasks

    def chosen(self, pattern: str | None) -> list[Topic]:
        """The topics that match, all without a pattern. Raises ExportError when none does."""
        if pattern is None:
            return list(self.topics.topics)
        try:
            regex = re.compile(pattern)
        except re.error as error:
            raise SettingsError(f"--topics {pattern!r} is no regular expression: {error}") from (
                error
            )
        found = [topic for topic in self.topics.topics if regex.fullmatch(topic.name)]
        if not found:
            names = ", ".join(topic.name for topic in self.topics.topics[:10]) or "there is none"
            raise ExportError(f"no topic matches {pattern!r} (topics: {names})")
        return found

    def pinned(self) -> Pinned:
        """Keeps the chunks that a plan names until the command is done with them."""
        lifetime_ms = self.settings.number("pin.lifetime.ms")
        return Pinned(self.job.client, f"export-{self.job.run_id}", lifetime_ms)

    def close(self) -> None:
        if self._tasks is not None:
            self._tasks.close()


@contextmanager
def _session(arguments: argparse.Namespace) -> Iterator[_Session]:
    assignments = list(arguments.set)
    if arguments.agent:
        assignments.append(f"agent={arguments.agent}")
    settings = parse(data=arguments.data, config=arguments.config, assignments=assignments)
    session = _Session(settings, Progress(sys.stderr, time.perf_counter))
    try:
        yield session
    finally:
        session.close()


def _run(arguments: argparse.Namespace) -> int:
    code = 0
    with _session(arguments) as session:
        topics = session.chosen(arguments.topics)
        if not topics:
            print("the cluster has no topics yet: nothing to export")
            return 0
        with session.pinned() as pin:
            for topic in topics:
                session.progress.show(f"{topic.name}: planning")
                try:
                    report = export_topic(session.job, topic)
                except (AgentError, SparkError):
                    raise
                except ExportError as error:
                    # The other topics need not wait for this one.
                    session.progress.say(f"{topic.name}: {error}")
                    code = max(code, error.exit_code)
                    continue
                if pin.lost:
                    session.progress.say(f"the pin could not be renewed: {pin.lost}")
                print(
                    f"{report.topic}: {report.rows} records in {report.files} files "
                    f"into table {report.table}"
                    if report.commits
                    else f"{report.topic}: nothing new for table {report.table}",
                    flush=True,
                )
    return code


def _status(arguments: argparse.Namespace) -> int:
    with _session(arguments) as session:
        topics = session.chosen(arguments.topics)
        statuses = []
        for count, topic in enumerate(topics):
            session.progress.show(f"asking about topic {count + 1} of {len(topics)}")
            statuses.append(topic_status(session.job, topic))
        session.progress.clear()
        print(render(statuses))
    return 1 if any(status.problem for status in statuses) else 0


def _verify(arguments: argparse.Namespace) -> int:
    with _session(arguments) as session:
        (topic,) = session.chosen(re.escape(arguments.topic))
        with session.pinned():
            verdict = verify_topic(session.job, topic)
        session.progress.clear()
    older = (
        f"; {verdict.older} older ones are in the table alone, retention or compaction took them from the log"
        if verdict.older
        else ""
    )
    if not verdict.problems:
        print(
            f"{verdict.topic}: {verdict.records} records, each exactly once in table "
            f"{verdict.table} (checksum {verdict.checksum}){older}"
        )
        return 0
    for problem in verdict.problems:
        print(problem)
    print(f"{verdict.topic}: table {verdict.table} differs from the log{older}")
    return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = _parser().parse_args(argv)
    command = {"run": _run, "status": _status, "verify": _verify}[arguments.command]
    try:
        return command(arguments)
    except ExportError as error:
        print(f"frazil export: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("frazil export: interrupted; nothing half-done is visible", file=sys.stderr)
        return INTERRUPTED
