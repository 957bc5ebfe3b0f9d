"""Options of `spark.read.format("frazil")`, checked: all mistakes at once, with the nearest name.

Where a stream or a read begins and ends is named as Spark's Kafka source names it, so that a job
moves over by changing its format. What is about the cluster (`agent`, `store.*`, `catalog.*`)
is named as the exporter's settings and may come from its file (`config`). Pure but for that file.
"""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from iceberg_export.errors import SettingsError
from iceberg_export.plan.splits import PartitionPlan
from iceberg_export.settings import DEFAULTS, PREFIXES, Settings, parse
from iceberg_export.source.filters import QueryRange

Value = TypeVar("Value")

EARLIEST = -2
LATEST = -1
"""As in Kafka's ListOffsets and Spark's Kafka source."""
PIN_LIFETIME_MS = 3_600_000
"""How long a query may take: the objects of its plan stay so long."""
OWN = (
    "config",
    "data",
    "endingoffsets",
    "failondataloss",
    "maxoffsetspertrigger",
    "mode",
    "partitions",
    "path",
    "pushfilters",
    "startingoffsets",
    "table",
    "timestampfrom",
    "timestampto",
    "topic",
    "typed",
)
"""In lower case, as Spark gives them."""
FAIL, DROP, KEEP = MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
"""What becomes of a record that cannot be decoded, as Spark's sources name it."""
_SPELLED = {
    "endingoffsets": "endingOffsets",
    "failondataloss": "failOnDataLoss",
    "maxoffsetspertrigger": "maxOffsetsPerTrigger",
    "pushfilters": "pushFilters",
    "startingoffsets": "startingOffsets",
    "timestampfrom": "timestampFrom",
    "timestampto": "timestampTo",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where to begin or to end: `everywhere` but in the partitions that are named."""

    everywhere: int
    named: Mapping[int, int] = field(default_factory=dict)

    def at(self, part: PartitionPlan) -> int:
        """The offset in a partition whose log is known."""
        offset = self.named.get(part.partition, self.everywhere)
        if offset == EARLIEST:
            return part.log_start
        return part.stable if offset == LATEST else offset


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader was told, checked."""

    settings: Settings
    topic: str
    """Empty when a table says it."""
    table: str
    """`name` or `namespace.name`; empty: the topic alone."""
    starting: Bounds | None
    """None: not said."""
    ending: Bounds | None
    offsets_per_trigger_max: int | None
    fail_on_data_loss: bool
    push_filters: bool
    """May Spark tell its filters? See `data_source`: not when a DataFrame is used twice."""
    typed: bool
    """Of a topic alone: decode keys and values as its table would; else they are as they are."""
    mode: str
    """Of a topic alone: `FAIL`, `DROP` or `KEEP`."""
    query_range: QueryRange
    """`partitions`, `timestampFrom` and `timestampTo`: nothing else is read."""

    @property
    def store_options(self) -> dict[str, str]:
        values = self.settings.values
        return {name: value for name, value in values.items() if name.startswith("store.")}


def _bounds(text: str, topic: str) -> Bounds:
    """`earliest`, `latest`, {"0": 17} or {"topic": {"0": 17}}. Raises ValueError."""
    if text.lower() in ("earliest", "latest"):
        return Bounds(EARLIEST if text.lower() == "earliest" else LATEST)
    wanted = 'earliest, latest or JSON like {"0": 17, "1": -2} (-2 earliest, -1 latest)'
    try:
        found = json.loads(text)
        if isinstance(found, dict) and list(found) == [topic] and isinstance(found[topic], dict):
            found = found[topic]
        named = {int(number): int(offset) for number, offset in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(wanted) from error
    if any(number < 0 or offset < EARLIEST for number, offset in named.items()):
        raise ValueError(wanted)
    return Bounds(EARLIEST, named)


def _unknown(options: Iterable[str]) -> list[str]:
    mistakes = []
    known = [*OWN, *DEFAULTS]
    for name in options:
        if name in known or name.startswith(PREFIXES):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f", {_SPELLED.get(near[0], near[0])} is" if near else ""
        mistakes.append(f"{name} is not an option{hint}")
    return mistakes


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _mode(text: str) -> str:
    if text.upper() not in MODES:
        raise ValueError(f"one of {', '.join(MODES)}")
    return text.upper()


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError("a number above 0")
    return int(text)


def _partitions(text: str) -> frozenset[int]:
    numbers = [one.strip() for one in text.split(",")]
    if not all(one.isascii() and one.isdigit() for one in numbers):
        raise ValueError("a list of numbers like 0,3")
    return frozenset(map(int, numbers))


def _micros(text: str) -> int:
    """Milliseconds since 1970, or ISO 8601 with a time zone."""
    if text.isascii() and text.isdigit():
        return int(text) * 1000
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("a time like 2026-11-22T10:00:00Z, or milliseconds") from error
    if found.tzinfo is None:
        raise ValueError("a time with its zone, like 2026-11-22T10:00:00Z")
    return (found - _EPOCH) // timedelta(microseconds=1)


class _Given:
    """Options as they are read, and what is wrong with them."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.values = {name.lower(): str(value) for name, value in given.items()}
        self.mistakes = _unknown(self.values)

    def read(self, name: str, kind: Callable[[str], Value], default: Value) -> Value:
        """The value of an option; when it is not as it must be, a mistake and the default."""
        if name not in self.values:
            return default
        try:
            return kind(self.values[name])
        except ValueError as error:
            name_shown = _SPELLED.get(name, name)
            self.mistakes.append(f"{name_shown} must be {error}, not {self.values[name]!r}")
            return default


def parse_options(given: Mapping[str, str], *, streaming: bool | None) -> ReadOptions:
    """Spark's options (names in lower case). Raises SettingsError with all mistakes.

    `streaming` is None while Spark only wants to know the columns.
    """
    found = _Given(given)
    options = found.values
    table = options.get("table", "")
    topic = options.get("topic", "") or ("" if table else options.get("path", ""))
    if not topic and not table:
        found.mistakes.append('say what to read: option("topic", …) or option("table", …)')
    nowhere: Bounds | None = None
    starting = found.read("startingoffsets", lambda text: _bounds(text, topic), nowhere)
    ending = found.read("endingoffsets", lambda text: _bounds(text, topic), nowhere)
    no_number: int | None = None
    no_set: frozenset[int] | None = None
    per_trigger = found.read("maxoffsetspertrigger", _count, no_number)
    fail_on_data_loss = found.read("failondataloss", _boolean, default=True)
    push_filters = found.read("pushfilters", _boolean, default=False)
    typed = found.read("typed", _boolean, default=True)
    mode = found.read("mode", _mode, FAIL)
    query_range = QueryRange(
        partitions=found.read("partitions", _partitions, no_set),
        micros_from=found.read("timestampfrom", _micros, no_number),
        micros_to=found.read("timestampto", _micros, no_number),
    )
    if table and (streaming or starting or ending):
        what = "a stream" if streaming else "startingOffsets and endingOffsets"
        found.mistakes.append(f"{what} cannot be had of a table; say topic alone")
    if table and ("typed" in options or "mode" in options):
        found.mistakes.append("typed and mode are of a topic alone; a table has dead letters")
    if streaming and (ending or push_filters or query_range != QueryRange()):
        found.mistakes.append(
            "a stream has no endingOffsets, pushFilters, partitions or timestamps to begin or end"
        )
    if streaming is False and starting == Bounds(LATEST):
        found.mistakes.append("startingOffsets=latest leaves nothing to read; streams begin there")
    if found.mistakes:
        raise SettingsError("; ".join(found.mistakes))
    assignments = [f"{name}={value}" for name, value in options.items() if name not in OWN]
    settings = parse(
        data=Path(options.get("data", "frazil-data")),
        config=Path(options["config"]) if options.get("config") else None,
        assignments=[f"pin.lifetime.ms={PIN_LIFETIME_MS}", *assignments],
    )
    return ReadOptions(
        settings=settings,
        topic=topic,
        table=table,
        starting=starting,
        ending=ending,
        offsets_per_trigger_max=per_trigger,
        fail_on_data_loss=fail_on_data_loss,
        push_filters=push_filters,
        typed=typed,
        mode=mode,
        query_range=query_range,
    )
