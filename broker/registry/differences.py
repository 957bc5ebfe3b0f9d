"""Differences between two schemas, each a reason why one cannot read the other's values."""

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

PAIRS_MAX: Final = 50_000
"""Types compared with types in one comparison: unions within unions multiply. Real schemas take
hundreds."""


class Difference(NamedTuple):
    """One reason why a schema cannot read what was written with another."""

    kind: str
    """As Confluent names it: MISSING_ENUM_SYMBOLS, FIELD_KIND_CHANGED, ..."""
    path: str
    """Where, as a JSON pointer or a path of names and numbers."""
    text: str
    """A sentence; it calls the reading schema {reader} and the writing one {writer}."""

    def message(self, *, reader: str, writer: str) -> str:
        """In the form of Confluent's messages, the schemas called so ("new", "old")."""
        said = self.text.replace("{reader}", reader).replace("{writer}", writer)
        return f"{{errorType:'{self.kind}', description:'{said}', additionalInfo:'{self.path}'}}"


class SchemaChange(NamedTuple):
    """What one schema says otherwise than another, harmful or not."""

    kind: str
    path: str
    """Where, from where the comparison began."""


Changes = list[SchemaChange]


def harmful(changes: Iterable[SchemaChange], harmless: Container[str]) -> list[Difference]:
    """The changes after which the reader cannot read all that was written, each with a sentence."""
    return [
        Difference(
            kind,
            path,
            f"{kind.replace('_', ' ').lower()} at path '{path}' in the {{reader}} schema,"
            " compared with the {writer} schema",
        )
        for kind, path in changes
        if kind not in harmless
    ]
