"""Kafka's tools for groups and transactions, and those that are clients, beside Kafka itself."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.clients.kafka_tools import (
    ALL_GROUPS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_PERF_TEST,
    E2E_LATENCY,
    GROUPS,
    PRODUCER_PERF_TEST,
    STREAMS_RESET,
    TOPICS,
    TRANSACTIONS,
    VERIFIABLE_CONSUMER,
    VERIFIABLE_PRODUCER,
    KafkaTools,
)
from tests.clients.side_by_side import Asked, Pair, Stories, created, plain, tell
from tests.parts import install

pytestmark = pytest.mark.integration

FILES: Final = {"records": "one\ntwo\nthree\n", "resets": "read,0,1\n"}

STORIES: Stories = {
    "a group reads, and its offsets are changed": [
        *created("read", 1),
        Asked(CONSOLE_PRODUCER, "--topic read <{records}"),
        Asked(
            CONSOLE_CONSUMER,
            "--topic read --from-beginning --group readers --max-messages 3 --timeout-ms 30000",
        ),
        Asked(ALL_GROUPS, "--list"),
        Asked(ALL_GROUPS, "--list --consumer"),
        Asked(ALL_GROUPS, "--list --group-type classic"),
        Asked(ALL_GROUPS, "--list --share"),
        Asked(GROUPS, "--list"),
        Asked(GROUPS, "--list --state"),
        Asked(GROUPS, "--list --state stable"),
        Asked(GROUPS, "--list --type"),
        Asked(GROUPS, "--describe --group readers"),
        Asked(GROUPS, "--describe --group readers --state"),
        Asked(GROUPS, "--describe --group readers --members --verbose"),
        Asked(GROUPS, "--describe --group readers --offsets --verbose"),
        Asked(GROUPS, "--describe --all-groups"),
        Asked(GROUPS, "--describe --group nobody"),
        Asked(GROUPS, "--reset-offsets --group readers --all-topics --to-earliest --dry-run"),
        Asked(GROUPS, "--reset-offsets --group readers --topic read --to-latest --execute"),
        Asked(GROUPS, "--reset-offsets --group readers --topic read:0 --to-offset 9 --execute"),
        Asked(GROUPS, "--reset-offsets --group readers --topic read --shift-by -2 --execute"),
        Asked(GROUPS, "--reset-offsets --group readers --topic read --by-duration PT1H --dry-run"),
        Asked(
            GROUPS,
            "--reset-offsets --group readers --topic read --to-datetime 2020-01-01T00:00:00.000"
            " --dry-run",
        ),
        Asked(
            GROUPS, "--reset-offsets --group readers --topic read --to-current --export --dry-run"
        ),
        Asked(GROUPS, "--reset-offsets --group readers --from-file {resets} --execute"),
        Asked(GROUPS, "--reset-offsets --group new --topic read --to-earliest --execute"),
        Asked(GROUPS, "--describe --group readers --offsets"),
        Asked(GROUPS, "--delete-offsets --group readers --topic read:0"),
        Asked(GROUPS, "--delete-offsets --group readers --topic nothing"),
        Asked(GROUPS, "--delete-offsets --group nobody --topic read"),
        Asked(GROUPS, "--delete --group readers"),
        Asked(GROUPS, "--delete --group nobody"),
        Asked(GROUPS, "--validate-regex re.*"),
        Asked(
            TOPICS,
            "--list",
            "| kafka-topics, kafka-get-offsets | without `--topic` |",
            kafka=("__consumer_offsets",),
        ),
    ],
    "an application of Kafka Streams is reset": [
        *created("input", 2),
        *created("app-store-changelog", 1),
        Asked(STREAMS_RESET, "--application-id app --input-topics input --to-earliest --dry-run"),
        Asked(STREAMS_RESET, "--application-id app --input-topics input --to-earliest"),
        Asked(STREAMS_RESET, "--application-id app --input-topics nothing"),
        Asked(STREAMS_RESET, "--application-id app --internal-topics nothing"),
        Asked(GROUPS, "--describe --group app"),
        Asked(TOPICS, "--list --topic app-.*"),
    ],
    "tools write and read records and say how fast": [
        *created("measured", 1),
        Asked(
            PRODUCER_PERF_TEST,
            "--topic measured --num-records 20 --record-size 10 --throughput -1",
            measures=True,
        ),
        Asked(
            CONSUMER_PERF_TEST,
            "--topic measured --group measuring --num-records 20 --timeout 30000",
            measures=True,
        ),
        Asked(
            E2E_LATENCY,
            "--topic measured --num-records 5 --producer-acks all --record-size 10",
            measures=True,
        ),
        Asked(GROUPS, "--describe --group measuring"),
    ],
    "transactions that are not there": [
        *created("plain", 1),
        Asked(CONSOLE_PRODUCER, "--topic plain <{records}"),
        Asked(TRANSACTIONS, "--bootstrap-server @ list"),
        Asked(TRANSACTIONS, "--bootstrap-server @ describe --transactional-id nobody"),
        Asked(TRANSACTIONS, "--bootstrap-server @ describe-producers --topic plain --partition 0"),
        Asked(TRANSACTIONS, "--bootstrap-server @ find-hanging --broker-id 1"),
        Asked(
            TRANSACTIONS, "--bootstrap-server @ abort --topic plain --partition 0 --start-offset 0"
        ),
        Asked(
            TRANSACTIONS,
            "--bootstrap-server @ abort --topic plain --partition 0 --producer-id 77"
            " --producer-epoch 0 --coordinator-epoch 0",
        ),
        Asked(
            TRANSACTIONS, "--bootstrap-server @ forceTerminateTransaction --transactionalId nobody"
        ),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_kafkas_tools_tell_of_an_agent_what_they_tell_of_kafka(
    story: str, tools: KafkaTools, beside: Pair, tmp_path: Path
) -> None:
    tell(tools, beside, tmp_path, STORIES[story], **FILES)


def verifiable_producer(bootstrap: str) -> list[str]:
    """What it prints, in a process of its own: it ends its work when its process ends."""
    words = ("--topic verified", "--max-messages 3", "--repeating-keys 2", "--throughput 100")
    words += ("--acks 1", "--message-create-time 1000", "--value-prefix 7")
    done = subprocess.run(
        [
            *(*install.jvm("256m"), "-cp", f"{install.kafka_jars()}/*", VERIFIABLE_PRODUCER),
            *("--bootstrap-server", bootstrap, *" ".join(words).split()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = plain(done.stdout, bootstrap).splitlines()
    return sorted(line for line in lines if '"tool_data"' not in line)


def test_verifiable_clients_tell_of_an_agent_what_they_tell_of_kafka(
    tools: KafkaTools, beside: Pair, tmp_path: Path
) -> None:
    # Its records are of 1970: retention would take them before they are read.
    tell(tools, beside, tmp_path, created("verified", 1, "--config", "retention.ms=-1"))
    kafka, frazil = (verifiable_producer(bootstrap) for bootstrap in beside)
    assert kafka == frazil
    assert sum('"producer_send_success"' in line for line in frazil) == 3, frazil
    words = "--topic verified --max-messages 3 --reset-policy earliest --group-id"
    groups = ("classic", "newer --group-protocol consumer")
    tell(tools, beside, tmp_path, [Asked(VERIFIABLE_CONSUMER, f"{words} {one}") for one in groups])
