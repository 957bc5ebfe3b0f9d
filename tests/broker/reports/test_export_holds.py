"""Which topics hold old records for their export, and how long still."""

from broker.config.kafka_settings import KafkaSettings
from broker.reports.export_holds import hold_left_ms
from coordinator.commands.entries import Tick
from coordinator.commands.group_commands import SetTopicConfigs
from coordinator.commands.table_commands import ExportEnd, ReportExport
from tests.coordinator.machine.job_story import JobStory

HOLD = "frazil.iceberg.retention.hold"
NOW_MS = 100_000


def held(*timestamps: int, partitions: int = 1, **configs: str) -> JobStory:
    """Rows of ten records with these timestamps, in each partition."""
    story = JobStory(partitions=partitions)
    wanted = {"retention.ms": "5000", HOLD: "true", f"{HOLD}.max.ms": "20000", **configs}
    story.do(story.agent, SetTopicConfigs(story.topic_id, tuple(sorted(wanted.items()))))
    for timestamp in timestamps:
        story.produce(10, timestamp=timestamp)
    story.do(story.agent, Tick(), clock_ms=NOW_MS)
    return story


def left(story: JobStory) -> dict[str, int]:
    return hold_left_ms(story.machine, KafkaSettings())


def test_the_oldest_record_that_is_not_exported_says_how_long_still():
    story = held(NOW_MS - 15_000, NOW_MS - 7_000, NOW_MS - 1_000)
    assert left(story) == {"events": 10_000}
    story.do(story.agent, ReportExport(story.topic_id, (ExportEnd(0, 10),)), clock_ms=NOW_MS)
    assert left(story) == {"events": 18_000}
    story.do(story.agent, ReportExport(story.topic_id, (ExportEnd(0, 20),)), clock_ms=NOW_MS)
    assert left(story) == {}, "what retention.ms keeps anyway is not held"
    story.do(story.agent, ReportExport(story.topic_id, (ExportEnd(0, 30),)), clock_ms=NOW_MS)
    assert left(story) == {}


def test_records_that_were_held_for_too_long_have_less_than_nothing_left():
    assert left(held(NOW_MS - 26_000)) == {"events": -1_000}


def test_the_partition_that_is_nearest_to_its_end_counts():
    story = held(NOW_MS - 15_000, partitions=3)
    story.produce(10, timestamp=NOW_MS - 20_000, partition=1)
    assert left(story) == {"events": 5_000 - (story.machine.time_ms - NOW_MS)}


def test_a_row_without_timestamp_is_passed_over():
    assert left(held(-1, NOW_MS - 15_000)) == {"events": 10_000}
    assert left(held(-1)) == {}


def test_where_nothing_waits_for_an_export_nothing_is_said():
    assert left(held(NOW_MS - 15_000, **{HOLD: "false"})) == {}
    assert left(held(NOW_MS - 15_000, **{"cleanup.policy": "compact"})) == {}
    assert left(held()) == {}


def test_without_a_limit_in_time_the_hold_is_all_there_is():
    assert left(held(NOW_MS - 15_000, **{"retention.ms": "-1"})) == {"events": 5_000}
