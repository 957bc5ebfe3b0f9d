"""A redaction takes records out of a topic's table for good, and says who did it and why.

First the places of the rows are committed to the table of redactions (`table.redactions`), then the
rows go, in a commit that replaces files. A crash between the two, or a rollback of the table, leaves rows that
`verify` tells of; the command again, with the same words or none, takes them out. What is exported
while the command runs is looked at with the next one.

Tables of mode append alone: in mode upsert an older record of the key would have to come in the row's
place, and a tombstone says the same to everybody. The log, dead letters and older snapshots are not
touched: retention, people and `maintain --expire` see to those.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, parser
from pyiceberg.expressions.visitors import bind
from pyiceberg.table import Table
from pyparsing import ParseException

from iceberg_export import names
from iceberg_export.errors import SettingsError, StateError
from iceberg_export.files.read import scan_files
from iceberg_export.files.rewrite import Unwanted, deleted_unless_committed, rows_among
from iceberg_export.plan.agent_client import Topic
from iceberg_export.runs.job import Job, table_identifier
from iceberg_export.table import commit, topic_settings
from iceberg_export.table.catalog import Identifier, find_table, guarded
from iceberg_export.table.redactions import (
    Redaction,
    add_redaction,
    find_redactions,
    make_redactions,
    places_of,
    redacted_places,
    without_places,
)
from iceberg_export.table.run_marks import RunMark
from iceberg_export.upkeep.without_rows import without_rows

REDACTED_ROWS = "frazil.redacted-rows"
"""In the summary of the commit that takes rows out: how many."""
REDACTION = "frazil.redaction-id"


class RedactionPlan(NamedTuple):
    """Rows of a table that are to go."""

    identifier: Identifier
    table: Table
    where: BooleanExpression
    rows: Mapping[int, npt.NDArray[np.int64]]
    """Their places."""
    added: Mapping[int, npt.NDArray[np.int64]]
    """Those that are not noted yet."""

    @property
    def name(self) -> str:
        return ".".join(self.identifier)

    @property
    def row_count(self) -> int:
        return sum(map(len, self.rows.values()))


def plan_redaction(job: Job, topic: Topic, where: str | None) -> RedactionPlan:
    """Finds the rows; `where` None: those that are noted and there all the same. Raises ExportError."""
    identifier = table_identifier(job, topic)
    table = find_table(job.catalog, identifier)
    if table is None or table.current_snapshot() is None:
        raise StateError(f"topic {topic.name} has no table yet: there is nothing to redact")
    if topic_settings.parse(topic.configs, topic.name).mode == "upsert":
        raise SettingsError(
            f"table {'.'.join(identifier)} has the newest record of each key (mode upsert); write a"
            " tombstone for the key, which takes its row away for good"
        )
    wanted = AlwaysTrue() if where is None else _parsed(where, table)
    noted = redacted_places(find_redactions(table, topic.topic_id))
    if where is None and not noted:
        raise SettingsError(f"nothing of topic {topic.name} was redacted yet; say --where")
    scan = table.scan(row_filter=wanted, selected_fields=(names.PARTITION, names.OFFSET))
    found = places_of(guarded(f"read table {'.'.join(identifier)}", scan.to_arrow))
    added = without_places(found, noted)
    if where is None:
        found, added = without_places(found, added), {}
    return RedactionPlan(identifier, table, wanted, found, added)


def _parsed(where: str, table: Table) -> BooleanExpression:
    """Returns the filter. Raises SettingsError."""
    try:
        found: BooleanExpression = parser.parse(where)
        bind(table.schema(), found, case_sensitive=True)
    except (ParseException, TypeError, ValueError) as error:
        columns = ", ".join(table.schema().column_names)
        raise SettingsError(
            f"--where {where}: {str(error).splitlines()[0][:200]}; say an Iceberg filter over {columns},"
            " as \"city = 'Ulm' and kafka_offset < 100\""
        ) from error
    return found


def redact(job: Job, topic: Topic, plan: RedactionPlan, *, by: str, reason: str) -> int:
    """Takes the rows out; returns how many. Raises OvertakenError when others changed the table
    meanwhile (the same command again goes on), ExportError."""
    redaction_id = f"{job.run_id}-redact"
    if plan.added:
        noted = make_redactions(
            plan.table,
            topic=topic.name,
            topic_id=topic.topic_id,
            cluster_id=job.cluster_id,
        )
        count = sum(map(len, plan.added.values()))
        add_redaction(noted, plan.added, Redaction(redaction_id, job.clock_ms(), by, reason, count))
    if not plan.rows:
        return 0
    with RunMark(plan.table, redaction_id):
        files = scan_files(plan.table, And(plan.where, rows_among(plan.rows)))
        unwanted = Unwanted(places=plan.rows)
        change, results = without_rows(job, plan.table, files, unwanted, redaction_id)
        removed = sum(result.rows_read - result.rows_written for result in results)
        with deleted_unless_committed(plan.table, change.added):
            commit.replace_files(
                job.catalog,
                plan.identifier,
                change,
                rewrite_id=redaction_id,
                notes={REDACTED_ROWS: str(removed), REDACTION: redaction_id},
                pause=job.pause,
                hook=job.hook,
            )
    return removed
