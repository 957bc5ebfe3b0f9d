"""Which topics hold old records for their export, and how long still. Pure.

For the metric, so that somebody hears of an export that stands still before records go without it
(`frazil.iceberg.retention.hold.max.ms`). Left out: that they go (`broker.jobs.kinds.retention_plan`).
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from broker.config.kafka_settings import KafkaSettings
from broker.config.table_configs import RETENTION_HOLD
from broker.config.topic_configs import TopicSettings, effective
from broker.jobs.kinds.retention_plan import held_ms
from broker.jobs.kinds.walk import timestamp_of
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition
from coordinator.tables.topics import Topic

PARTITIONS_LOOKED_AT: Final = 20_000
"""Of topics that hold something: a scrape must not make the agent stand still."""
ROWS_LOOKED_AT: Final = 100
"""Of a partition, for one with a timestamp."""


def hold_left_ms(machine: Machine, kafka: KafkaSettings) -> dict[str, int]:
    """By topic: when the first of its records go that have outlived retention.ms and are not
    exported. Topics that hold nothing are not named."""
    left: dict[str, int] = {}
    for topic, settings, partition in islice(_holding(machine, kafka), PARTITIONS_LOOKED_AT):
        exported = machine.exports.offset(topic.topic_id, partition.partition)
        timestamp = _oldest(partition, exported)
        age_ms = machine.time_ms - timestamp
        if timestamp >= 0 and age_ms >= settings.retention_ms:
            rest_ms = held_ms(settings) - age_ms
            left[topic.name] = min(rest_ms, left.get(topic.name, rest_ms))
    return left


def _holding(
    machine: Machine, kafka: KafkaSettings
) -> Iterator[tuple[Topic, TopicSettings, Partition]]:
    for topic in machine.topics:
        if RETENTION_HOLD not in topic.configs:
            continue
        settings = effective(topic.configs, kafka)
        if settings.hold_ms < 0 or not settings.deleted:
            continue
        for number in range(topic.partition_count):
            partition = machine.partitions.find(topic.topic_id, number)
            if partition is not None:
                yield topic, settings, partition


def _oldest(partition: Partition, exported: int) -> int:
    """Timestamp of the first row that is not exported; -1: there is none."""
    first = partition.find(max(exported, partition.log_start))
    for index in range(first, min(first + ROWS_LOOKED_AT, partition.row_count)):
        if (timestamp := timestamp_of(partition.row(index))) >= 0:
            return timestamp
    return -1
