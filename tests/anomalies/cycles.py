"""Cycles among operations: each must have come before the next, and the last before the first.

Edges: *ww*, from the writer of a record to the writer of the next in its partition; *wr*, from the
writer of a record to all its readers; *realtime*, from what went well to what was invoked later.
Definitions: docs/design/anomalies.md §2.1. Kafka's transactions do not isolate writes, so cycles
with ww edges are no errors of a log; hence `ww_deps`.

A strongly connected component is named by the weakest level that it breaks, PL-1 (ww alone) before
PL-2 (ww and wr), each of which has a stronger form with realtime edges; and each gets a shortest
cycle as a witness (G0, G1c and their realtime forms).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.anomalies.history import Facts, RawOp
from tests.anomalies.records import Case

Graph = dict[int, dict[int, str]]
"""From each operation to those after it, with the kind of the edge."""

LEVELS = (
    ("PL-1-cycle-exists", "G0", ("ww",)),
    ("PL-2-cycle-exists", "G1c", ("ww", "wr")),
    ("strong-PL-1-cycle-exists", "G0-realtime", ("ww", "realtime")),
    ("strong-PL-2-cycle-exists", "G1c-realtime", ("ww", "wr", "realtime")),
)
SUPPRESSES = {
    "PL-1-cycle-exists": {level for level, _, _ in LEVELS},
    "PL-2-cycle-exists": {"strong-PL-2-cycle-exists"},
    "strong-PL-1-cycle-exists": {"strong-PL-2-cycle-exists"},
}


def cycles(facts: Facts, history: Sequence[RawOp], *, ww_deps: bool) -> dict[str, list[Case]]:
    """Components as (operations…), witnesses as ((operation, kind of edge)…), by their names."""
    if not facts.data:
        return {"empty-transaction-graph": [()]}
    edges = {"ww": _ww(facts) if ww_deps else {}, "wr": _wr(facts)}
    edges["realtime"] = realtime(facts, history)
    found: dict[str, list[Case]] = {}
    for component in components(_merged(edges.values())):
        inside = {kind: _within(graph, component) for kind, graph in edges.items()}
        done: set[str] = set()
        for level, name, kinds in LEVELS:
            graph = _merged(inside[kind] for kind in kinds)
            smaller = components(graph) if level not in done else []
            for part in smaller:
                found.setdefault(level, []).append(tuple(sorted(part)))
                found.setdefault(name, []).append(_shortest(_within(graph, part)))
            if smaller:
                done |= SUPPRESSES.get(level, set())
    return found


def _add(graph: Graph, before: int, after: int, kind: str) -> None:
    if before != after:
        graph.setdefault(before, {}).setdefault(after, kind)


def _ww(facts: Facts) -> Graph:
    """A value that lies at several offsets counts where it lies last."""
    graph: Graph = {}
    for key, position in facts.position.items():
        for value, at in position.items():
            before = facts.writer.get((key, facts.order[key][at - 1])) if at else None
            after = facts.writer.get((key, value))
            if before and after:
                _add(graph, before.index, after.index, "ww")
    return graph


def _wr(facts: Facts) -> Graph:
    graph: Graph = {}
    for key_and_value, readers in facts.readers.items():
        writer = facts.writer.get(key_and_value)
        if writer is not None:
            for reader in readers:
                _add(graph, writer.index, reader.index, "wr")
    return graph


def realtime(facts: Facts, history: Sequence[RawOp]) -> Graph:
    """The least edges of which all others follow: only to what nothing else came between."""
    graph: Graph = {}
    by_invocation = {op.invoked: op for op in facts.data}
    by_completion = {op.index: op for op in facts.data if op.type == "ok"}
    before: dict[int, frozenset[int]] = {}
    newest: frozenset[int] = frozenset()
    for index in range(len(history)):
        if (op := by_completion.get(index)) is not None:
            newest = (newest - before[op.index]) | {op.index}
        elif (op := by_invocation.get(index)) is not None:
            before[op.index] = newest
            for earlier in sorted(newest):
                _add(graph, earlier, op.index, "realtime")
    return graph


def _merged(graphs: Iterable[Graph]) -> Graph:
    merged: Graph = {}
    for graph in graphs:
        for before, afters in graph.items():
            for after, kind in afters.items():
                _add(merged, before, after, kind)
    return merged


def _within(graph: Graph, nodes: Iterable[int]) -> Graph:
    inside = set(nodes)
    return {
        before: {after: kind for after, kind in graph[before].items() if after in inside}
        for before in sorted(inside & graph.keys())
    }


def components(graph: Mapping[int, Mapping[int, str]]) -> list[list[int]]:
    """Strongly connected components of more than one node (Tarjan, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in graph:
        none: Iterator[int] = iter(())
        work = [(root, none)] if root not in number else []
        while work:
            node, afters = work.pop()
            if node not in number:
                number[node] = low[node] = len(number)
                stack.append(node)
                on_stack.add(node)
                afters = iter(graph.get(node, ()))
            for after in afters:
                if after not in number:
                    work += [(node, afters), (after, none)]
                    break
                if after in on_stack:
                    low[node] = min(low[node], low[after])
            else:
                if low[node] == number[node]:
                    at = stack.index(node)
                    part = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(part)
                    if len(part) > 1:
                        found.append(part)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
    return found


def _shortest(graph: Graph) -> Case:
    """A shortest cycle through the first operation of a component."""
    first = min(graph)
    came_from: dict[int, int] = {}
    queue = deque([first])
    while first not in came_from:
        node = queue.popleft()
        for after in sorted(graph.get(node, ())):
            if after not in came_from:
                came_from[after] = node
                queue.append(after)
    path: list[tuple[int, str]] = []
    node = first
    while not path or node != first:
        before = came_from[node]
        path.append((before, graph[before][node]))
        node = before
    return tuple(reversed(path))
