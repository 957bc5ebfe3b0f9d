"""Kafka's tools for topics and what lies in them, beside Kafka itself."""

from pathlib import Path
from typing import Final

import pytest

from tests.clients.kafka_tools import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    DELETE_RECORDS,
    GET_OFFSETS,
    LOG_DIRS,
    REASSIGN_PARTITIONS,
    TOPICS,
    KafkaTools,
)
from tests.clients.side_by_side import Asked, Pair, Stories, created, tell

pytestmark = pytest.mark.integration

FILES: Final = {
    "records": "one\ntwo\nthree\n",
    "keyed": "a:one\nb:two\n",
    "some_offsets": '{"version": 1, "partitions": ['
    '{"topic": "written", "partition": 0, "offset": 2}]}',
    "beyond": '{"version": 1, "partitions": [{"topic": "written", "partition": 0, "offset": 99}]}',
    "twice": '{"version": 1, "partitions": [{"topic": "written", "partition": 0, "offset": 2},'
    ' {"topic": "written", "partition": 0, "offset": 1}]}',
    "topics": '{"version": 1, "topics": [{"topic": "moved"}]}',
    "same": '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1]}]}',
    "stranger": '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [7]}]}',
    "any_dir": '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1],'
    ' "log_dirs": ["any"]}]}',
    "other_dir": '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1],'
    ' "log_dirs": ["/elsewhere"]}]}',
}

OVERRIDES: Final = "| kafka-topics | `--describe` |"
FACTOR: Final = "| kafka-topics | `--create --replication-factor 3` |"

STORIES: Stories = {
    "topics are created, or it is said why not": [
        Asked(TOPICS, "--create --topic made --partitions 3"),
        Asked(TOPICS, "--create --topic made"),
        Asked(TOPICS, "--create --topic made --if-not-exists"),
        Asked(TOPICS, "--create --topic a.b --config cleanup.policy=compact --partitions 1"),
        Asked(TOPICS, "--create --topic a_b"),
        Asked(TOPICS, "--create --topic assigned --replica-assignment 1,1"),
        Asked(TOPICS, "--create --topic bad --replica-assignment 7"),
        Asked(TOPICS, "--create --topic bad --replica-assignment 1:1"),
        Asked(TOPICS, "--create --topic bad --config nothing=1"),
        Asked(TOPICS, "--create --topic bad --partitions 0"),
        Asked(TOPICS, "--create --topic 'a b'"),
        Asked(TOPICS, "--create --topic .."),
        Asked(
            TOPICS,
            "--create --topic bad --replication-factor 3",
            FACTOR,
            kafka=(
                "Error while executing topic command : Unable to replicate the partition 3 time(s):*",
                "exit 1",
            ),
            frazil=("Created topic bad.", "exit 0"),
        ),
        Asked(
            TOPICS,
            "--delete --topic bad --if-exists",
        ),
    ],
    "topics are listed and described": [
        *created("described", 2),
        *created("described.too", 1, "--config", "retention.ms=5000"),
        Asked(TOPICS, "--list --topic described.*"),
        Asked(TOPICS, "--list --exclude-internal --topic described.*"),
        Asked(
            TOPICS,
            "--describe --topic described.*",
            OVERRIDES,
            kafka=(
                "Topic: described\tTopicId: ID\t*Configs: min.insync.replicas=1",
                "Topic: described.too\tTopicId: ID\t*Configs: min.insync.replicas=1,retention.ms=5000",
            ),
            frazil=(
                "Topic: described\tTopicId: ID\t*Configs:",
                "Topic: described.too\tTopicId: ID\t*Configs: retention.ms=5000",
            ),
        ),
        Asked(
            TOPICS,
            "--describe --topics-with-overrides --topic described.*",
            OVERRIDES,
            kafka=(
                "Topic: described\tTopicId: ID\t*Configs: min.insync.replicas=1",
                "Topic: described.too\tTopicId: ID\t*Configs: min.insync.replicas=1,retention.ms=5000",
            ),
            frazil=("Topic: described.too\tTopicId: ID\t*Configs: retention.ms=5000",),
        ),
        Asked(TOPICS, "--describe --unavailable-partitions"),
        Asked(TOPICS, "--describe --under-replicated-partitions"),
        Asked(TOPICS, "--describe --under-min-isr-partitions"),
        Asked(TOPICS, "--describe --at-min-isr-partitions --topic described.*"),
        Asked(TOPICS, "--describe --topic nothing"),
        Asked(TOPICS, "--describe --topic nothing --if-exists"),
    ],
    "topics are widened and deleted": [
        *created("widened", 2),
        Asked(TOPICS, "--alter --topic widened --partitions 4"),
        Asked(TOPICS, "--alter --topic widened --partitions 4"),
        Asked(TOPICS, "--alter --topic widened --partitions 2"),
        Asked(TOPICS, "--alter --topic widened --partitions 5 --replica-assignment 1,1,1,1,1"),
        Asked(TOPICS, "--alter --topic widened --partitions 6 --replica-assignment 1,1,1,1,1,7"),
        Asked(TOPICS, "--alter --topic nothing --partitions 2"),
        Asked(TOPICS, "--alter --topic nothing --partitions 2 --if-exists"),
        Asked(TOPICS, "--delete --topic widened"),
        Asked(TOPICS, "--delete --topic nothing"),
        Asked(TOPICS, "--delete --topic nothing --if-exists"),
        Asked(TOPICS, "--list --topic widened"),
    ],
    "records are written, found, deleted and read": [
        *created("written", 1),
        Asked(CONSOLE_PRODUCER, "--topic written <{records}"),
        Asked(
            CONSOLE_PRODUCER,
            "--topic written --reader-property parse.key=true --reader-property key.separator=:"
            " --compression-codec zstd --sync <{keyed}",
        ),
        Asked(GET_OFFSETS, "--topic written"),
        Asked(GET_OFFSETS, "--topic written --time earliest"),
        Asked(GET_OFFSETS, "--topic written --time latest-tiered"),
        Asked(GET_OFFSETS, "--topic written --time earliest-local"),
        Asked(GET_OFFSETS, "--topic written --time earliest-pending-upload"),
        Asked(GET_OFFSETS, "--topic written --time 1000"),
        Asked(GET_OFFSETS, "--topic-partitions written:0-1 --time latest"),
        Asked(GET_OFFSETS, "--topic nothing"),
        Asked(LOG_DIRS, "--describe --topic-list written"),
        Asked(DELETE_RECORDS, "--offset-json-file {some_offsets}"),
        Asked(DELETE_RECORDS, "--offset-json-file {beyond}"),
        Asked(DELETE_RECORDS, "--offset-json-file {twice}"),
        Asked(GET_OFFSETS, "--topic written --time earliest"),
        Asked(
            CONSOLE_CONSUMER,
            "--topic written --partition 0 --offset earliest --max-messages 3 --timeout-ms 30000"
            " --formatter-property print.offset=true --formatter-property print.key=true"
            " --formatter-property print.partition=true",
        ),
        Asked(
            CONSOLE_CONSUMER,
            "--topic written --partition 0 --offset 3 --max-messages 1 --timeout-ms 30000"
            " --isolation-level read_committed",
        ),
        Asked(
            CONSOLE_CONSUMER,
            "--topic nothing --from-beginning --timeout-ms 1000 --group nobodys",
        ),
    ],
    "partitions are not moved": [
        *created("moved", 2),
        Asked(LOG_DIRS, "--describe --topic-list moved --broker-list 1"),
        Asked(LOG_DIRS, "--describe --topic-list nothing"),
        Asked(LOG_DIRS, "--describe --broker-list 9"),
        Asked(
            REASSIGN_PARTITIONS, "--generate --topics-to-move-json-file {topics} --broker-list 1"
        ),
        Asked(REASSIGN_PARTITIONS, "--execute --reassignment-json-file {same}"),
        Asked(REASSIGN_PARTITIONS, "--execute --reassignment-json-file {any_dir}"),
        Asked(REASSIGN_PARTITIONS, "--execute --reassignment-json-file {other_dir}"),
        Asked(REASSIGN_PARTITIONS, "--execute --reassignment-json-file {stranger}"),
        Asked(REASSIGN_PARTITIONS, "--list"),
        Asked(REASSIGN_PARTITIONS, "--verify --preserve-throttles --reassignment-json-file {same}"),
        Asked(
            REASSIGN_PARTITIONS, "--verify --preserve-throttles --reassignment-json-file {stranger}"
        ),
        Asked(REASSIGN_PARTITIONS, "--cancel --preserve-throttles --reassignment-json-file {same}"),
    ],
    "the throttles of reassignments are set and cleared": [
        Asked(TOPICS, "--create --topic moved --if-not-exists"),
        Asked(REASSIGN_PARTITIONS, "--execute --throttle 1000 --reassignment-json-file {same}"),
        Asked(REASSIGN_PARTITIONS, "--verify --reassignment-json-file {same}"),
        Asked(REASSIGN_PARTITIONS, "--cancel --reassignment-json-file {same}"),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_kafkas_tools_tell_of_an_agent_what_they_tell_of_kafka(
    story: str, tools: KafkaTools, beside: Pair, tmp_path: Path
) -> None:
    tell(tools, beside, tmp_path, STORIES[story], **FILES)
