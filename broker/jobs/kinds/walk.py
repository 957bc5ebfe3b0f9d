"""The way over all partitions, in slices, and what the planners ask of rows. Pure.

A walk costs about a microsecond for a partition that has nothing to do; who walks gives way to
the loop after every SLICE of them. Topics that are created on the way are not met, those that are
deleted are left out.
"""

from collections.abc import Iterator
from typing import Final

from broker.config.topic_configs import TopicSettings
from broker.config.topic_rules import TopicRules
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition
from storage.formats.spans import MARKER_BYTES, Marker, Page, Row, Span

SLICE: Final = 500
"""Partitions between two turns of the loop."""

WIDTH_SHARE: Final = 8
"""What is put together is at most this part of a topic's time limits wide: what waits for its
newest record waits so much longer at most."""


def written(machine: Machine, rules: TopicRules) -> Iterator[tuple[Partition, TopicSettings]]:
    """Partitions that hold something, with what is set for their topics now."""
    for partition in list(machine.partitions.written()):
        topic = machine.topics.by_id(partition.topic_id)
        if topic is not None and partition.row_count > 0:
            yield partition, rules.of(topic)


def timestamp_of(row: Row) -> int:
    """The newest, ms; -1 when it has none."""
    return row.timestamp if isinstance(row, Marker) else row.timestamp_max


def data_bytes_of(row: Row) -> int:
    """Bytes of objects with records that it stands for."""
    if isinstance(row, Span):
        return row.length
    return row.data_bytes if isinstance(row, Page) else 0


def moved_bytes_of(row: Span | Marker) -> int:
    """Bytes that it takes in a segment, at most: a marker has some there."""
    return row.length if isinstance(row, Span) else MARKER_BYTES


def width_ms_max(settings: TopicSettings) -> int | None:
    """How far apart the timestamps in one row or page may be; None: as far as they like."""
    limits = []
    if settings.deleted and settings.retention_ms >= 0:
        limits.append(settings.retention_ms)
    if settings.compacted:
        limits += [settings.max_compaction_lag_ms]
        if settings.min_compaction_lag_ms > 0:
            limits.append(settings.min_compaction_lag_ms)
    return min(limits) // WIDTH_SHARE if limits else None
