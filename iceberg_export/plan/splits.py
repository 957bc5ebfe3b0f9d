"""From an agent's plan and a table's state to splits: which bytes which task reads.

Offsets are dense: the spans and markers of a partition join without a hole from the log's start to
its end, or the plan is refused. A split names whole spans and, for each, the offsets wanted from it
and the aborted transactions that have batches in it; markers (the ends of transactions, which have
no bytes) are in no split. Record batches are never cut. Two shapes, by the average length of a
span: *partition-major* (long spans: a task has adjacent offsets of few partitions) and
*chunk-major* (many short spans: a task has whole chunks, so each object is fetched once).

Pure. Leaves out how bytes are fetched (`read_chunks`) and decoded (`decode`).
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from iceberg_export.errors import AheadError, PlanError
from iceberg_export.table.state import Gap, LostOffsets
from protocol.types import Position, era_of, revision_of

SEGMENTS = "segments/"
"""Keys of objects that jobs of the agents have put together begin so."""
SPAN_BYTES_PARTITION_MAJOR_MIN = 64 * 1024
AHEAD_SHOWN_MAX = 3
"""Reasons in one sentence."""
SPLIT_BYTES_MIN = 8 * 1024 * 1024
"""Below this a task's own cost outweighs what a second core would gain."""


class StoreAddress(NamedTuple):
    """Where the agents keep the chunks."""

    url: str
    endpoint: str | None
    region: str | None
    path_style: bool


class Aborted(NamedTuple):
    """A transaction that was aborted: what its producer wrote in a range of offsets."""

    producer_id: int
    first_offset: int
    last_offset: int
    """That of its marker."""


class PlannedSpan(NamedTuple):
    """Adjacent batches of one partition in one object.

    In a chunk their offsets are dense and begin with the span's; in a segment (`is_absolute`)
    each batch says its own, ascending, and there may be holes, but none at the end.
    """

    partition: int
    key: str
    start: int
    """First byte in the object."""
    length: int
    """Bytes."""
    base_offset: int
    records: int
    """Offsets it takes, control records included."""
    offset_from: int
    """First offset wanted."""
    offset_to: int
    """First offset no longer wanted."""
    aborted: tuple[Aborted, ...] = ()
    """Those that may have batches among the offsets wanted."""
    timestamp_max: int = -1
    """Of all its records, ms; -1 when the agent does not know."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.records

    @property
    def is_absolute(self) -> bool:
        """The batches say their own offsets."""
        return self.key.startswith(SEGMENTS)


class EraBeginning(NamedTuple):
    """A log that was lost began anew there, with what is left of it."""

    begun: int
    """Position."""
    stable: int
    """The partition's last stable offset there: of the era before, nothing behind it is left."""


class PartitionPlan(NamedTuple):
    partition: int
    log_start: int
    end: int
    """The plan reaches so far."""
    stable: int
    """Last stable offset: nothing at or above it may be exported."""
    spans: tuple[PlannedSpan, ...]
    markers: tuple[int, ...] = ()
    """Offsets of ends of transactions: one each, no record. Those in segments are batches."""
    aborted: tuple[Aborted, ...] = ()
    compacted: bool = False
    """Log compaction may have removed records."""
    eras: tuple[EraBeginning, ...] = ()
    """Those after the first, oldest first."""
    lost: tuple[LostOffsets, ...] = ()
    """Declared lost, in order; there are no records."""

    @property
    def byte_count(self) -> int:
        return sum(span.length for span in self.spans)

    def kept_of(self, position: int) -> int | None:
        """Returns the last stable offset that is left of the era that the position is of; None: all of it."""
        return next((one.stable for one in self.eras if one.begun > position), None)


class TopicPlan(NamedTuple):
    """What an agent said of one topic at one position of the log."""

    topic: str
    topic_id: str
    position: int
    store: StoreAddress
    partitions: dict[int, PartitionPlan]
    cluster_id: str = ""
    configs: Mapping[str, str] = MappingProxyType({})
    """Effective `frazil.iceberg.*` of the topic."""
    registry: str = ""
    """Where the agents' schema registry is; "" when the agent tells none."""


class CommitRange(NamedTuple):
    """The offsets that one commit covers: `starts[p]` to `ends[p]` for every partition."""

    starts: dict[int, int]
    ends: dict[int, int]
    gaps: tuple[Gap, ...]
    spans: tuple[PlannedSpan, ...]
    markers: dict[int, int]
    """How many of the offsets are markers, for every partition that has some."""
    fills: bool = False
    """The offsets are of gaps, behind those of the table."""

    def lost_of(self, plan: TopicPlan) -> tuple[LostOffsets, ...]:
        """Returns those of the offsets that were declared lost."""
        found = []
        for number, start in self.starts.items():
            for one in plan.partitions[number].lost:
                within = one._replace(
                    start=max(one.start, start), end=min(one.end, self.ends[number])
                )
                found += [within] if within.start < within.end else []
        return tuple(found)

    @property
    def offset_count(self) -> int:
        return sum(self.ends.values()) - sum(self.starts.values())

    @property
    def byte_count(self) -> int:
        return sum(span.length for span in self.spans)


class Split(NamedTuple):
    """One task's share, in order of partition and offset."""

    number: int
    spans: tuple[PlannedSpan, ...]

    @property
    def byte_count(self) -> int:
        return sum(span.length for span in self.spans)


def _span(partition: int, row: Sequence[Any]) -> PlannedSpan:
    key, start, length, base_offset, records, timestamp_max = row
    span = PlannedSpan(
        partition=partition,
        key=str(key),
        start=int(start),
        length=int(length),
        base_offset=int(base_offset),
        records=int(records),
        offset_from=int(base_offset),
        offset_to=int(base_offset) + int(records),
        timestamp_max=int(timestamp_max),
    )
    is_path = not span.key.startswith("/") and ".." not in span.key.split("/")
    if min(span.start, span.length, span.base_offset) < 0 or span.records < 1 or not is_path:
        raise PlanError(f"the agent's plan has an impossible span: {list(row)}")
    return span


def parse_plan(answer: Mapping[str, Any]) -> TopicPlan:
    """Parses the JSON of `/export/plan`. Raises PlanError when it is not such a plan."""
    try:
        store = answer["store"]
        partitions = {}
        for part in answer["partitions"]:
            number = int(part["partition"])
            spans = tuple(_span(number, row) for row in part["spans"])
            partitions[number] = PartitionPlan(
                number,
                int(part["log_start"]),
                int(part["end"]),
                int(part["stable"]),
                spans,
                tuple(int(offset) for offset in part["markers"]),
                tuple(Aborted(*map(int, row)) for row in part["aborted"]),
                bool(part["compacted"]),
                tuple(EraBeginning(*map(int, row)) for row in part.get("eras", ())),
                tuple(LostOffsets(number, *map(int, row)) for row in part.get("lost", ())),
            )
        return TopicPlan(
            topic=str(answer["topic"]),
            topic_id=str(answer["topic_id"]),
            position=int(answer["position"]),
            store=StoreAddress(
                str(store["url"]),
                store.get("endpoint") or None,
                store.get("region") or None,
                bool(store.get("path_style")),
            ),
            partitions=partitions,
            cluster_id=str(answer.get("cluster_id", "")),
            configs={str(one): str(value) for one, value in answer.get("configs", {}).items()},
            registry=str(answer.get("registry") or ""),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PlanError(
            f"the agent's plan cannot be read ({type(error).__name__}: {error}); "
            "are exporter and agent of the same release?"
        ) from error


def merge_plans(plans: Iterable[TopicPlan]) -> TopicPlan:
    """Merges plans of one topic that name different partitions."""
    merged: TopicPlan | None = None
    for plan in plans:
        if merged is None:
            merged = plan
        elif plan.topic_id != merged.topic_id:
            raise PlanError(f"topic {plan.topic} was re-created while it was planned; run again")
        else:
            merged = merged._replace(partitions={**merged.partitions, **plan.partitions})
    if merged is None:
        raise PlanError("the topic has no partitions")
    return merged


def join_parts(part: PartitionPlan, more: PartitionPlan) -> PartitionPlan:
    """Joins a partition's plan and a later one of what follows: each holds for its own offsets.

    Rows may have moved between the two, so what follows may begin with a span that takes offsets
    of `part` as well, markers among them; those stay with `part`.
    """
    if more.log_start > part.end:
        return part._replace(stable=part.end)  # A gap, which the next plan begins with.
    following = tuple(
        span._replace(offset_from=max(span.offset_from, part.end))
        for span in more.spans
        if span.next_offset > part.end
    )
    return part._replace(
        end=more.end,
        stable=more.stable,
        spans=part.spans + following,
        markers=part.markers + tuple(offset for offset in more.markers if offset >= part.end),
        aborted=part.aborted + tuple(one for one in more.aborted if one not in part.aborted),
        compacted=part.compacted or more.compacted,
        # Each tells those between the log's start and its own end.
        lost=more.lost,
    )


class Clipped(NamedTuple):
    """What lies in a range of a partition's offsets, all of them."""

    spans: tuple[PlannedSpan, ...]
    """Each with the offsets wanted, and what was aborted among them."""
    markers: tuple[int, ...]


def clip(part: PartitionPlan, *, start: int, end: int, topic: str) -> Clipped:
    """Returns the spans and markers of [start, end). Raises PlanError at a hole."""
    spans: list[PlannedSpan] = []
    markers = [offset for offset in sorted(part.markers) if start <= offset < end]
    ahead = deque(markers)
    at = start
    for span in sorted(part.spans, key=lambda span: span.offset_from):
        at = _skip_markers(ahead, at)
        if span.next_offset <= at or span.offset_from >= end:
            continue
        if span.offset_from > at:
            break
        to = min(span.next_offset, end)
        spans.append(span._replace(offset_from=at, offset_to=to))
        at = to
    at = _skip_markers(ahead, at)
    if at < end or ahead:
        raise PlanError(
            f"the plan of {topic} partition {part.partition} has a hole at offset {at} "
            f"(its end is {end}); nothing was exported"
        )
    return Clipped(_with_aborted(spans, part.aborted), tuple(markers))


def _skip_markers(ahead: deque[int], at: int) -> int:
    """Returns the first offset from `at` on that no marker takes, and drops the markers before."""
    while ahead and ahead[0] == at:
        ahead.popleft()
        at += 1
    return at


def _with_aborted(
    spans: Sequence[PlannedSpan], aborted: Iterable[Aborted]
) -> tuple[PlannedSpan, ...]:
    """Returns the spans, each with the aborted transactions that reach into its offsets wanted."""
    waiting = deque(sorted(aborted, key=lambda one: one.first_offset))
    reaching: list[Aborted] = []
    found = []
    for span in spans:
        while waiting and waiting[0].first_offset < span.offset_to:
            reaching.append(waiting.popleft())
        reaching = [one for one in reaching if one.last_offset > span.offset_from]
        found.append(span._replace(aborted=tuple(reaching)) if reaching else span)
    return tuple(found)


def _limit(spans: Sequence[PlannedSpan], bytes_max: int) -> Sequence[PlannedSpan]:
    """Returns the first spans within a limit of bytes, at least one."""
    total = 0
    for count, span in enumerate(spans):
        total += span.length
        if total > bytes_max and count > 0:
            return spans[:count]
    return spans


def check_not_ahead(plan: TopicPlan, offsets: Mapping[int, int], position: int = 0) -> None:
    """Raises AheadError when a table has everything before `offsets` and the log has not, or is not
    yet at the `position` at which the table's last records were planned.

    Neither ever goes back, unless an older log is put back. Once that one has grown past the
    table, `last_records` show it. A log that was lost and recovered says itself how much of it is left.
    """
    reasons = [
        f"partition {number}: the table has what is before offset {offset}, "
        f"the log ends at {plan.partitions[number].stable}"
        for number, offset in sorted(offsets.items())
        if number in plan.partitions and offset > plan.partitions[number].stable
    ]
    if plan.position < position:
        reasons.append(
            f"the table was written when the log was at position {_position_text(position)}, "
            f"the log is at {_position_text(plan.position)}"
        )
    if reasons:
        raise ahead_error(plan.topic, reasons)
    check_not_lost(plan, offsets, position)


def check_not_lost(plan: TopicPlan, offsets: Mapping[int, int], position: int) -> None:
    """Raises AheadError when a table whose last records were planned at the `position` has what was
    lost of that era's log. A position of 0 tells nothing."""
    kept = {number: part.kept_of(position) for number, part in plan.partitions.items()}
    reasons = [
        f"partition {number}: the table has what is before offset {offset}, and of the log that it was "
        f"made from only what is before {end} was recovered"
        for number, offset in sorted(offsets.items())
        if position and (end := kept.get(number)) is not None and offset > end
    ]
    if reasons:
        raise ahead_error(plan.topic, reasons)


def ahead_error(topic: str, reasons: Sequence[str]) -> AheadError:
    """Returns the error for a table that has what the log has not, with what to do."""
    shown = "; ".join(reasons[:AHEAD_SHOWN_MAX])
    if len(reasons) > AHEAD_SHOWN_MAX:
        shown += f"; and {len(reasons) - AHEAD_SHOWN_MAX} more"
    return AheadError(
        f"{topic}, {shown}: the table is ahead of the log, so an older log was put back, or the "
        "log was recovered without its end, or this is not the cluster that the table was made from; put the newer log back, or, if its records "
        "are gone for good, make the table anew from what is left with `frazil export reset-offsets "
        f"--topic {topic} --to earliest`, or set table.name.{topic} to a new table"
    )


def _position_text(place: int) -> str:
    return f"{era_of(Position(place))}:{revision_of(Position(place))}"


def next_commit_range(
    plan: TopicPlan, offsets: Mapping[int, int], *, bytes_max: int, skip_gaps: bool
) -> CommitRange:
    """Returns what to export next, given the table's `offsets`; at most about `bytes_max` bytes.

    A partition without an offset begins at the log's start, and what was before that is a gap: no table
    will ever have it. One whose next offset retention has already removed is a gap, too: refused, or
    with `skip_gaps` skipped. Raises AheadError as `check_not_ahead`.
    """
    check_not_ahead(plan, offsets)
    starts: dict[int, int] = {}
    gaps: list[Gap] = []
    for number in sorted(plan.partitions):
        part = plan.partitions[number]
        start = offsets.get(number, 0)
        if start < part.log_start:
            if number in offsets and not skip_gaps:
                raise PlanError(
                    f"{plan.topic} partition {number}: offsets {start} to {part.log_start - 1} "
                    "were deleted before they were exported; set gap.policy=skip to go on"
                )
            gaps.append(Gap(number, start, part.log_start))
            start = part.log_start
        starts[number] = start
    missing = sorted(offsets.keys() - plan.partitions.keys())
    if missing:
        raise PlanError(f"the plan of {plan.topic} leaves out partition {missing[0]}")
    behind = {
        number: (start, plan.partitions[number].end)
        for number, start in starts.items()
        if start < plan.partitions[number].end
    }
    found = _within(plan, behind, bytes_max)
    return found._replace(starts=starts, ends={**starts, **found.ends}, gaps=tuple(gaps))


def fill_range(
    plan: TopicPlan, pieces: Mapping[int, tuple[int, int]], *, bytes_max: int
) -> CommitRange:
    """Returns what to export next of gaps, given offsets [start, end) by partition; at most about `bytes_max`
    bytes, and as far as the plan reaches. Raises PlanError."""
    reached = {
        number: (start, min(end, plan.partitions[number].end))
        for number, (start, end) in pieces.items()
    }
    return _within(plan, reached, bytes_max)._replace(fills=True)


def _within(plan: TopicPlan, ranges: Mapping[int, tuple[int, int]], bytes_max: int) -> CommitRange:
    """Returns the first part of offsets [start, end), by partition, that has at most so many bytes, or one
    span of each."""
    ends: dict[int, int] = {}
    spans: list[PlannedSpan] = []
    markers: dict[int, int] = {}
    for number, (start, end) in ranges.items():
        clipped = clip(plan.partitions[number], start=start, end=end, topic=plan.topic)
        chosen = _limit(clipped.spans, bytes_max // len(ranges))
        # Markers behind a span come with it: they cost nothing.
        left = clipped.spans[len(chosen) :]
        ends[number] = left[0].offset_from if left else end
        spans += chosen
        if count := sum(offset < ends[number] for offset in clipped.markers):
            markers[number] = count
    starts = {number: start for number, (start, _) in ranges.items()}
    return CommitRange(starts, ends, (), tuple(spans), markers)


def make_splits(
    spans: Sequence[PlannedSpan], *, bytes_max: int, parallelism: int
) -> tuple[Split, ...]:
    """Shares the spans out: about `bytes_max` each, less when cores would stay idle."""
    if not spans:
        return ()
    total = sum(span.length for span in spans)
    target = min(bytes_max, max(SPLIT_BYTES_MIN, -(-total // parallelism)))
    by_chunk = total // len(spans) < SPAN_BYTES_PARTITION_MAJOR_MIN
    if by_chunk:
        ordered = sorted(spans, key=lambda span: (span.key, span.start))
    else:
        ordered = sorted(spans, key=lambda span: (span.partition, span.offset_from))
    groups: list[list[PlannedSpan]] = []
    room = 0
    for span in ordered:
        cut_allowed = not by_chunk or not groups or groups[-1][-1].key != span.key
        if not groups or (room < span.length and cut_allowed):
            groups.append([])
            room = target
        groups[-1].append(span)
        room -= span.length
    return tuple(
        Split(index, tuple(sorted(group, key=lambda span: (span.partition, span.offset_from))))
        for index, group in enumerate(groups)
    )
