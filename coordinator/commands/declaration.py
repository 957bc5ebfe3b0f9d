"""What a command of the log and an outcome are besides their fields, said once, where they are.

    @command(52, bounds_log=True)
    @dataclass(frozen=True, slots=True)
    class DoomObjects:
        grace_ms: UInt63
        objects: Objects

From the number and the types of the fields follow the bytes in an entry (`layout`), their size, and
the line that people see (`broker.reports.log_lines`). Numbers are in logs: one is never used again,
and its fields and their layouts never change.

An outcome has a tag and the `struct` codes with which it goes into the digest of a replica: these
too are compared between agents of two releases, and never change.
"""

import re
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from struct import Struct, pack
from typing import Any, Final, NamedTuple, TypeVar

from coordinator.commands.layout import Layout, field_names, fields_of, layouts_of

KindT = TypeVar("KindT", bound=type)

_CODE: Final = re.compile("[0-9]*[a-zA-Z]")


class Declaration(NamedTuple):
    """Of a command."""

    number: int
    """Its first byte in an entry."""
    layout: Layout[Any]
    """Of the bytes that follow."""
    bounds_log: bool
    """It is appended over the log's budget, too: a snapshot needs it, and a cut needs a snapshot;
    or it comes to an end without new records."""
    changes_state: bool
    """It is a reason for a snapshot: an idle cluster, which has only other ones, makes none."""


DECLARATIONS: Final[dict[type, Declaration]] = {}
READERS: Final[dict[int, Callable[[bytes, int], tuple[Any, int]]]] = {}
"""By number: what reads the bytes that follow."""
DIGESTED: Final[dict[type, Callable[[Any], bytes]]] = {}
"""By kind of outcome: its bytes in the digest, injective for each kind, and a tag in front."""

_TAGS: Final[set[int]] = set()


def command(
    number: int,
    *,
    order: Sequence[str] = (),
    layout: Layout[Any] | None = None,
    bounds_log: bool = False,
    changes_state: bool = True,
) -> Callable[[KindT], KindT]:
    """Declares a command. `order`: of the fields in its bytes, when it is not that of the class;
    `layout`: written by hand."""

    def declare(kind: KindT) -> KindT:
        assert 0 < number < 256
        assert number not in READERS, f"{kind.__name__}: number {number} is taken"
        chosen = layout or fields_of(kind, **layouts_of(kind, order))
        DECLARATIONS[kind] = Declaration(number, chosen, bounds_log, changes_state)
        READERS[number] = chosen.read
        return kind

    return declare


def outcome(
    tag: int, fields: str = "", *, rows: str = "", besides: Sequence[str] = ()
) -> Callable[[KindT], KindT]:
    """Declares an outcome: the codes of its first fields, and of each row of the tuple that is the
    next one. `besides` are no part of the digest: sentences for people may change."""

    def declare(kind: KindT) -> KindT:
        assert 0 < tag < 256
        assert tag not in _TAGS, f"{kind.__name__}: tag {tag} is taken"
        names = [name for name in field_names(kind) if name not in besides]
        codes = [*_CODE.findall(fields), *([rows] if rows else [])]
        assert len(codes) == len(names), f"{kind.__name__} has {names}, not {codes}"
        _TAGS.add(tag)
        DIGESTED[kind] = _digested(tag, fields, rows, names)
        return kind

    return declare


def _digested(tag: int, fields: str, rows: str, names: Sequence[str]) -> Callable[[Any], bytes]:
    head = Struct(f"<B{fields}")
    taken = names[: len(_CODE.findall(fields))]
    only_tag = head.pack(tag) if not taken else b""

    def fields_digested(outcome: Any) -> bytes:
        return only_tag or head.pack(tag, *[getattr(outcome, name) for name in taken])

    if not rows:
        return fields_digested
    of_rows = attrgetter(names[len(taken)])
    codes = _CODE.findall(rows)
    if len({*codes}) > 1:
        row = Struct(f"<{rows}")

        def rows_digested(outcome: Any) -> bytes:
            found = of_rows(outcome)
            packed = b"".join([row.pack(*each) for each in found])
            return fields_digested(outcome) + pack("<I", len(found)) + packed
    else:
        width, code, flat = len(codes), codes[0], len(codes) == 1

        def rows_digested(outcome: Any) -> bytes:
            found = of_rows(outcome)
            values = found if flat else chain.from_iterable(found)
            packed = pack(f"<BI{width * len(found)}{code}", tag, len(found), *values)
            return packed if only_tag else fields_digested(outcome) + packed[1:]

    return rows_digested
