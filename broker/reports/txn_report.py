"""What `frazil txn` and `frazil feature` print, as tables and JSON. Pure.

Leaves out: asking for it (`broker.cli.txn_tool`, `broker.cli.feature_tool`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.reports.group_report import CoordinatorView, Partition, compact
from broker.reports.tables import Cell, table
from broker.transactions.views import OFFSETS_TOPIC, STATE_NAMES, STATES_ELSEWHERE
from protocol.errors import ErrorCode
from protocol.messages import DescribedTransaction, ListedTransaction
from txn.transactions import State

STATES: Final = (*STATE_NAMES.values(), *STATES_ELSEWHERE)
"""Under Kafka's names."""
ONGOING: Final = STATE_NAMES[State.ONGOING]

WORDS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.INVALID_PRODUCER_EPOCH: "it has ended meanwhile: the producer has a newer epoch",
    ErrorCode.INVALID_TXN_STATE: "it has ended meanwhile",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "you may not see that transactional id",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "you may not read the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "you may not do that in this cluster",
}


class OpenView(NamedTuple):
    """A producer whose transaction is open in a partition."""

    where: Partition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
    """Of its newest batch there, ms since the epoch."""
    transactional_id: str | None = None
    """None: no transactional id has that producer."""


class FeatureView(NamedTuple):
    name: str
    least: int | None
    """None: not told."""
    most: int | None
    level: int


def list_lines(found: Iterable[tuple[ListedTransaction, int]]) -> list[str]:
    """The table of `frazil txn list`, by transactional id; with each its coordinator."""
    rows: list[list[Cell]] = [
        [row.transactional_id, row.transaction_state, row.producer_id, node]
        for row, node in sorted(found, key=lambda item: item[0].transactional_id)
    ]
    if not rows:
        return ["there are no transactional ids"]
    return table(("TRANSACTIONAL-ID", "STATE", "PRODUCER", "COORDINATOR"), rows)


def list_json(found: Iterable[tuple[ListedTransaction, int]]) -> list[dict[str, Any]]:
    """The transactional ids in their order, for programs."""
    return [
        {
            "transactional_id": row.transactional_id,
            "state": row.transaction_state,
            "producer_id": row.producer_id,
            "coordinator": node,
        }
        for row, node in sorted(found, key=lambda item: item[0].transactional_id)
    ]


def describe_lines(
    row: DescribedTransaction,
    coordinator: CoordinatorView,
    groups: Mapping[int, Sequence[str]],
    *,
    now_ms: int,
    at: Callable[[int], str | None],
) -> list[str]:
    """Where the id stands and what takes part.

    `groups`: those whose offsets may be meant, by partition of Kafka's topic of offsets; `at`
    writes a time.
    """
    node_id, host, port = coordinator
    parts = [
        row.transaction_state,
        f"producer {row.producer_id} at epoch {row.producer_epoch}",
        f"timeout {row.transaction_timeout_ms} ms",
    ]
    if row.transaction_start_time_ms >= 0:
        begun = at(row.transaction_start_time_ms)
        ago_s = max(0, now_ms - row.transaction_start_time_ms) // 1000
        is_open = row.transaction_state == ONGOING
        parts.append(f"{'started' if is_open else 'the last one started'} {begun} ({ago_s} s ago)")
    parts.append(f"coordinator {node_id} at {host}:{port}")
    lines = [f"{row.transactional_id}: {', '.join(parts)}"]
    assigned = {
        topic.topic: topic.partitions for topic in row.topics if topic.topic != OFFSETS_TOPIC
    }
    if assigned:
        lines += ["", f"partitions: {compact(assigned)}"]
    for partition in offsets_partitions(row):
        names = " or ".join(groups.get(partition, ())) or "a group that is not listed"
        lines.append(f"offsets: of {names} ({OFFSETS_TOPIC}-{partition})")
    if row.transaction_state == ONGOING and not row.topics:
        lines.append("nothing takes part yet")
    return lines


def describe_json(
    row: DescribedTransaction, coordinator: CoordinatorView, groups: Mapping[int, Sequence[str]]
) -> dict[str, Any]:
    """Everything that `describe` knows, for programs."""
    return {
        "transactional_id": row.transactional_id,
        "state": row.transaction_state,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "timeout_ms": row.transaction_timeout_ms,
        "started_ms": row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
        "coordinator": coordinator._asdict(),
        "partitions": [
            {"topic": topic.topic, "partition": partition}
            for topic in row.topics
            if topic.topic != OFFSETS_TOPIC
            for partition in topic.partitions
        ],
        "offsets": [
            {"partition": partition, "groups": list(groups.get(partition, ()))}
            for partition in offsets_partitions(row)
        ],
    }


def offsets_partitions(row: DescribedTransaction) -> list[int]:
    """Partitions of Kafka's topic of offsets that take part, or would."""
    return [
        partition
        for topic in row.topics
        if topic.topic == OFFSETS_TOPIC
        for partition in topic.partitions
    ]


def hanging_lines(found: Sequence[OpenView], at: Callable[[int], str | None]) -> list[str]:
    """The table of `frazil txn find-hanging`."""
    if not found:
        return ["no transaction hangs"]
    return table(
        ("TOPIC", "PARTITION", "PRODUCER", "EPOCH", "START-OFFSET", "LAST-WRITTEN", "ID"),
        [
            [
                *row.where,
                row.producer_id,
                row.epoch,
                row.start_offset,
                at(row.last_timestamp),
                row.transactional_id,
            ]
            for row in sorted(found, key=lambda row: (row.where, row.producer_id))
        ],
    )


def hanging_json(found: Iterable[OpenView]) -> list[dict[str, Any]]:
    """What hangs where, for programs."""
    return [
        {
            "topic": row.where[0],
            "partition": row.where[1],
            "producer_id": row.producer_id,
            "producer_epoch": row.epoch,
            "start_offset": row.start_offset,
            "last_timestamp_ms": row.last_timestamp if row.last_timestamp >= 0 else None,
            "transactional_id": row.transactional_id,
        }
        for row in sorted(found, key=lambda row: (row.where, row.producer_id))
    ]


def feature_lines(found: Sequence[FeatureView], epoch: int) -> list[str]:
    """The table of `frazil feature describe`."""
    rows: list[list[Cell]] = [
        [row.name, row.least, row.most, row.level]
        for row in sorted(found, key=lambda row: row.name)
    ]
    return [*table(("FEATURE", "LEAST", "MOST", "LEVEL"), rows), "", f"epoch {epoch}"]


def feature_json(found: Iterable[FeatureView], epoch: int) -> dict[str, Any]:
    """Features by name, for programs."""
    features = [row._asdict() for row in sorted(found, key=lambda row: row.name)]
    return {"epoch": epoch, "features": features}
