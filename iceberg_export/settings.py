"""Settings of an export: defaults, then a TOML file, then `--set name=value`.

All mistakes are reported at once, each with the nearest right name. `catalog.*` goes to PyIceberg,
`spark.*` to Spark, `table.name.<topic>` names the table of one topic; the rest is below. The
store's address comes with the plan of an agent on this machine or behind https; `store.*` says what
others are not believed (url, endpoint: `plan.trust`), what an agent must not tell (keys), or what differs
seen from here (endpoint).
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from iceberg_export.errors import SettingsError
from protocol.fault_codes import FaultCode, Sentence, fault_of

MIB = 1024 * 1024


class Setting(NamedTuple):
    """One row."""

    name: str
    default: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    """Of a number, the least that makes sense; None: it is no number."""
    text: str = ""
    """For docs/export-settings.md."""


_ROWS = (
    Setting(
        "agent",
        "http://127.0.0.1:9094",
        text="HTTP listeners of agents, separated by commas; they are tried in turn.",
    ),
    Setting(
        "agent.ca",
        "",
        text="Certificates (PEM) to trust for `https://` agents; empty: the system's.",
    ),
    Setting("agent.cert", "", text="Certificate (PEM) to show to agents that ask for one."),
    Setting("agent.key", "", text="Key (PEM) of agent.cert, unless it is in the same file."),
    Setting("agent.timeout.ms", "30000", minimum=100, text="How long an agent has for one answer."),
    Setting(
        "agent.token",
        "",
        text="What agents want to hear: their http.token, or a token of a user of http.roles.exporter.",
    ),
    Setting("agent.token.file", "", text="The same from a file, read again for each request."),
    Setting(
        "commit.bytes.max",
        str(16 * 1024 * MIB),
        minimum=1,
        text="Of the log, in one commit of a table; a run makes as many commits as it needs.",
    ),
    Setting(
        "file.bytes.max",
        str(512 * MIB),
        minimum=MIB,
        text="Of the log, in one data file; a topic with so much waiting is exported before it is due.",
    ),
    Setting(
        "gap.policy",
        "fail",
        ("fail", "skip"),
        text="fail: an export stops where retention has removed records that it did not have; skip: it counts them and goes on.",
    ),
    Setting(
        "pin.lifetime.ms",
        "600000",
        minimum=10_000,
        text="How long objects of a run outlive the exporter that pinned them; renewed while it runs.",
    ),
    Setting("schema.registry.basic.auth.user.info", "", text="`user:password` for the registry."),
    Setting("schema.registry.bearer.auth.token", "", text="A token for the registry."),
    Setting(
        "schema.registry.bearer.auth.token.file",
        "",
        text="The same from a file, read again for each request.",
    ),
    Setting(
        "schema.registry.ssl.ca.location",
        "",
        text="Certificates (PEM) to trust for an `https://` registry.",
    ),
    Setting(
        "schema.registry.ssl.certificate.location",
        "",
        text="Certificate (PEM) to show to the registry.",
    ),
    Setting(
        "schema.registry.ssl.key.location",
        "",
        text="Key (PEM) of that certificate, unless it is in the same file.",
    ),
    Setting(
        "schema.registry.timeout.ms",
        "10000",
        minimum=100,
        text="How long the registry has for one answer.",
    ),
    Setting(
        "schema.registry.url",
        "",
        text="The registry's addresses, separated by commas; empty: where the agents tell that theirs is.",
    ),
    Setting(
        "split.bytes.max", str(64 * MIB), minimum=1, text="Of the log, in one Spark task, about."
    ),
    Setting("store.access.key", "", text="Instead of the credentials that the environment has."),
    Setting("store.ca", "", text="Certificates (PEM) to trust for the store."),
    Setting(
        "store.endpoint", "", text="Where the store is seen from here; empty: as the agents say."
    ),
    Setting(
        "store.path.style",
        "",
        ("", "true", "false"),
        text="Whether buckets are in the path of addresses; empty: where there is an endpoint.",
    ),
    Setting("store.region", "", text="Region of the store."),
    Setting("store.secret.key", "", text="Of store.access.key."),
    Setting(
        "store.url",
        "",
        text="Where the store is; needed with agents that are neither on this machine nor behind https.",
    ),
    Setting("table.namespace", "frazil", text="Namespace of new tables."),
    Setting(
        "table.namespaces",
        "",
        text="Other namespaces that topics may choose by frazil.iceberg.table, separated by commas; `*`: any.",
    ),
    Setting(
        "table.partition.by",
        "day",
        ("day", "hour", "none"),
        text="How new tables of mode append are partitioned unless the topic says: by the timestamp's day or hour, or not.",
    ),
    Setting(
        "timestamp.sanity",
        "true",
        ("true", "false"),
        text="true: timestamps before 2000, or more than a day ahead, lie in kafka_timestamp_raw.",
    ),
    Setting(
        "topic.recreated",
        "refuse",
        ("refuse", "new-table"),
        text="refuse: a topic that was deleted and created again is not exported into the old table; new-table: it gets another one.",
    ),
    Setting(
        "verify.decoder",
        "compiled",
        ("compiled", "reference"),
        text="compiled: values are compared as the exporter decodes them; reference: by slower, independent libraries.",
    ),
)
TABLE = {row.name: row for row in _ROWS}
DEFAULTS = {row.name: row.default for row in _ROWS}
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

    def allows_namespace(self, name: str) -> bool:
        """Tells whether topics may choose tables there: whoever may alter a topic's configs chooses."""
        allowed = {one.strip() for one in self["table.namespaces"].split(",")}
        return name == self["table.namespace"] or "*" in allowed or (name in allowed and name != "")

    @property
    def store_options(self) -> dict[str, str]:
        """What tasks need beside the address that the plan tells."""
        return {name: one for name, one in self.values.items() if name.startswith("store.")}

    @property
    def agents(self) -> tuple[str, ...]:
        """Base addresses of admin endpoints, to be tried in turn."""
        return tuple(one.strip().rstrip("/") for one in self["agent"].split(",") if one.strip())

    def agent_token(self) -> str | None:
        """Returns what the agents want to hear (their http.token), read anew: secrets change.
        Raises SettingsError."""
        return token_in(self.values, "agent.token") or None


def token_in(settings: Mapping[str, str], name: str) -> str:
    """A token as it is set, or as the file that is set below its name has it now; "" is none.
    Raises SettingsError."""
    setting = f"{name}.file"
    if not settings[setting]:
        return settings[name]
    file = Path(settings[setting])
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII"
        text = f"{setting}: cannot read {file}: {reason}"
        raise SettingsError(text, fault=FaultCode.WRONG_VALUE) from error
    if not token or not token.isprintable():
        text = f"{setting}: {file} is empty, or has more than one line"
        raise SettingsError(text, fault=FaultCode.WRONG_VALUE)
    return token


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
    row = TABLE.get(name)
    if row is None:
        near = difflib.get_close_matches(name, [*TABLE, "catalog.uri", "spark.master"], n=1)
        text = f"{name} is not a setting" + (f", {near[0]} is" if near else "")
        return Sentence(text, FaultCode.UNKNOWN_SETTING)
    if row.choices and value not in row.choices:
        return f"{name} must be one of {', '.join(filter(None, row.choices))}, not {value!r}"
    if row.minimum is not None:
        if not (value.isascii() and value.isdigit()):
            return f"{name} must be a whole number, not {value!r}"
        if int(value) < row.minimum:
            return f"{name} must be at least {row.minimum}, not {value}"
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
        fault = fault_of(mistakes[0]) or FaultCode.WRONG_VALUE
        raise SettingsError("; ".join(mistakes), fault=fault)

    def under(prefix: str) -> dict[str, str]:
        return {n.removeprefix(prefix): v for n, v in given.items() if n.startswith(prefix)}

    plain = {name: value for name, value in given.items() if not name.startswith(PREFIXES)}
    spark = {f"spark.{name}": value for name, value in under("spark.").items()}
    return Settings(data, {**DEFAULTS, **plain}, under("catalog."), spark, under("table.name."))
