"""The report of a topic's export, and the progress that an exporter reports, as JSON. Pure.

Left out: the plan itself (`coordinator.machine.plan_view`), and asking for it (`broker.admin.listener`).
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.config import table_configs
from coordinator.commands.encoding import U31, U63
from coordinator.commands.table_commands import EXPORT_ENDS_MAX, ExportEnd, ReportExport
from coordinator.machine.machine import Machine
from coordinator.tables.topics import Topic
from protocol.types import TopicId

TABLE_NAME_MAX: Final = 512
"""Characters."""
REASON_MAX: Final = 64
"""Characters of the reason of dead letters."""
REASONS_KEPT_MAX: Final = 20
"""The most frequent ones."""


class TableSource(NamedTuple):
    """What an exporter read its offsets from."""

    table: str
    snapshot_id: int


class Progress(NamedTuple):
    """An exporter says that everything before these offsets is in a topic's table."""

    topic: str
    topic_id: str
    """In hex. A topic that was made again under its name is another one."""
    offsets: Mapping[int, int]
    source: TableSource | None = None
    """None: an exporter of the release before does not say."""
    dead_letters: Mapping[str, int] | None = None
    """By reason, the most frequent first; None: they are not said."""


def export_view(machine: Machine, topic: Topic, source: TableSource | None) -> dict[str, Any]:
    """What is set for the topic's table, and how far it is, as an exporter said last; `source`: from
    what, if it was said to this agent."""
    row = machine.exports.get(topic.topic_id)
    return {
        "configs": table_configs.in_force(topic.configs),
        "exported": {} if row is None else {str(each): at for each, at in row.offsets.items()},
        "exported_ms": None if row is None else row.reported_ms,
        "exported_from": None if source is None else source._asdict(),
    }


def parse_progress(text: str) -> Progress:
    """Raises ValueError with a sentence."""
    try:
        body = json.loads(text)
        offsets = {int(number): int(offset) for number, offset in body["offsets"].items()}
        topic, topic_id = str(body["topic"]), str(body["topic_id"])
        progress = Progress(topic, topic_id, offsets, _source(body), _dead_letters(body))
    except (AttributeError, ArithmeticError, ValueError, TypeError, LookupError) as error:
        said = (
            'send {"topic": name, "topic_id": hex, "offsets": {partition: offset},'
            ' "table": name, "snapshot_id": number}'
        )
        raise ValueError(said) from error
    numbers = [*offsets, *offsets.values()]
    if not numbers or min(numbers) < 0 or max(offsets) > U31 or max(numbers) > U63:
        raise ValueError("say offsets of partitions, none of them negative")
    return progress


def _source(body: Mapping[str, Any]) -> TableSource | None:
    """Raises ValueError when one half is missing, or makes no sense."""
    table, snapshot_id = body.get("table"), body.get("snapshot_id")
    if table is None and snapshot_id is None:
        return None
    named = isinstance(table, str) and 0 < len(table) <= TABLE_NAME_MAX and table.isprintable()
    if not isinstance(table, str) or not named:
        raise ValueError("no name of a table")
    if not isinstance(snapshot_id, int) or abs(snapshot_id) > U63:
        raise ValueError("no id of a snapshot")
    return TableSource(table, snapshot_id)


def _dead_letters(body: Mapping[str, Any]) -> Mapping[str, int] | None:
    """Raises ValueError when they make no sense."""
    said = body.get("dead_letters")
    if said is None:
        return None
    counts = {str(code): int(count) for code, count in said.items()}
    for code, count in counts.items():
        if not (0 < len(code) <= REASON_MAX and code.isprintable() and 0 <= count <= U63):
            raise ValueError("no reasons of dead letters")
    found = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return dict(found[:REASONS_KEPT_MAX])


def reports(topic_id: TopicId, offsets: Mapping[int, int]) -> list[ReportExport]:
    """As many commands as it takes."""
    ends = [ExportEnd(partition, offset) for partition, offset in sorted(offsets.items())]
    return [
        ReportExport(topic_id, tuple(ends[first : first + EXPORT_ENDS_MAX]))
        for first in range(0, len(ends), EXPORT_ENDS_MAX)
    ]
