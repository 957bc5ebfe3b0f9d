"""What somebody asks of a topic's records, as an address says it, and the addresses of what comes next. Pure.

    topic= partition= from=newest|beginning|offset|time where= search= uncommitted=1 at= way=back

`at` are places in partitions, `0:120.1:7`: a page goes on from there, back if `way` says so, else onwards. Without it
the page begins where `from` says, `where` being the offset or the time. No partition: all.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from broker.console.views.record_times import time_of

SEARCH_MAX: Final = 200
"""Characters."""
PLACES_MAX: Final = 64
"""Partitions of one page."""
OFFSET_DIGITS_MAX: Final = 18
PARTITION_DIGITS_MAX: Final = 9
NAME_MAX: Final = 249

Places = Mapping[int, int]
"""Offsets by partition."""


class QuestionError(ValueError):
    """An address asks for what there is not; the sentence says why."""


class Start(Enum):
    """Where a first page begins."""

    NEWEST = "newest"
    BEGINNING = "beginning"
    OFFSET = "offset"
    TIME = "time"


class RecordsAsked(NamedTuple):
    """A page of records."""

    topic: str
    partition: int | None = None
    """None: of all."""
    start: Start = Start.NEWEST
    where: str = ""
    """As it was written."""
    search: str = ""
    committed: bool = True
    at: Places = {}  # noqa: RUF012 - Nobody changes it.
    is_back: bool = False
    """Onto what is before `at`."""

    @property
    def goes_back(self) -> bool:
        """Whether records are looked for from newer to older ones."""
        return self.is_back if self.at else self.start is Start.NEWEST

    @property
    def newest_first(self) -> bool:
        """The order on the page, which is the same for all pages that follow one another."""
        return self.start is Start.NEWEST

    @property
    def follows(self) -> bool:
        """Whether it shows what is new when it is asked for again."""
        return self.start is Start.NEWEST and not self.at and not self.search

    @property
    def number(self) -> int:
        """Offset or time. Raises QuestionError."""
        if self.start is Start.OFFSET:
            return _number(self.where, "the offset", OFFSET_DIGITS_MAX)
        try:
            return time_of(self.where)
        except ValueError as error:
            raise QuestionError(str(error)) from error

    def query(self, at: Places | None = None, *, is_back: bool = False) -> dict[str, str]:
        """The address of this page, or of the one at these places."""
        said = {"topic": self.topic}
        if self.partition is not None:
            said["partition"] = str(self.partition)
        if self.start is not Start.NEWEST:
            said["from"] = self.start.value
        if self.where:
            said["where"] = self.where
        if self.search:
            said["search"] = self.search
        if not self.committed:
            said["uncommitted"] = "1"
        if at:
            said["at"] = ".".join(f"{each}:{offset}" for each, offset in sorted(at.items()))
            if is_back:
                said["way"] = "back"
        return said


def records_asked(query: Mapping[str, str]) -> RecordsAsked:
    """Raises QuestionError."""
    partition = query.get("partition", "").strip()
    start = query.get("from", "") or Start.NEWEST.value
    if start not in {each.value for each in Start}:
        raise QuestionError(f'from: "{start[:40]}" is none of newest, beginning, offset, time')
    asked = RecordsAsked(
        topic=query.get("topic", "")[:NAME_MAX],
        partition=_number(partition, "the partition", PARTITION_DIGITS_MAX) if partition else None,
        start=Start(start),
        where=query.get("where", "").strip()[:40],
        search=query.get("search", "")[:SEARCH_MAX],
        committed=query.get("uncommitted", "") != "1",
        at=_places(query.get("at", "")),
        is_back=query.get("way", "") == "back",
    )
    if not asked.at and asked.start in (Start.OFFSET, Start.TIME):
        assert asked.number >= 0
    return asked


class RecordAsked(NamedTuple):
    """One record."""

    topic: str
    partition: int
    offset: int
    committed: bool = True

    def query(self) -> dict[str, str]:
        """Its address."""
        said = {
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
        }
        return said if self.committed else said | {"uncommitted": "1"}


def record_asked(query: Mapping[str, str]) -> RecordAsked:
    """Raises QuestionError."""
    return RecordAsked(
        query.get("topic", "")[:NAME_MAX],
        _number(query.get("partition", ""), "the partition", PARTITION_DIGITS_MAX),
        _number(query.get("offset", ""), "the offset", OFFSET_DIGITS_MAX),
        query.get("uncommitted", "") != "1",
    )


def _places(text: str) -> Places:
    found: dict[int, int] = {}
    for each in text.split(".") if text else ():
        partition, colon, offset = each.partition(":")
        if not colon or len(found) >= PLACES_MAX:
            raise QuestionError(f"at: up to {PLACES_MAX} places, as 0:120.1:7")
        number = _number(partition, "the partition", PARTITION_DIGITS_MAX)
        found[number] = _number(offset, "the offset", OFFSET_DIGITS_MAX)
    return found


def _number(text: str, what: str, digits_max: int) -> int:
    said = text.strip().replace(",", "")
    if not said.isascii() or not said.isdigit() or len(said) > digits_max:
        raise QuestionError(f'{what}: "{text[:40]}" is not a number')
    return int(said)
