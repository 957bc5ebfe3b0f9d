"""What `frazil topic` prints of topics as Kafka's protocol tells of them: tables and JSON. Pure.

Ids of topics are as Kafka's tools print them. Left out: asking (`broker.cli.topics`), and where records
lie in the store (`broker.reports.topic_report`).
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.reports.group_report import Partition, count
from broker.reports.tables import Cell, table
from protocol.messages import DescribeConfigsResult, MetadataResponseTopic
from protocol.types import TOPIC_ID_ZERO, TopicId

DEFAULT_CONFIG: Final = 5
SOURCES: Final[Mapping[int, str]] = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    DEFAULT_CONFIG: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Where a config's value comes from, under Kafka's names (KIP-226)."""

CREATED: Final = "created"
EXISTS: Final = "exists"
VALID: Final = "valid"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"
"""Whether a topic is created is not known: no answer came in time."""


class PartitionView(NamedTuple):
    partition: int
    leader: int | None
    replicas: Sequence[int]
    isr: Sequence[int]
    first_offset: int | None
    """None: it was not to be had."""
    next_offset: int | None


class ConfigView(NamedTuple):
    name: str
    value: str | None
    """None: it is a secret."""
    source: str


class TopicView(NamedTuple):
    name: str
    topic_id: str | None
    is_internal: bool
    partitions: Sequence[PartitionView]
    configs: Sequence[ConfigView] | None
    """Those that differ from their defaults; None: the cluster does not tell them."""


class CreationView(NamedTuple):
    """What became of a topic that was to be created."""

    name: str
    status: str
    """CREATED, EXISTS (as was allowed), VALID (it could be created), REFUSED or UNKNOWN."""
    topic_id: str | None = None
    partition_count: int | None = None
    replication_factor: int | None = None
    error: str | None = None
    """The sentence that says why not."""


def id_text(topic_id: TopicId) -> str | None:
    """A topic's id as Kafka's tools print it; None when there is none."""
    if topic_id == TOPIC_ID_ZERO:
        return None
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def list_lines(rows: Iterable[MetadataResponseTopic]) -> list[str]:
    """The table of `frazil topic list`."""
    cells: list[list[Cell]] = [
        [each["name"], each["partition_count"], each["replication_factor"]]
        for each in list_json(rows)
    ]
    if not cells:
        return ["there are no topics"]
    return table(("NAME", "PARTITIONS", "REPLICAS"), cells)


def list_json(rows: Iterable[MetadataResponseTopic]) -> list[dict[str, Any]]:
    """The topics by name, for programs."""
    return [
        {
            "name": row.name,
            "topic_id": id_text(row.topic_id),
            "partition_count": len(row.partitions),
            "replication_factor": replication_factor(row),
            "is_internal": row.is_internal,
        }
        for row in sorted(rows, key=lambda row: row.name or "")
    ]


def replication_factor(row: MetadataResponseTopic) -> int | None:
    """That of its first partition, as Kafka's tools count; None without any."""
    first = min(row.partitions, key=lambda each: each.partition_index, default=None)
    return None if first is None else len(first.replica_nodes)


def topic_view(
    row: MetadataResponseTopic,
    starts: Mapping[Partition, int | None],
    ends: Mapping[Partition, int | None],
    configs: Sequence[ConfigView] | None,
) -> TopicView:
    """A topic by what several answers tell; the offsets are the first of each partition and the next."""
    name = row.name or ""
    return TopicView(
        name=name,
        topic_id=id_text(row.topic_id),
        is_internal=row.is_internal,
        partitions=[
            PartitionView(
                partition=each.partition_index,
                leader=each.leader_id if each.leader_id >= 0 else None,
                replicas=tuple(each.replica_nodes),
                isr=tuple(each.isr_nodes),
                first_offset=starts.get((name, each.partition_index)),
                next_offset=ends.get((name, each.partition_index)),
            )
            for each in sorted(row.partitions, key=lambda each: each.partition_index)
        ],
        configs=configs,
    )


def set_configs(described: DescribeConfigsResult, *, every: bool = False) -> list[ConfigView]:
    """The configs that differ from their defaults, or `every` one, by name."""
    return [
        ConfigView(row.name, row.value, SOURCES.get(row.config_source, str(row.config_source)))
        for row in sorted(described.configs, key=lambda row: row.name)
        if every or row.config_source != DEFAULT_CONFIG
    ]


def describe_lines(view: TopicView) -> list[str]:
    """A topic: its partitions, and its configs."""
    internal = ", internal" if view.is_internal else ""
    partitions = count(len(view.partitions), "partition")
    lines = [f"{view.name}: id {view.topic_id or 'unknown'}, {partitions}{internal}", ""]
    lines += table(
        ("PARTITION", "LEADER", "REPLICAS", "ISR", "FIRST", "NEXT"),
        [
            [
                each.partition,
                each.leader,
                _numbers(each.replicas),
                _numbers(each.isr),
                each.first_offset,
                each.next_offset,
            ]
            for each in view.partitions
        ],
    )
    if view.configs is None:
        return lines
    if not view.configs:
        return [*lines, "", "all configs are defaults"]
    return [*lines, "", *table(("CONFIG", "VALUE", "SOURCE"), view.configs)]


def _numbers(numbers: Iterable[int]) -> str | None:
    return ",".join(map(str, numbers)) or None


def describe_json(view: TopicView) -> dict[str, Any]:
    """Everything that `describe` knows of a topic, for programs."""
    configs = view.configs
    return {
        **view._asdict(),
        "partitions": [each._asdict() for each in view.partitions],
        "configs": None if configs is None else [each._asdict() for each in configs],
    }


def created_line(view: CreationView) -> str | None:
    """What became of a topic, in a line; None when it is an error."""
    made = (
        "" if view.partition_count is None else f" with {count(view.partition_count, 'partition')}"
    )
    topic_id = f", id {view.topic_id or 'unknown'}"
    endings = {
        CREATED: f"is created{made}{topic_id}",
        EXISTS: f"is there already{made}{topic_id}",
        VALID: f"would be created{made}",
    }
    ending = endings.get(view.status)
    return None if ending is None else f'topic "{view.name}" {ending}'


def trimmed_lines(firsts: Mapping[Partition, int]) -> list[str]:
    """The first offset of each partition that was trimmed, as a table."""
    rows: list[list[Cell]] = [[*where, first] for where, first in sorted(firsts.items())]
    return table(("TOPIC", "PARTITION", "FIRST"), rows) if rows else []
