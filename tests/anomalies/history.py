"""Histories of clients, and what every anomaly is judged by (docs/design/anomalies.md §2.0).

A history is a list of operations in the order in which they were seen; each is a mapping:

    process   int: one client life (after an operation of unknown fate, a new number); other
              processes, such as the one that injects faults, are strings and are left out
    type      "invoke", then one of "ok", "fail" (it did not happen), "info" (unknown)
    f         "send", "poll", "txn" (sends and polls), "assign", "subscribe", or anything else
    value     of send, poll and txn a list of steps; of assign and subscribe a list of keys
    rebalance-log   optional, of a completion: [{"type": ..., "keys": [...]}] seen meanwhile

A step is ["send", key, value] when invoked and ["send", key, [offset, value]] once the offset is
known (None: it is not), or ["poll"] and then ["poll", [[key, [[offset, value], ...]], ...]] or
["poll", {key: [[offset, value], ...]}]. A completion that failed has what was seen before. A key is
a number that stands for a partition; a value is a number never sent twice to its key. What has no
completion is taken for "info".

`Recorder` writes such histories. Left out: times; the order of the list is the real-time order.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SENDS = ("send", "txn")
POLLS = ("poll", "txn")
DATA = ("send", "poll", "txn")
ASSIGNS = ("assign", "subscribe")

RawOp = Mapping[str, Any]


class Written(NamedTuple):
    offset: int | None
    value: int


class Read(NamedTuple):
    offset: int
    value: int


@dataclass(frozen=True, eq=False)
class Op:
    """A completed operation."""

    index: int
    """Of its completion in the history, or of its invocation if it has none."""
    invoked: int
    process: int
    type: str
    f: str
    keys: tuple[int, ...] = ()
    """Of assign and subscribe."""
    writes: Mapping[int, Sequence[Written]] = field(default_factory=dict)
    """By key, in order."""
    reads: Mapping[int, Sequence[Read]] = field(default_factory=dict)
    """By key, in order, all polls put together."""
    rebalanced: frozenset[int] = frozenset()
    """Keys that came or went meanwhile."""


class Recorder:
    """Writes a history while clients run: one list for all of them, since its order counts."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []

    def invoke(self, process: int, f: str, value: Sequence[Any]) -> None:
        """A client is about to do something; it does one thing at a time."""
        self._append(process, "invoke", f, value)

    def complete(self, process: int, type: str, f: str, value: Sequence[Any]) -> None:
        """It is done: "ok", "fail" or "info"; `value` has what was learned, also if it failed."""
        assert type in ("ok", "fail", "info")
        self._append(process, type, f, value)

    def _append(self, process: int, type: str, f: str, value: Sequence[Any]) -> None:
        self.history.append({"process": process, "type": type, "f": f, "value": value})


def completions(history: Sequence[RawOp]) -> list[Op]:
    """The completed operations of clients, in order; those without an end come last."""
    ops: list[Op] = []
    pending: dict[int, tuple[int, RawOp]] = {}
    for index, raw in enumerate(history):
        process = raw["process"]
        if not isinstance(process, int):
            continue
        if raw["type"] == "invoke":
            pending[process] = (index, raw)
        else:
            invoked, _ = pending.pop(process, (index, raw))
            ops.append(_op(index, invoked, raw))
    ops.extend(_op(index, index, {**raw, "type": "info"}) for index, raw in pending.values())
    return ops


def _op(index: int, invoked: int, raw: RawOp) -> Op:
    f, value = raw["f"], raw["value"] or ()
    writes: defaultdict[int, list[Written]] = defaultdict(list)
    reads: defaultdict[int, list[Read]] = defaultdict(list)
    for step in value if f in DATA else ():
        if step[0] == "send" and f in SENDS:
            sent = step[2]
            known = isinstance(sent, Sequence)
            writes[int(step[1])].append(Written(*sent) if known else Written(None, sent))
        elif step[0] == "poll" and f in POLLS and len(step) > 1:
            for key, pairs in _by_key(step[1]):
                reads[key].extend(Read(*pair) for pair in pairs)
    keys = tuple(map(int, value)) if f in ASSIGNS else ()
    rebalanced = frozenset(
        int(key) for event in raw.get("rebalance-log") or () for key in event["keys"]
    )
    read = {key: pairs for key, pairs in reads.items() if pairs}
    return Op(index, invoked, raw["process"], raw["type"], f, keys, dict(writes), read, rebalanced)


def _by_key(polled: Any) -> Iterator[tuple[int, Sequence[Sequence[int]]]]:
    pairs: Iterable[Any] = polled.items() if isinstance(polled, Mapping) else polled
    for key, records in pairs:
        yield int(key), records


class Facts:
    """What follows from the completions before anything is judged."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        self.data = [op for op in ops if op.f in DATA]
        self.ok_reads: defaultdict[int, set[int]] = defaultdict(set)
        """By key, the values that operations read which went well."""
        self.readers: defaultdict[tuple[int, int], list[Op]] = defaultdict(list)
        self.writer: dict[tuple[int, int], Op] = {}
        for op in self.data:
            for key, reads in op.reads.items():
                values = {read.value for read in reads}
                if op.type == "ok":
                    self.ok_reads[key] |= values
                for value in sorted(values):
                    self.readers[key, value].append(op)
            for key, writes in op.writes.items():
                self.writer.update({(key, written.value): op for written in writes})
        self.log = self._log()
        self.order = {key: [min(at[offset]) for offset in at] for key, at in self.log.items()}
        """By key, one value for each offset in use, in order: gaps between offsets are legal."""
        self.position = {
            key: {value: index for index, value in enumerate(order)}
            for key, order in self.order.items()
        }

    def committed(self, op: Op) -> bool:
        """It must have happened: it says so, or something that it wrote was read."""
        if op.type == "info":
            return any(
                written.value in self.ok_reads[key]
                for key, writes in op.writes.items()
                for written in writes
            )
        return op.type == "ok"

    def _log(self) -> dict[int, dict[int, set[int]]]:
        """By key and offset, in order, the values that were seen there.

        By any poll of any operation, failed ones too: a consumer must never be given what is not
        safe. And by sends that must have happened.
        """
        found: defaultdict[int, defaultdict[int, set[int]]]
        found = defaultdict(lambda: defaultdict(set))
        for op in self.data:
            for key, reads in op.reads.items():
                for read in reads:
                    found[key][read.offset].add(read.value)
            for key, writes in op.writes.items() if self.committed(op) else ():
                for written in writes:
                    if written.offset is not None:
                        found[key][written.offset].add(written.value)
        return {key: dict(sorted(at.items())) for key, at in sorted(found.items())}

    def delta(self, key: int, before: int, after: int) -> int:
        """How far one value lies behind another; 1, as it should be, if that is not known."""
        known = self.known_delta(key, before, after)
        return 1 if known is None else known

    def known_delta(self, key: int, before: int, after: int) -> int | None:
        """As `delta`, but None if it is not known."""
        position = self.position.get(key, {})
        if before not in position or after not in position:
            return None
        return position[after] - position[before]
