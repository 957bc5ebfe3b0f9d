"""Where settings are written: TOML, Java's properties, the environment, flags. Pure: texts are arguments.

Every source becomes names and texts, with where each came from. Left out: what the names mean.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.config import properties_text

DEFAULT: Final = "default"
"""Where a value comes from that nobody wrote."""

# Kubernetes puts the addresses of a service called "frazil" into the environment under names
# that look like ours; they are not settings.
_OF_COMMANDS = ("config", "context")
"""Variables of the command line: a file of settings, and the cluster that tools ask."""
_KUBERNETES_LINK = re.compile(r"FRAZIL_(.*_)?(SERVICE_(HOST|PORT.*)|PORT(_\d+_.*)?)")

_ALIASES = {"store.url": "store", "log.url": "log"}
"""In TOML a name cannot be both a text and a table, so the tables spell it with `url`."""


class Given(NamedTuple):
    """A value as somebody wrote it."""

    text: str
    origin: str
    """For messages: "frazil.toml", "FRAZIL_ZONE", "--set"."""


def is_given(item: Given | None) -> bool:
    """Whether somebody wrote it."""
    return item is not None and item.origin != DEFAULT


def of_toml(
    file_name: str, text: str, mistakes: list[str], *, is_kafkas: Callable[[str], bool]
) -> dict[str, Given]:
    """The leaves of a TOML file. Raises ValueError with a sentence.

    `is_kafkas`: whether a name is Kafka's alone, which has its place under `[kafka]`.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = ""
        if re.search(r"Cannot (overwrite|mutate)|Key.*already", str(error)):
            hint = ' (write "store.endpoint" in quotes, or use [store] with url)'
        raise ValueError(f"{file_name} is not TOML: {error}{hint}") from error
    flat: dict[str, Given] = {}
    tables.pop("export", None)  # The exporter's own table; it judges it.
    for name, value in _flattened(tables, ""):
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, list):
            text = ",".join(str(item) for item in value)
        elif isinstance(value, str | int | float):
            text = str(value)
        else:
            mistakes.append(f"{name} (from {file_name}): {value!r} is neither text nor a number")
            continue
        # In the file Kafka's names belong under [kafka], so that a slip is not taken for one.
        if is_kafkas(name):
            mistakes.append(f"{name} (from {file_name}): is Kafka's; put it under [kafka]")
            continue
        flat[_ALIASES.get(name, name)] = Given(text, file_name)
    return flat


def _flattened(table: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    """Leaves of nested tables, names joined by dots."""
    leaves: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            leaves += _flattened(value, f"{prefix}{key}.")
        else:
            leaves.append((f"{prefix}{key}", value))
    return leaves


def of_properties(file_name: str, text: str) -> dict[str, Given]:
    """A `server.properties`. Raises ValueError with a sentence."""
    flat = {}
    for name, value in properties_text.parse(file_name, text):
        if re.match(r"\$\{[A-Za-z0-9_.-]+:", value):
            raise ValueError(f"{name} (from {file_name}): providers of configs are not served")
        flat[_ALIASES.get(name, name)] = Given(value, file_name)
    return flat


def of_environ(environ: Mapping[str, str]) -> dict[str, Given]:
    """`FRAZIL_CLUSTER_ID` is cluster.id, `FRAZIL_KAFKA_NUM_PARTITIONS` num.partitions."""
    flat = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith("FRAZIL_") or _KUBERNETES_LINK.fullmatch(variable):
            continue
        name = variable.removeprefix("FRAZIL_").lower().replace("_", ".")
        if name not in _OF_COMMANDS:
            flat[_ALIASES.get(name, name)] = Given(text, variable)
    return flat


def of_flags(flags: Sequence[str], mistakes: list[str]) -> dict[str, Given]:
    """The `name=value` of `--set`."""
    flat = {}
    for flag in flags:
        name, equals, text = flag.partition("=")
        if not equals or not name.strip():
            mistakes.append(f'--set {flag}: write it as "name=value"')
            continue
        flat[_ALIASES.get(name.strip(), name.strip())] = Given(text, "--set")
    return flat
