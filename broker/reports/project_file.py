"""A project file: the tables of a team's topics in one file, to be reviewed, and what it would change. Pure.

TOML: `[topics.NAME]` has a topic's settings, `frazil.iceberg.*` without these first two words; `[defaults]` has those
of all topics that the file names. A topic that the file names has these settings and no others of `frazil.iceberg.*`;
other topics, and settings of other kinds, are left alone.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from broker.config.table_configs import PREFIX, TABLE_CONFIGS

Settings = Mapping[str, str]
"""By whole names, `frazil.iceberg.…`."""
_NAMES: Final = frozenset(row.name for row in TABLE_CONFIGS)
_LISTS: Final = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "columns.drop",
        "columns.mask",
        "columns.rename",
        "partition.by",
        "route.tables",
        "sort.order",
    )
)


class Change(NamedTuple):
    """A setting of a topic that is not as the file says."""

    topic: str
    name: str
    before: str | None
    """None: it is not set, and the default counts."""
    after: str | None


def parse(text: str) -> dict[str, dict[str, str]]:
    """Returns the settings of each topic. Raises ValueError with a sentence."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is no TOML: {error}") from error
    if others := found.keys() - {"defaults", "topics"}:
        raise ValueError(f"[{min(others)}] is neither [defaults] nor [topics.NAME]")
    topics = found.get("topics", {})
    if not isinstance(topics, dict) or not all(isinstance(one, dict) for one in topics.values()):
        raise ValueError("topics are tables: [topics.orders], with settings below")
    if not topics:
        raise ValueError("it names no topic: [topics.orders], with settings below")
    defaults = dict(_settings("defaults", found.get("defaults", {})))
    return {
        topic: {**defaults, **dict(_settings(f"topics.{topic}", said))}
        for topic, said in topics.items()
    }


def _settings(where: str, said: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(said, dict):
        raise ValueError(f"{where} is no table of settings")  # noqa: TRY004 - A mistake in the file.
    for name, value in _flat(said, PREFIX):
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, n=1)
            hint = f"; is it {near[0].removeprefix(PREFIX)}?" if near else ""
            raise ValueError(f"[{where}] {name.removeprefix(PREFIX)} is no setting{hint}")
        yield name, _text(f"[{where}] {name.removeprefix(PREFIX)}", name, value)


def _flat(said: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    """TOML takes `value.mode` without quotes as a table `value` with a key `mode`."""
    for key, value in said.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _text(where: str, name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | str):
        return str(value).strip()
    if isinstance(value, list) and name in _LISTS and all(isinstance(one, str) for one in value):
        return ",".join(one.strip() for one in value)
    kind = "a text, a whole number, true or false" + (
        ", or a list of texts" if name in _LISTS else ""
    )
    raise ValueError(f"{where} must be {kind}")


def changes(wanted: Mapping[str, Settings], there: Mapping[str, Settings]) -> list[Change]:
    """Returns what is to be changed; `there`: what is set on each of the topics."""
    found = []
    for topic in sorted(wanted):
        want, have = wanted[topic], there.get(topic, {})
        for name in sorted(want.keys() | have.keys()):
            before, after = have.get(name), want.get(name)
            if name in _NAMES and before != after:
                found.append(Change(topic, name, before, after))
    return found


def lines(found: list[Change]) -> list[str]:
    """Returns a line for each change, and how many there are."""
    if not found:
        return ["nothing to change: all topics are as the file says"]
    said = [
        f"{one.topic}: {one.name.removeprefix(PREFIX)}: {_shown(one.before)} -> {_shown(one.after)}"
        for one in found
    ]
    topics = len({one.topic for one in found})
    return [*said, f"{len(found)} settings of {topics} topics"]


def _shown(value: str | None) -> str:
    return "(default)" if value is None else value or '""'
