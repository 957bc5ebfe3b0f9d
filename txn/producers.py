"""Producer sequences: is this batch new, a repetition, or out of order?

A *window* is what a partition remembers of one idempotent producer: its epoch, the last sequence
number and the newest five batches of that epoch (KIP-98, KIP-360; Kafka's `ProducerStateEntry`,
`ProducerAppendInfo`). It is packed bytes, so that a million of them are nothing for the garbage
collector to walk.

Invariants: the batches of a window follow each other without a gap modulo 2**31, so the first
sequence of each follows from the last sequence of all and the record counts; a window holds
batches of its epoch only. Epochs of batches are compared here and nowhere else. Without batches
(`fence`) the epoch's first sequence must be 0.

Left out: which transactions are open (`txn.transactions` decides about them), and when a window
has expired.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import ErrorCode

BATCHES_MAX = 5
"""Kafka's `NUM_BATCHES_TO_RETAIN`; clients keep at most this many requests in flight."""

SEQUENCE_MASK = (1 << 31) - 1
"""Sequence numbers are modulo 2**31: 2147483647 is followed by 0."""

# Epoch, last sequence (-1: no batch yet), machine time of the newest change; then, oldest first,
# records, base offset, newest timestamp of a batch.
_HEAD = Struct("<hiq")
_BATCH = Struct("<Iqq")
_WINDOWS: Final = tuple(Struct("<hiq" + "Iqq" * count) for count in range(BATCHES_MAX + 1))


class _Growing(NamedTuple):
    """How a window of some length becomes one that has a batch more."""

    read: Struct
    """The head, and of the batches how many records they have."""
    write: Struct
    """The head, the batches that stay, the new one."""
    kept: int
    """Where the batches begin that stay; at the maximum the oldest makes room."""


def _growing(count: int) -> _Growing:
    kept = _HEAD.size + (_BATCH.size if count == BATCHES_MAX else 0)
    stays = _WINDOWS[count].size - kept
    return _Growing(
        Struct("<hiq" + f"I{_BATCH.size - 4}x" * count), Struct(f"<hiq{stays}sIqq"), kept
    )


_GROWING: Final = {_WINDOWS[count].size: _growing(count) for count in range(BATCHES_MAX + 1)}
"""By the length of a window."""

WINDOW_BYTES_MAX = _WINDOWS[BATCHES_MAX].size
assert WINDOW_BYTES_MAX <= 200


@dataclass(frozen=True, slots=True)
class Fresh:
    """The batch is the producer's next: append it, then `advance` the window."""


class Duplicate(NamedTuple):
    """The batch was appended before; it must be answered as it was then."""

    base_offset: int
    timestamp_max: int


class WindowView(NamedTuple):
    """The fields of a window, for people."""

    epoch: int
    last_sequence: int
    """-1: there is no batch of this epoch."""
    last_timestamp: int
    """Newest timestamp of the newest batch; -1: there is none, or it carries none."""
    updated_ms: int
    """The machine's time at the newest batch or marker, from which expiry counts."""


Verdict = Fresh | Duplicate | ErrorCode

FRESH: Final = Fresh()


def check_sequence(
    window: bytes | None, *, epoch: int, first_sequence: int, records: int
) -> Verdict:
    """Compares a batch with its producer's `window` in the partition (None: no state).

    `records` counts offsets (last offset delta + 1). The order of the checks is Kafka's: a
    repetition is recognised before anything is refused. Refusals: INVALID_PRODUCER_EPOCH for an
    older epoch, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, for a repetition older than the window,
    and for a new epoch that does not begin at 0. Without state any sequence is accepted: what was
    known may have expired.
    """
    if window is None:
        return FRESH
    count = (len(window) - _HEAD.size) // _BATCH.size
    fields = _WINDOWS[count].unpack(window)
    if epoch == fields[0]:
        last: int = fields[1]
        wanted = (first_sequence + records - 1) & SEQUENCE_MASK
        # Newest first: the last sequence of the batch before is one less than this one's first.
        for at in range(3 * count, 2, -3):
            if last == wanted and fields[at] == records:
                return Duplicate(fields[at + 1], fields[at + 2])
            last = (last - fields[at]) & SEQUENCE_MASK
        if first_sequence == (fields[1] + 1) & SEQUENCE_MASK:
            return FRESH
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if epoch < fields[0]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if first_sequence != 0:
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return FRESH


def advance(
    window: bytes | None,
    *,
    epoch: int,
    first_sequence: int,
    records: int,
    base_offset: int,
    timestamp_max: int,
    updated_ms: int,
) -> bytes:
    """The window after a batch that `check_sequence` called fresh was appended at `base_offset`."""
    last = (first_sequence + records - 1) & SEQUENCE_MASK
    batch = _BATCH.pack(records, base_offset, timestamp_max)
    if window is None or _HEAD.unpack_from(window)[0] != epoch:
        return _HEAD.pack(epoch, last, updated_ms) + batch
    # At the maximum the oldest batch makes room.
    kept = _HEAD.size + (_BATCH.size if len(window) == WINDOW_BYTES_MAX else 0)
    return _HEAD.pack(epoch, last, updated_ms) + window[kept:] + batch


def continued(
    window: bytes,
    *,
    epoch: int,
    first_sequence: int,
    records: int,
    base_offset: int,
    timestamp_max: int,
    updated_ms: int,
) -> bytes | None:
    """What `advance` makes of a batch that goes on where the window ends; None: ask `check_sequence`.

    Both in one look, for the batch that nearly all are: of the window's epoch, of the sequence that
    follows. It cannot be a repetition, unless the sequences of window and batch go once around.
    """
    read, write, kept = _GROWING[len(window)]
    before, last, _, *counts = read.unpack(window)
    if (
        epoch != before
        or first_sequence != (last + 1) & SEQUENCE_MASK
        or sum(counts) + records > SEQUENCE_MASK
    ):
        return None
    last = (last + records) & SEQUENCE_MASK
    return write.pack(epoch, last, updated_ms, window[kept:], records, base_offset, timestamp_max)


def fence(window: bytes, *, epoch: int, updated_ms: int) -> bytes:
    """The window after a transaction's marker.

    Of the epoch it has: sequences go on (TV1). Of a newer one: nothing older is taken from now
    on, and the epoch begins at 0 (KIP-890).
    """
    before, last, _ = _HEAD.unpack_from(window)
    if before == epoch:
        return _HEAD.pack(epoch, last, updated_ms) + window[_HEAD.size :]
    return _HEAD.pack(epoch, -1, updated_ms)


def updated_ms(window: bytes) -> int:
    """The machine's time at the newest batch or marker."""
    changed_ms: int = _HEAD.unpack_from(window)[2]
    return changed_ms


def describe(window: bytes) -> WindowView:
    epoch, last, changed_ms = _HEAD.unpack_from(window)
    timestamp = -1
    if len(window) > _HEAD.size:
        _, _, timestamp = _BATCH.unpack_from(window, len(window) - _BATCH.size)
    return WindowView(epoch, last, timestamp, changed_ms)
