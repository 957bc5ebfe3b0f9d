"""Settings of an export: defaults, then a TOML file, then `--set name=value`.

All mistakes are reported at once, each with the nearest right name. `catalog.*` goes to PyIceberg,
`spark.*` to Spark, `table.name.<topic>` names the table of one topic; the rest is below. The
store's address comes with the plan; `store.*` only says what an agent must not tell
(keys), or what differs seen from here (endpoint).
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iceberg_export.errors import SettingsError

MIB = 1024 * 1024

DEFAULTS: dict[str, str] = {
    "agent": "http://127.0.0.1:9094",
    "agent.timeout.ms": "30000",
    "commit.bytes.max": str(16 * 1024 * MIB),
    "file.bytes.max": str(512 * MIB),
    "gap.policy": "fail",
    "pin.lifetime.ms": "600000",
    "schema.registry.basic.auth.user.info": "",
    "schema.registry.bearer.auth.token": "",
    "schema.registry.ssl.ca.location": "",
    "schema.registry.timeout.ms": "10000",
    "schema.registry.url": "http://127.0.0.1:8081",
    "split.bytes.max": str(64 * MIB),
    "store.access.key": "",
    "store.ca": "",
    "store.endpoint": "",
    "store.path.style": "",
    "store.region": "",
    "store.secret.key": "",
    "table.namespace": "frazil",
    "table.partition.by": "day",
    "timestamp.sanity": "true",
    "topic.recreated": "refuse",
    "verify.decoder": "compiled",
}
CHOICES = {
    "gap.policy": ("fail", "skip"),
    "store.path.style": ("", "true", "false"),
    "table.partition.by": ("day", "hour", "none"),
    "timestamp.sanity": ("true", "false"),
    "topic.recreated": ("refuse", "new-table"),
    "verify.decoder": ("compiled", "reference"),
}
NUMBERS = {
    "agent.timeout.ms": 100,
    "commit.bytes.max": 1,
    "file.bytes.max": MIB,
    "pin.lifetime.ms": 10_000,
    "schema.registry.timeout.ms": 100,
    "split.bytes.max": 1,
}
"""Numeric settings and the least that makes sense."""
PREFIXES = ("catalog.", "spark.", "table.name.")


@dataclass(frozen=True, slots=True)
class Settings:
    """What an export was told, checked."""

    data: Path
    values: Mapping[str, str]
    catalog: Mapping[str, str] = field(default_factory=dict)
    """For PyIceberg, without the prefix."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """For Spark, with the prefix."""
    table_names: Mapping[str, str] = field(default_factory=dict)
    """Table by topic, where it is not the topic's name."""

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def number(self, name: str) -> int:
        return int(self.values[name])

    @property
    def store_options(self) -> dict[str, str]:
        """What tasks need beside the address that the plan tells."""
        return {name: one for name, one in self.values.items() if name.startswith("store.")}

    @property
    def agents(self) -> tuple[str, ...]:
        """Base addresses of admin endpoints, to be tried in turn."""
        return tuple(one.strip().rstrip("/") for one in self["agent"].split(",") if one.strip())


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        else:
            yield prefix + name, str(value)


def _file_values(path: Path) -> dict[str, str]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    # An agent's file may carry ours as one of its tables.
    return dict(_flatten(tree.get("export", tree)))


def _mistake(name: str, value: str) -> str | None:
    if name.startswith(PREFIXES) and name not in PREFIXES:
        return None
    if name not in DEFAULTS:
        near = difflib.get_close_matches(name, [*DEFAULTS, "catalog.uri", "spark.master"], n=1)
        return f"{name} is not a setting" + (f", {near[0]} is" if near else "")
    if name in CHOICES and value not in CHOICES[name]:
        return f"{name} must be one of {', '.join(filter(None, CHOICES[name]))}, not {value!r}"
    if name in NUMBERS and not (value.isascii() and value.isdigit()):
        return f"{name} must be a whole number, not {value!r}"
    if name in NUMBERS and int(value) < NUMBERS[name]:
        return f"{name} must be at least {NUMBERS[name]}, not {value}"
    return None


def parse(*, data: Path, config: Path | None, assignments: Iterable[str]) -> Settings:
    """Settings from a file and `name=value` assignments. Raises SettingsError with all mistakes."""
    given = _file_values(config) if config else {}
    mistakes = []
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            mistakes.append(f"--set {assignment}: a setting is written name=value")
        given[name.strip()] = value.strip()
    mistakes += [text for name in given if (text := _mistake(name, given[name]))]
    if mistakes:
        raise SettingsError("; ".join(mistakes))

    def under(prefix: str) -> dict[str, str]:
        return {n.removeprefix(prefix): v for n, v in given.items() if n.startswith(prefix)}

    plain = {name: value for name, value in given.items() if not name.startswith(PREFIXES)}
    spark = {f"spark.{name}": value for name, value in under("spark.").items()}
    return Settings(data, {**DEFAULTS, **plain}, under("catalog."), spark, under("table.name."))
