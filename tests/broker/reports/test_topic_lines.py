"""What `frazil topic` prints: tables, ids and JSON of topics."""

from uuid import UUID

import pytest

from broker.reports import topic_lines
from broker.reports.topic_lines import ConfigView, CreationView, PartitionView, TopicView
from protocol.messages import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.types import TOPIC_ID_ZERO, TopicId

PARTITIONS = [
    PartitionView(0, 1, (1, 2), (1,), first_offset=5, next_offset=1_000),
    PartitionView(1, None, (1, 2), (), first_offset=None, next_offset=None),
]


def view(**fields: object) -> TopicView:
    given = {
        "name": "t",
        "topic_id": "ID",
        "is_internal": False,
        "partitions": PARTITIONS,
        "configs": (),
    }
    return TopicView(**given | fields)


def test_ids_are_printed_as_kafka_prints_them() -> None:
    """By Kafka's Uuid.toString."""
    topic_id = TopicId(UUID("f8aa5ab0-3ff1-4c6d-9f0e-fb5d0ba7f8bc").bytes)
    assert topic_lines.id_text(topic_id) == "-KpasD_xTG2fDvtdC6f4vA"
    assert topic_lines.id_text(TOPIC_ID_ZERO) is None


def test_what_is_not_known_of_a_partition_is_a_dash() -> None:
    lines = topic_lines.describe_lines(view())
    assert lines[0] == "t: id ID, 2 partitions"
    assert [line.split() for line in lines[3:5]] == [
        ["0", "1", "1,2", "1", "5", "1000"],
        ["1", "-", "1,2", "-", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("configs", "ending"),
    [
        ((), [[], ["all", "configs", "are", "defaults"]]),
        (None, []),
        ((ConfigView("a.b", None, "S"),), [[], ["CONFIG", "VALUE", "SOURCE"], ["a.b", "-", "S"]]),
    ],
    ids=["defaults", "not told", "secret"],
)
def test_configs_are_told_below_the_partitions(configs: object, ending: list) -> None:
    lines = topic_lines.describe_lines(view(configs=configs, is_internal=True))
    assert lines[0] == "t: id ID, 2 partitions, internal"
    assert [line.split() for line in lines[5:]] == ending


def test_configs_with_their_defaults_are_left_out_and_unknown_sources_are_numbers() -> None:
    rows = [
        DescribeConfigsResourceResult(name=name, value="1", config_source=source)
        for name, source in (("c", 5), ("b", 1), ("a", 99))
    ]
    assert topic_lines.set_configs(DescribeConfigsResult(configs=rows)) == [
        ConfigView("a", "1", "99"),
        ConfigView("b", "1", "DYNAMIC_TOPIC_CONFIG"),
    ]


def test_the_replication_factor_is_that_of_the_first_partition() -> None:
    rows = [
        MetadataResponsePartition(partition_index=1, replica_nodes=[1]),
        MetadataResponsePartition(partition_index=0, replica_nodes=[1, 2, 3]),
    ]
    assert topic_lines.replication_factor(MetadataResponseTopic(partitions=rows)) == 3
    assert topic_lines.replication_factor(MetadataResponseTopic()) is None


@pytest.mark.parametrize(
    ("status", "line"),
    [
        ("created", 'topic "t" is created, id unknown'),
        ("exists", 'topic "t" is there already, id unknown'),
        ("valid", 'topic "t" would be created'),
        ("refused", None),
        ("unknown", None),
    ],
)
def test_of_a_creation_is_told_what_the_cluster_told(status: str, line: str | None) -> None:
    """Old clusters, and those that hide configs, tell neither an id nor a number of partitions."""
    assert topic_lines.created_line(CreationView("t", status)) == line
