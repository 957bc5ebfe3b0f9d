"""What a check has found: as JSON, as an agent answers it and `--json` prints it, and as lines. Pure."""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.check.comparison import MOVED, Counted, Foreign, Wrong, kind_name
from broker.check.lost_ranges import LostRange
from broker.reports.tables import table
from protocol.fault_codes import FaultCode, Sentence
from protocol.types import Position
from storage.formats.spans import ObjectKind

ADVICE: Final = {
    "found again": (
        "Of the pages that are found again nothing is lost: segments say where their records are. frazil check --repair"
        " puts them back."
    ),
    "records": (
        "Put the objects back if a copy is to be had (a version that the bucket keeps, a replica of it) and check again."
        " Else frazil check --repair declares their offsets lost: consumers go on behind them."
    ),
    "page": (
        "Of a page the records may all be there, but nothing says any more where: with the index object put back all is"
        " as before, with --repair they are lost."
    ),
    "snapshot": (
        "An agent that starts takes the other snapshot; frazil job run snapshot makes a new one, and when two are"
        " new nobody needs this one."
    ),
    "moved": (
        "Segments in which a batch has moved: nothing is missing, and what is read has the offsets that are there now. Put the"
        " objects back if a copy is to be had; --repair lets them be."
    ),
    "unranged": (
        "No record that could be read is lost: what lay there is deleted and waits to be dropped, or was read and is whole."
    ),
}


class Checked(NamedTuple):
    """What was found, as of the machine's position."""

    position: Position
    deep: bool
    counted: Mapping[ObjectKind, Counted]
    wrong: Sequence[Wrong]
    ranges: Sequence[LostRange]
    unnamed: Mapping[str, Any]
    """As `UnnamedObjects.view` has it."""
    foreign: Foreign
    spans: int
    """That were read and compared."""


def view(found: Checked) -> dict[str, Any]:
    """For JSON."""
    wrong = Counter((each.kind, each.trouble) for each in found.wrong)
    kinds = [
        {
            "kind": name,
            "objects": found.counted[kind].objects,
            "bytes": found.counted[kind].bytes,
            "missing": wrong[name, "missing"],
            "damaged": sum([wrong[name, each] for each in ("length", "damaged", MOVED)]),
        }
        for kind in ObjectKind
        for name in [kind_name(kind)]
    ]
    return {
        "position": found.position,
        "deep": found.deep,
        "spans_read": found.spans,
        "kinds": kinds,
        "wrong": [each._asdict() for each in found.wrong],
        "ranges": [_range_view(each) for each in found.ranges],
        "unnamed": dict(found.unnamed),
        "foreign": {
            "objects": found.foreign.objects,
            "bytes": found.foreign.bytes,
            "examples": list(found.foreign.examples),
        },
    }


def _range_view(each: LostRange) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "topic_id": each.topic_id.hex(),
        "partition": each.partition,
        "base_offset": each.base_offset,
        "next_offset": each.next_offset,
        "rows": each.rows,
        "digest": each.digest.hex(),
        "is_page": each.is_page,
        "page_body": b64encode(each.page_body).decode(),
        "objects": list(each.keys),
    }


def verdict(found: Mapping[str, Any]) -> Sentence:
    """What is wrong, in a sentence."""
    count = len(found["wrong"])
    what = "1 object is" if count == 1 else f"{count} objects are"
    return Sentence(f"{what} missing or damaged", FaultCode.OBJECT_LOST)


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """For a terminal, from the view."""
    yield from table(
        ("KIND", "OBJECTS", "BYTES", "MISSING", "DAMAGED"),
        [
            (each["kind"], each["objects"], each["bytes"], each["missing"], each["damaged"])
            for each in found["kinds"]
        ],
    )
    if found["wrong"]:
        yield ""
        yield from table(
            ("OBJECT", "TROUBLE", "WHAT"),
            [(each["key"], each["trouble"], each["text"]) for each in found["wrong"]],
        )
    if found["ranges"]:
        yield ""
        yield from range_lines(found)
    yield ""
    yield from _sentences(found)


def range_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The offsets that cannot be read."""
    yield from table(
        ("TOPIC", "PARTITION", "FROM", "TO", "WHAT", "IN"),
        [
            (
                each["topic"],
                each["partition"],
                each["base_offset"],
                each["next_offset"] - 1,
                what(each),
                ", ".join(each["objects"]),
            )
            for each in found["ranges"]
        ],
    )


def what(each: Mapping[str, Any]) -> str:
    """What of a range is lost, in a word or two."""
    if not each["is_page"]:
        return "records"
    return "found again" if each["page_body"] else "page"


def _sentences(found: Mapping[str, Any]) -> Iterator[str]:
    unnamed, foreign = found["unnamed"], found["foreign"]
    if unnamed["unnamed"]:
        yield (
            f"{unnamed['unnamed']} objects ({unnamed['bytes']} bytes) that the log does not name were put and not"
            f" committed; {unnamed['orphans']} of them will be deleted (frazil doctor lists them)."
        )
    if kept := unnamed.get("kept", 0):  # An agent of an older release does not say.
        yield (
            f"{kept} of them are of an era that is over: they may hold what was lost with its log, and are never deleted."
        )
    if foreign["objects"]:
        listed = ", ".join(foreign["examples"])
        more = ", …" if foreign["objects"] > len(foreign["examples"]) else ""
        yield (
            f"{foreign['objects']} objects ({foreign['bytes']} bytes) are not Frazil's, and nothing of Frazil reads or"
            f" deletes them: {listed}{more}."
        )
    whats = {what(each) for each in found["ranges"]}
    yield from [ADVICE[each] for each in ADVICE if each in whats]
    if any(each["trouble"] == MOVED for each in found["wrong"]):
        yield ADVICE["moved"]
    kinds = {each["kind"] for each in found["wrong"] if each["trouble"] != MOVED}
    if "snapshot" in kinds:
        yield ADVICE["snapshot"]
    if kinds - {"snapshot"} and not found["ranges"]:
        yield ADVICE["unranged"]
    if not found["wrong"]:
        read = f" and {found['spans_read']} spans are whole" if found["deep"] else ""
        yield f"The store has all that the log points at{read}."
