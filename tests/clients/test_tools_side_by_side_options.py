"""Options of Kafka's tools that no other story has, beside Kafka itself: rights, formatters, measurements."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.clients.kafka_tools import (
    ACLS,
    ALL_GROUPS,
    CLIENT_COMPATIBILITY,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_PERF_TEST,
    FEATURES,
    GET_OFFSETS,
    LEADER_ELECTION,
    PRODUCER_PERF_TEST,
    REASSIGN_PARTITIONS,
    TOPICS,
    VERIFIABLE_CONSUMER,
    KafkaTools,
)
from tests.clients.side_by_side import Asked, Pair, Stories, created, pair, tell

pytestmark = pytest.mark.integration

AUTHORIZER: Final = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)
FILES: Final = {
    "records": "one\ntwo\nthree\n",
    "payloads": "one;two;three",
    "reader": "parse.key=true\nkey.separator=:\n",
    "keyed": "a:one\nb:two\n",
    "producer": "acks=1\n",
    "consumer": "fetch.min.bytes=1\n",
    "formatter": "print.partition=true\n",
    "elected": '{"partitions": [{"topic": "elected", "partition": 0}]}',
    "same": '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1]}]}',
    "topics": '{"version": 1, "topics": [{"topic": "moved"}]}',
}
TO_END: Final = "--from-beginning --max-messages 3 --timeout-ms 30000"

STORIES: Stories = {
    "rights are given and taken": [
        *created("guarded", 1),
        Asked(
            ACLS,
            "--add --allow-principal User:a --allow-host 10.0.0.1 --operation Read --topic guarded",
        ),
        Asked(
            ACLS,
            "--add --deny-principal User:b --deny-host 10.0.0.2 --operation Write --topic guarded",
        ),
        Asked(ACLS, "--add --allow-principal User:c --producer --idempotent --topic guarded"),
        Asked(ACLS, "--add --allow-principal User:d --operation Create --cluster"),
        Asked(ACLS, "--add --allow-principal User:e --operation Describe --delegation-token owner"),
        Asked(
            ACLS, "--add --allow-principal User:f --operation CreateTokens --user-principal User:g"
        ),
        Asked(ACLS, "--list"),
        Asked(ACLS, "--list --principal User:a --topic guarded"),
        Asked(ACLS, "--remove --force --cluster"),
        Asked(ACLS, "--remove --force --delegation-token owner"),
        Asked(ACLS, "--remove --force --user-principal User:g"),
        Asked(ACLS, "--remove --force --topic guarded"),
        Asked(ACLS, "--list"),
    ],
    "a console producer has options of its own": [
        *created("produced", 1),
        Asked(
            CONSOLE_PRODUCER,
            "--topic produced --request-required-acks 1 --request-timeout-ms 20000 --batch-size 1000"
            " --max-block-ms 20000 --max-memory-bytes 1000000 --max-partition-memory-bytes 16384"
            " --message-send-max-retries 2 --metadata-expiry-ms 60000 --retry-backoff-ms 50"
            " --socket-buffer-size 65536 --timeout 10 <{records}",
        ),
        Asked(CONSOLE_PRODUCER, "--topic produced --sync --command-property acks=1 <{records}"),
        Asked(CONSOLE_PRODUCER, "--topic produced --reader-config {reader} <{keyed}"),
        Asked(
            CONSOLE_PRODUCER,
            "--topic produced --line-reader org.apache.kafka.tools.LineMessageReader"
            " --property parse.key=true --property key.separator=: <{keyed}",
        ),
        Asked(CONSOLE_PRODUCER, "--topic produced --producer.config {producer} <{records}"),
        Asked(CONSOLE_PRODUCER, "--topic produced --producer-property acks=1 <{records}"),
        Asked(
            CONSOLE_CONSUMER,
            "--topic produced --from-beginning --max-messages 16 --timeout-ms 30000"
            " --property print.key=true --property print.offset=true",
        ),
    ],
    "a console consumer has options of its own": [
        *created("consumed", 1),
        Asked(CONSOLE_PRODUCER, "--topic consumed <{records}"),
        Asked(CONSOLE_CONSUMER, f"--include consume. {TO_END}"),
        Asked(CONSOLE_CONSUMER, f"--topic consumed --consumer.config {{consumer}} {TO_END}"),
        Asked(CONSOLE_CONSUMER, f"--topic consumed --consumer-property fetch.min.bytes=1 {TO_END}"),
        Asked(CONSOLE_CONSUMER, f"--topic consumed --formatter-config {{formatter}} {TO_END}"),
        Asked(CONSOLE_CONSUMER, f"--topic consumed --skip-message-on-error {TO_END}"),
        Asked(CONSOLE_CONSUMER, f"--topic consumed --enable-systest-events {TO_END}"),
        Asked(
            CONSOLE_CONSUMER,
            "--topic consumed --formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter"
            f" {TO_END}",
        ),
        Asked(
            CONSOLE_CONSUMER,
            "--topic consumed --key-deserializer org.apache.kafka.common.serialization.StringDeserializer"
            " --value-deserializer org.apache.kafka.common.serialization.BytesDeserializer"
            f" {TO_END}",
        ),
    ],
    "measurements have options of their own": [
        *created("measured", 1),
        Asked(
            PRODUCER_PERF_TEST,
            "--topic measured --num-records 100 --throughput -1 --producer.config {producer}"
            " --payload-file {payloads} --payload-delimiter ; --bootstrap-server @",
            measures=True,
        ),
        Asked(
            PRODUCER_PERF_TEST,
            "--topic measured --num-records 100 --throughput -1 --payload-monotonic"
            " --warmup-records 10 --reporting-interval 5000 --bootstrap-server @",
            measures=True,
        ),
        Asked(
            PRODUCER_PERF_TEST,
            "--topic measured --num-records 100 --throughput 100 --record-size 10"
            " --transactional-id measured --transaction-duration-ms 100 --bootstrap-server @",
            measures=True,
        ),
        Asked(
            CONSUMER_PERF_TEST,
            "--include measure. --messages 100 --group first --consumer.config {consumer}"
            " --fetch-size 1000 --socket-buffer-size 65536 --reporting-interval 60000"
            " --date-format yyyy --timeout 30000",
            measures=True,
        ),
        Asked(
            CONSUMER_PERF_TEST,
            "--topic measured --num-records 10 --from-latest --timeout 1000 --hide-header"
            " --group second",
            measures=True,
        ),
        Asked(
            VERIFIABLE_CONSUMER,
            "--topic measured --group-id verified --group-protocol classic --max-messages 2"
            " --reset-policy earliest --enable-autocommit --session-timeout 10000"
            " --group-instance-id one --consumer.config {consumer}"
            " --assignment-strategy org.apache.kafka.clients.consumer.RoundRobinAssignor",
        ),
    ],
    "topics, groups and leaders are described by other options": [
        *created("elected", 1),
        *created("moved", 1),
        Asked(
            TOPICS,
            "--describe --topic elected --partition-size-limit-per-response 10",
            "| kafka-topics | `--describe` |",
            kafka=["*Configs: min.insync.replicas=1"],
            frazil=["*Configs:"],
        ),
        Asked(TOPICS, "--describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ"),
        Asked(GET_OFFSETS, "--topic elected --exclude-internal-topics"),
        Asked(ALL_GROUPS, "--list --protocol connect"),
        Asked(ALL_GROUPS, "--list --streams"),
        Asked(LEADER_ELECTION, "--election-type preferred --path-to-json-file {elected}"),
        Asked(
            REASSIGN_PARTITIONS,
            "--generate --topics-to-move-json-file {topics} --broker-list 1 --disable-rack-aware",
        ),
        Asked(
            REASSIGN_PARTITIONS,
            "--execute --additional --disallow-replication-factor-change"
            " --replica-alter-log-dirs-throttle 1000 --reassignment-json-file {same}",
        ),
        Asked(REASSIGN_PARTITIONS, "--verify --reassignment-json-file {same}"),
    ],
    "tools tell their release": [
        Asked(TOPICS, "--version"),
        Asked(FEATURES, "version-mapping --release-version 4.3-IV0"),
    ],
}
SUPPORTED: Final = " ".join(
    f"--{name}-supported {answer}"
    for name, answer in {
        "cluster-id": True,
        "create-topics": True,
        "describe-acls": True,
        "describe-configs": True,
        "idempotent-producer": True,
        "offsets-for-times": True,
    }.items()
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both have an authorizer, and everybody may do everything."""
    with pair(tmp_path_factory.mktemp("options"), *AUTHORIZER) as both:
        yield both


@pytest.mark.parametrize("story", STORIES)
def test_options_of_kafkas_tools_do_the_same_to_an_agent(
    story: str, tools: KafkaTools, guarded: Pair, tmp_path: Path
) -> None:
    tell(tools, guarded, tmp_path, STORIES[story], **FILES)


def test_kafkas_own_compatibility_test_finds_each_feature(
    tools: KafkaTools, guarded: Pair, tmp_path: Path
) -> None:
    words = f"--bootstrap-server @ --topic compatible --num-cluster-nodes 1 {SUPPORTED}"
    words += " --expect-record-too-large-exception True"
    tell(tools, guarded, tmp_path, [*created("compatible", 1), Asked(CLIENT_COMPATIBILITY, words)])
