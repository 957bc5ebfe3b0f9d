"""Arguments that all commands of the exporter take, and the session that they ask for."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iceberg_export.plan.agent_client import Topic
from iceberg_export.progress import Progress
from iceberg_export.runs.job import Job
from iceberg_export.runs.session import Missing, Session, topic_named
from iceberg_export.settings import parse


def add_options(command: argparse.ArgumentParser) -> None:
    """Adds the options that every command takes."""
    command.add_argument("--agent", metavar="URL", help="admin address of an agent")
    command.add_argument(
        "--data", metavar="DIR", type=Path, default=Path("frazil-data"),
        help="folder of the embedded warehouse (default: ./frazil-data)",
    )  # fmt: skip
    command.add_argument("--config", metavar="FILE", type=Path, help="TOML file of settings")
    command.add_argument("--set", metavar="NAME=VALUE", action="append", default=[])


@contextmanager
def open_session(
    arguments: argparse.Namespace, missing: Missing = Missing.IS_REFUSED
) -> Iterator[Session]:
    """Opens the session that the arguments ask for, and closes it. Raises ExportError."""
    assignments = list(arguments.set)
    if arguments.agent:
        assignments.append(f"agent={arguments.agent}")
    if master := getattr(arguments, "master", None):
        assignments.append(f"spark.master={master}")
    settings = parse(data=arguments.data, config=arguments.config, assignments=assignments)
    progress = Progress(sys.stderr, time.perf_counter)
    session = Session(settings, progress, missing)
    try:
        yield session
    finally:
        session.close()


def job_and_topic(session: Session, name: str) -> tuple[Job, Topic]:
    """Returns a job over the cluster, and its topic of that name. Raises ExportError."""
    topics = session.client.topics()
    return session.job(topics.cluster_id), topic_named(topics, name)
