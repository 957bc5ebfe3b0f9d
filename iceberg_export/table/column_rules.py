"""A topic's rules for the columns of its table, `frazil.iceberg.columns.*`: dropped, renamed, masked.

Columns are named by their paths, as the exporter would name them without any rule: `city`, `address.zip`,
`kafka_key.id`; the fields of a struct in a list or as values of a map are those of the column. The table
keeps the rules that it follows in a property, so whoever writes, proves or reads it goes by the same.
A rule does once what a person could do by hand, and what people do by hand it treats alike (`edits`).
Pure.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from iceberg_export import names
from iceberg_export.errors import SettingsError, StateError
from iceberg_export.table.edits import Edits

COLUMN_RULES = "frazil.column-rules"
"""Property of a table: JSON, {"drop": [path], "rename": {path: name}, "mask": {path: mask}}."""
_END = r"\s*(?:,|$)\s*"
_NAMED = r"(?P<path>[^\s(),:]+)"
_PATH = re.compile(_NAMED + _END)
_RENAME = re.compile(rf"{_NAMED}\s*:\s*(?P<name>[^\s(),:.]+){_END}")
_MASK = re.compile(
    rf"(?:(?P<how>hash|null)\s*\(|truncate\s*\(\s*(?P<length>\d{{1,9}})\s*,)\s*{_NAMED}\s*\){_END}",
    re.IGNORECASE,
)
_OURS = frozenset(
    {
        names.PARTITION,
        names.OFFSET,
        names.TIMESTAMP,
        names.TIMESTAMP_TYPE,
        names.TIMESTAMP_RAW,
        names.HEADERS,
    }
)
"""Columns that every table has."""


class Mask(NamedTuple):
    """What stands in the place of a value."""

    how: str
    """hash: the SHA-256 of a text, as hex digits, or of bytes, as 32 bytes; truncate; null."""
    length: int = 0
    """Of truncate: characters of a text, or bytes, that stay."""

    @property
    def text(self) -> str:
        """As the table's property has it."""
        return f"truncate {self.length}" if self.how == "truncate" else self.how


class ColumnRules(NamedTuple):
    """The rules of a topic; no path is in two of them."""

    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """Paths, and the last part of each as the table is to have it."""
    masked: tuple[tuple[str, Mask], ...] = ()

    @property
    def paths(self) -> list[str]:
        """All columns that there is a rule for."""
        renamed, masked = ([path for path, _ in rules] for rules in (self.renamed, self.masked))
        return [*self.dropped, *renamed, *masked]


NO_RULES = ColumnRules()


def parse_drop(text: str) -> tuple[str, ...]:
    """Reads `email, address.street`. Raises SettingsError."""
    return tuple(one["path"] for one in _items("drop", text, _PATH, "email,address.street"))


def parse_rename(text: str) -> tuple[tuple[str, str], ...]:
    """Reads `city:town, address.zip:postcode`. Raises SettingsError."""
    found = _items("rename", text, _RENAME, "city:town,address.zip:postcode")
    return tuple((one["path"], one["name"]) for one in found)


def parse_mask(text: str) -> tuple[tuple[str, Mask], ...]:
    """Reads `hash(email), truncate(3,phone), null(iban)`. Raises SettingsError."""
    found = _items("mask", text, _MASK, "hash(email),truncate(3,phone),null(iban)")
    return tuple(
        (one["path"], Mask((one["how"] or "truncate").lower(), int(one["length"] or 0)))
        for one in found
    )


def _items(rule: str, text: str, item: re.Pattern[str], example: str) -> list[re.Match[str]]:
    found = []
    at = len(text) - len(text.lstrip())
    while at < len(text):
        one = item.match(text, at)
        if one is None:
            raise SettingsError(
                f"columns.{rule} {text!r} cannot be read at {text[at:]!r}; it is a list like {example}"
            )
        found.append(one)
        at = one.end()
    if text.rstrip().endswith(","):
        raise SettingsError(f"columns.{rule} {text!r} ends with a comma")
    return found


def check_rules(rules: ColumnRules) -> None:
    """Raises SettingsError when two rules contradict each other, or one is for a column that must stay."""
    seen: set[str] = set()
    for path in rules.paths:
        if path.split(".")[0] in _OURS:
            raise SettingsError(f"columns.*: every table has {path} as it is")
        if path in seen:
            raise SettingsError(f"columns.* names {path} twice")
        seen.add(path)
    for path in rules.paths:
        above = path.rpartition(".")[0]
        while above:
            if above in rules.dropped or above in dict(rules.masked):
                raise SettingsError(f"columns.*: {path} is in {above}, which is dropped or masked")
            above = above.rpartition(".")[0]
    targets = [_sibling(path, name).casefold() for path, name in rules.renamed]
    for target, (path, name) in zip(targets, rules.renamed, strict=True):
        if targets.count(target) > 1:
            raise SettingsError(f"columns.rename gives the name {name} to two columns")
        if name.casefold().startswith("kafka_"):
            raise SettingsError(
                f"columns.rename: {path} cannot be {name}, a name of Kafka's columns"
            )


def _sibling(path: str, name: str) -> str:
    above, dot, _ = path.rpartition(".")
    return f"{above}{dot}{name}"


def rules_properties(rules: ColumnRules) -> dict[str, str]:
    """Returns the properties of a table that follows the rules."""
    if rules == NO_RULES:
        return {}
    plain = {
        "drop": list(rules.dropped),
        "rename": dict(rules.renamed),
        "mask": {path: mask.text for path, mask in rules.masked},
    }
    return {COLUMN_RULES: json.dumps(plain, separators=(",", ":"), ensure_ascii=False)}


def read_rules(whose: str, properties: Mapping[str, str]) -> ColumnRules:
    """Returns the rules that a table follows; `whose` names it in an error. Raises StateError."""
    text = properties.get(COLUMN_RULES)
    if text is None:
        return NO_RULES
    try:
        plain = json.loads(text)
        return ColumnRules(
            tuple(map(str, plain["drop"])),
            tuple((str(path), str(name)) for path, name in plain["rename"].items()),
            tuple((str(path), _read_mask(mask)) for path, mask in plain["mask"].items()),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateError(
            f"the property {COLUMN_RULES} of {whose} cannot be read; remove it, and the next export sets"
            " it as its topic says"
        ) from error


def _read_mask(text: str) -> Mask:
    how, _, length = text.partition(" ")
    return Mask(how, int(length or 0))


def paths_without_column(paths: Iterable[str], columns: Iterable[pa.Field]) -> tuple[str, ...]:
    """Returns the paths that lead to no column, with the one that is spelled alike but for case: `email
    (there is Email)`. A rule for such a path does nothing until a schema has the column."""
    there = _column_paths(columns, "")
    alike = {path.casefold(): path for path in there}
    return tuple(
        f"{path} (there is {alike[path.casefold()]})" if path.casefold() in alike else path
        for path in paths
        if path not in there
    )


def _column_paths(columns: Iterable[pa.Field], above: str) -> dict[str, None]:
    """Returns the paths of all columns, those of fields too, in their order."""
    found: dict[str, None] = {}
    for column in columns:
        path = f"{above}{column.name}"
        found[path] = None
        kind = column.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
            kind = kind.item_type if pa.types.is_map(kind) else kind.value_type
        if pa.types.is_struct(kind):
            found |= _column_paths(kind, f"{path}.")
    return found


def edits_of(rules: ColumnRules) -> Edits:
    """Returns what the rules do to columns, as if people had done it: `taken` is left out."""
    dropped = [(tuple(path.split(".")), "") for path in rules.dropped]
    renamed = [(tuple(path.split(".")), name) for path, name in rules.renamed]
    return _edits([*dropped, *renamed])


def _edits(rules: Iterable[tuple[tuple[str, ...], str]]) -> Edits:
    here = list(rules)
    below: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for path, name in here:
        if len(path) > 1:
            below.setdefault(path[0], []).append((path[1:], name))
    return Edits(
        dropped=frozenset(path[0] for path, name in here if len(path) == 1 and not name),
        renamed={path[0]: name for path, name in here if len(path) == 1 and name},
        inner={name: _edits(some) for name, some in below.items()},
    )


def masks_of(rules: ColumnRules) -> Mapping[str, Any]:
    """Returns the masks as a tree: by a column's name its mask, or the same of its fields."""
    found: dict[str, Any] = {}
    for path, mask in rules.masked:
        *above, last = path.split(".")
        at = found
        for name in above:
            at = at.setdefault(name, {})
        at[last] = mask
    return found
