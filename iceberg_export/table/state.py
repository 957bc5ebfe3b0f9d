"""The state of a table's export: how it is written into a table, and which copy counts when read.

The state travels twice in the one atomic commit that adds the files: in the snapshot's summary
and in the table's properties. Reading it obeys three rules:

1. Walk the ancestors of `main`; the nearest summary that carries our keys wins. So a rollback
   rewinds the export, and what follows is exported again.
2. None carries them, since they have expired: earlier metadata files still tell whose child the
   head is (`catalog.view_of`), and rule 1 holds for what they tell. A catalog that keeps no such
   files (Nessie) keeps properties and head together: the property wins there, if the head is not
   older than the snapshot that wrote it.
3. Otherwise nobody knows whether the head has what the property claims: refuse.

A property that names another run than the nearest summary shows a rollback. What is read then
has a line of its own (`State.line`), so that whoever began before the rollback is refused.

Pure: works on `TableView`, which `iceberg_export.table.catalog` fills from PyIceberg's metadata.
Leaves out who may write (`commit`), and what the next run exports (`plan`).
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from iceberg_export.errors import StateError

PREFIX = "frazil."
OFFSETS = PREFIX + "offsets"
SEQ = PREFIX + "seq"
RUN_ID = PREFIX + "run-id"
SEQUENCE_NUMBER = PREFIX + "sequence-number"
TOPIC_ID = PREFIX + "topic-id"
TOPIC = PREFIX + "topic"
CLUSTER_ID = PREFIX + "cluster-id"
GAPS = PREFIX + "gaps"
LOST = PREFIX + "lost"
"""Not in tables that no release has written to since there is such a key."""
DEAD_LETTERS = PREFIX + "dead-letters"
PREV_OFFSETS = PREFIX + "prev-offsets"
REWRITE_ID = PREFIX + "rewrite-id"
"""Of a commit that replaces files by others with the same rows."""
LINE = PREFIX + "line"
POSITION = PREFIX + "position"
"""Not in tables that no release has written to since there is such a key."""
DEAD_LETTERS_MARK = PREFIX + "judged-by"
LAST_RECORDS = PREFIX + "seams"
"""In the properties alone: each retained snapshot would keep a copy, and only the newest counts."""
FOLLOWS = PREFIX + "follows"
"""Of tables of dead letters alone."""
REPLAYS = PREFIX + "replays"
"""Not in tables that no release has written to since there is such a key."""

LOST_MAX = 1000
"""Of a table: every retained snapshot carries a copy. Beyond it the oldest are forgotten."""
LOST_SHOWN_MAX = 10
PARTITIONS_PLAIN_MAX = 200
"""Above this the map is compressed: every retained snapshot carries a copy in metadata.json."""

_COMPRESSED = "z:"


class SnapshotView(NamedTuple):
    """One snapshot, as far as the rules need it."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    summary: Mapping[str, str]


class TableView(NamedTuple):
    """A table, as far as the rules need it."""

    name: str
    head_id: int | None
    """Snapshot that `main` points at; None when the table has none."""
    snapshots: Sequence[SnapshotView]
    """Those that the table has, and those expired ones that show which snapshots the head comes from."""
    properties: Mapping[str, str]
    keeps_metadata: bool = False
    """The catalog keeps earlier metadata files, which name expired snapshots."""


class Gap(NamedTuple):
    """Offsets [start, end) that nobody exported."""

    partition: int
    start: int
    end: int
    skipped: bool = False
    """A reset went ahead of them; else retention had removed them."""


class LostOffsets(NamedTuple):
    """Offsets [start, end) that an operator had declared lost before they were exported."""

    partition: int
    start: int
    end: int
    declared_ms: int

    def told(self) -> str:
        """Returns the sentence about it."""
        when = str(np.datetime64(self.declared_ms // 1000, "s")).replace("T", " ")
        many = f"offsets {self.start} to {self.end - 1} were"
        one = f"offset {self.start} was"
        which = many if self.end - self.start > 1 else one
        return f"partition {self.partition}: {which} declared lost on {when} UTC"


class LastRecord(NamedTuple):
    """The last record that the table, or its dead letters, have of a partition (`last_records`)."""

    offset: int
    digest: str
    """Of the record as it is in the log."""
    object_hash: str
    """Of the object that it was read from."""


class Follows(NamedTuple):
    """Which commits of the main table the dead letters are those of."""

    mark: str
    """Of the main table's state that they are consistent with."""
    seq_by_line: Mapping[str, int]
    """By line of the main table: the number of its newest commit whose dead letters are here."""
    was_reset: bool = False
    """A reset may have removed dead letters of lines that are not in `seq_by_line`."""
    replays: Mapping[str, str] = {}
    """Of the main table, in order: by the id of its commit the run id of the commit that removed the
    dead letters here; "" when nothing says which it was."""


FOLLOWS_NOTHING = Follows("", {})


class State(NamedTuple):
    """Everything before `offsets[partition]` is in the table; a missing partition is new."""

    topic_id: str
    """32 hex digits."""
    offsets: dict[int, int]
    seq: int
    """Number of data commits so far; the empty first snapshot is 0."""
    run_id: str
    gaps: tuple[Gap, ...] = ()
    dead_letters: str = ""
    """Files of dead letters that belong to this state's commit, as `dead_letters` writes them."""
    line: str = ""
    """A series of commits, each upon the one before; a rollback or a reset begins another line."""
    dead_letters_mark: str = ""
    """Mark of the dead letters that this commit has left out; "" when there was no such table."""
    follows: Follows = FOLLOWS_NOTHING
    position: int = 0
    """Position of the log when it told of the records; 0: unknown."""
    last_records: Mapping[int, LastRecord] = {}
    """By partition; a partition whose last record is unknown is missing."""
    lost: tuple[LostOffsets, ...] = ()
    """By partition and offset, apart from each other."""
    replays: tuple[str, ...] = ()
    """Run ids of the newest commits in the table's history that added dead letters as rows."""

    @property
    def mark(self) -> str:
        """The identity of this state, also among those that rollbacks brought back."""
        return f"{self.run_id} {self.line}".rstrip()


def encode_offsets(offsets: Mapping[int, int]) -> str:
    """Returns JSON by partition, compressed when there are many."""
    text = json.dumps({str(p): offsets[p] for p in sorted(offsets)}, separators=(",", ":"))
    return _compressed(text, len(offsets))


def _compressed(text: str, partitions: int) -> str:
    if partitions <= PARTITIONS_PLAIN_MAX:
        return text
    return _COMPRESSED + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _decompressed(text: str) -> str:
    if not text.startswith(_COMPRESSED):
        return text
    try:
        packed = base64.b64decode(text[len(_COMPRESSED) :], validate=True)
        return zlib.decompress(packed).decode()
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"offsets cannot be unpacked: {error}") from error


def decode_offsets(text: str) -> dict[int, int]:
    """The inverse of `encode_offsets`. Raises ValueError for anything else."""
    found = json.loads(_decompressed(text))
    if not isinstance(found, dict):
        raise TypeError("offsets are not a map")
    offsets: dict[int, int] = {}
    for partition, offset in found.items():
        if type(offset) is not int or offset < 0 or int(partition) < 0:
            raise ValueError(f"partition {partition!r} cannot be at {offset!r}")
        offsets[int(partition)] = offset
    return offsets


def _encode_gaps(gaps: Sequence[Gap]) -> str:
    text = json.dumps(
        [[*gap[:3], 1] if gap.skipped else gap[:3] for gap in gaps], separators=(",", ":")
    )
    return _compressed(text, len(gaps))


def _decode_gap(partition: int, start: int, end: int, skipped: int = 0) -> Gap:
    return Gap(int(partition), int(start), int(end), bool(skipped))


def _encode_last_records(state: State) -> str:
    """Returns them with their run's id: a release that does not know them leaves them where they were."""
    last_records = {str(p): list(state.last_records[p]) for p in sorted(state.last_records)}
    text = json.dumps([state.run_id, last_records], separators=(",", ":"))
    return _compressed(text, len(last_records))


def _decode_last_records(keys: Mapping[str, str], run_id: str) -> dict[int, LastRecord]:
    """Returns those of that run; none when they cannot be read, since they only ever warn."""
    try:
        whose, last_records = json.loads(_decompressed(keys.get(LAST_RECORDS, '["",{}]')))
        found = {
            int(p): LastRecord(int(at), str(d), str(o)) for p, (at, d, o) in last_records.items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}
    return found if whose == run_id else {}


def gaps_without(
    gaps: Sequence[Gap], starts: Mapping[int, int], ends: Mapping[int, int]
) -> tuple[Gap, ...]:
    """Returns the gaps without the offsets from `starts` to `ends`, by partition."""
    found = []
    for gap in gaps:
        start, end = starts.get(gap.partition, gap.end), ends.get(gap.partition, gap.end)
        found += [gap._replace(end=min(gap.end, start)), gap._replace(start=max(gap.start, end))]
    return tuple(gap for gap in found if gap.start < gap.end)


def joined_lost(
    lost: Sequence[LostOffsets], more: Sequence[LostOffsets]
) -> tuple[LostOffsets, ...]:
    """Returns both, neighbours as one with the newer time; at most LOST_MAX, the newest."""
    found: list[LostOffsets] = []
    for one in sorted([*lost, *more]):
        before = found[-1] if found else None
        if before is None or before.partition != one.partition or before.end < one.start:
            found.append(one)
            continue
        end, newest = max(before.end, one.end), max(before.declared_ms, one.declared_ms)
        found[-1] = before._replace(end=end, declared_ms=newest)
    if len(found) > LOST_MAX:
        found = sorted(found, key=lambda one: one.declared_ms)[-LOST_MAX:]
    return tuple(sorted(found))


def told_lost(lost: Sequence[LostOffsets]) -> list[str]:
    """Returns a sentence about each, the first few."""
    told = [one.told() for one in lost[:LOST_SHOWN_MAX]]
    if len(lost) > LOST_SHOWN_MAX:
        offsets = sum(one.end - one.start for one in lost[LOST_SHOWN_MAX:])
        told.append(
            f"{offsets} more offsets in {len(lost) - LOST_SHOWN_MAX} places were declared lost"
        )
    return told


def lost_before(lost: Sequence[LostOffsets], to: Mapping[int, int]) -> tuple[LostOffsets, ...]:
    """Returns the parts before the offsets that the export goes back to."""
    cut = [one._replace(end=min(one.end, to.get(one.partition, one.end))) for one in lost]
    return tuple(one for one in cut if one.start < one.end)


def encode_keys(
    state: State, *, sequence_number: int, previous: Mapping[int, int]
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns (properties, summary) of the commit that brings the table to `state`.

    `sequence_number` is the Iceberg sequence number that this commit will get; `previous` the
    offsets it began from, kept in the summary so that a snapshot tells its own ranges.
    """
    properties = {
        OFFSETS: encode_offsets(state.offsets),
        SEQ: str(state.seq),
        RUN_ID: state.run_id,
        SEQUENCE_NUMBER: str(sequence_number),
        TOPIC_ID: state.topic_id,
        GAPS: _encode_gaps(state.gaps),
        LOST: _compressed(json.dumps(state.lost, separators=(",", ":")), len(state.lost)),
        DEAD_LETTERS: state.dead_letters,
        LINE: state.line,
        DEAD_LETTERS_MARK: state.dead_letters_mark,
        POSITION: str(state.position),
        REPLAYS: " ".join(state.replays),
    }
    if state.follows != FOLLOWS_NOTHING:
        # Releases that know of no replays refuse four parts, and with them the table.
        parts = list(state.follows) if state.follows.replays else list(state.follows)[:3]
        properties[FOLLOWS] = json.dumps(parts, separators=(",", ":"))
    summary = {**properties, PREV_OFFSETS: encode_offsets(previous)}
    return {**properties, LAST_RECORDS: _encode_last_records(state)}, summary


def _decode(keys: Mapping[str, str], where: str) -> State:
    try:
        return State(
            topic_id=keys[TOPIC_ID],
            offsets=decode_offsets(keys[OFFSETS]),
            seq=int(keys[SEQ]),
            run_id=keys[RUN_ID],
            gaps=tuple(
                _decode_gap(*gap) for gap in json.loads(_decompressed(keys.get(GAPS, "[]")))
            ),
            dead_letters=keys.get(DEAD_LETTERS, ""),
            line=keys.get(LINE, ""),
            dead_letters_mark=keys.get(DEAD_LETTERS_MARK, ""),
            follows=Follows(*json.loads(keys.get(FOLLOWS, '["",{}]'))),
            position=int(keys.get(POSITION, "0")),
            last_records=_decode_last_records(keys, keys[RUN_ID]),
            lost=tuple(
                LostOffsets(*map(int, one))
                for one in json.loads(_decompressed(keys.get(LOST, "[]")))
            ),
            replays=tuple(keys.get(REPLAYS, "").split()),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise StateError(f"{where} carries an export state that cannot be read: {error}") from error


def read_state(table: TableView) -> State | None:
    """Returns the state of the export; None when the table has no snapshot and never had a state.

    Raises StateError when it cannot be known (rule 3, or unreadable keys).
    """
    chain = ancestors(table)
    for at in chain:
        if OFFSETS in at.summary:
            found = _decode(at.summary, f"snapshot {at.snapshot_id} of table {table.name}")
            newest = table.properties.get(RUN_ID, found.run_id)
            if newest == found.run_id:
                return found._replace(
                    last_records=_decode_last_records(table.properties, found.run_id)
                )
            return found._replace(line=f"{newest}>{found.run_id}", dead_letters_mark="")
    if OFFSETS not in table.properties:
        if not chain:
            return None
        raise StateError(
            f"table {table.name} has data but no export state: the exporter did not make it"
        )
    known = _decode(table.properties, f"table {table.name}")
    since = int(table.properties.get(SEQUENCE_NUMBER, "0"))
    if chain and chain[0].sequence_number >= since and not table.keeps_metadata:
        return known
    if chain and chain[0].sequence_number >= since:
        raise StateError(
            f"table {table.name} was changed by others, and no metadata file that is left tells "
            f"whether it was rolled back: the newest export ended at {encode_offsets(known.offsets)}; "
            "look whether those rows are there, then say where to go on with reset-offsets"
        )
    raise StateError(
        f"table {table.name} was rolled back behind its first known export; "
        f"drop it, or roll it forward to a snapshot that the exporter made"
    )


def ancestors(table: TableView) -> list[SnapshotView]:
    """Returns the head and its known ancestors, newest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots}
    found = []
    at = by_id.get(table.head_id) if table.head_id is not None else None
    while at is not None:
        found.append(at)
        at = by_id.get(at.parent_id) if at.parent_id is not None else None
    return found


def has_state(table: TableView) -> bool:
    """Tells whether the head or a known ancestor carries a state."""
    return any(OFFSETS in at.summary for at in ancestors(table))


def ancestor_states(table: TableView) -> list[State]:
    """Returns all states of the head and its known ancestors, as they were written, newest first."""
    return [
        _decode(at.summary, f"snapshot {at.snapshot_id} of table {table.name}")
        for at in ancestors(table)
        if OFFSETS in at.summary
    ]


def has_run(table: TableView, run_id: str) -> bool:
    """Tells whether a commit of this run is in the table.

    Any snapshot tells, not just the head: others may follow. So does the property: it comes with
    the commit only, and stays when the commit's snapshot has expired, or is not shown (Nessie
    tells of the newest alone).
    """
    if table.properties.get(RUN_ID) == run_id:
        return True
    return any(snapshot.summary.get(RUN_ID) == run_id for snapshot in table.snapshots)


def has_rewrite(table: TableView, rewrite_id: str) -> bool:
    """Tells whether that replacement of files is in the table."""
    return any(snapshot.summary.get(REWRITE_ID) == rewrite_id for snapshot in table.snapshots)


def keys_at_head(table: TableView) -> dict[str, str]:
    """Returns our keys at the head, for the summary of a commit that does not change them.

    Raises StateError when the state cannot be known.
    """
    if read_state(table) is None:
        return {}
    summaries = (at.summary for at in ancestors(table) if OFFSETS in at.summary)
    keys = next(summaries, table.properties)
    left_out = {PREV_OFFSETS, REWRITE_ID, TOPIC, CLUSTER_ID, LAST_RECORDS}
    return {
        name: value
        for name, value in keys.items()
        if name.startswith(PREFIX) and name not in left_out
    }


def highest_seq(table: TableView) -> int:
    """Returns the highest number of any commit, readable state or not; -1: none."""
    all_keys = [table.properties, *(snapshot.summary for snapshot in table.snapshots)]
    numbers = [keys[SEQ] for keys in all_keys if SEQ in keys]
    return max((int(number) for number in numbers if number.isdigit()), default=-1)
