"""What the arguments of a command ask for: a session, and the topics and tables that they name."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from iceberg_export.cli.given_settings import settings_of
from iceberg_export.errors import SettingsError, StateError
from iceberg_export.plan.agent_client import Topic
from iceberg_export.progress import Progress
from iceberg_export.runs.job import Job, table_identifier
from iceberg_export.runs.session import Missing, Session, topic_named
from iceberg_export.runs.table_choice import each_table


@contextmanager
def open_session(
    arguments: argparse.Namespace, missing: Missing = Missing.IS_REFUSED
) -> Iterator[Session]:
    """Opens the session that the arguments ask for, and closes it. Raises ExportError."""
    settings = settings_of(arguments)
    progress = Progress(sys.stderr, time.perf_counter)
    session = Session(settings, progress, missing)
    try:
        yield session
    finally:
        session.close()


def known_tables(topics: Sequence[Topic]) -> list[Topic]:
    """Returns each topic once for each of its tables; once where its settings are wrong."""
    found: list[Topic] = []
    for topic in topics:
        try:
            found += each_table(topic)
        except SettingsError:
            found.append(topic)
    return found


def job_and_tables(session: Session, arguments: argparse.Namespace) -> tuple[Job, list[Topic]]:
    """Returns a job over the cluster, and its topic as the arguments name it, once for each table that
    they mean. Raises ExportError."""
    topics = session.client.topics()
    job = session.job(topics.cluster_id)
    tables = each_table(topic_named(topics, arguments.topic))
    if arguments.table is None:
        return job, tables
    names = [_table_name(job, one) for one in tables]
    found = [
        one
        for one, name in zip(tables, names, strict=True)
        if arguments.table in (name, name.rpartition(".")[2], one.route)
    ]
    if len(found) != 1:
        raise SettingsError(
            f"topic {arguments.topic} has no single table {arguments.table}; --table is {' or '.join(names)}"
        )
    return job, found


def _table_name(job: Job, topic: Topic) -> str:
    """Returns the table's name, also of one that the topic may not have: that is said where it is used."""
    try:
        return ".".join(table_identifier(job, topic))
    except (SettingsError, StateError):
        return topic.route or topic.name


def job_and_topic(session: Session, arguments: argparse.Namespace) -> tuple[Job, Topic]:
    """Returns a job over the cluster, and its topic, with the table that the arguments name.

    Raises ExportError, also when there are several.
    """
    job, tables = job_and_tables(session, arguments)
    if len(tables) > 1:
        names = [_table_name(job, one) for one in tables]
        raise SettingsError(
            f"topic {arguments.topic} has several tables (frazil.iceberg.route.by); say --table"
            f" {' or '.join(names)}"
        )
    return job, tables[0]
