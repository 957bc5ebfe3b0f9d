"""Kafka's own command line tools, kept running in one JVM, and a reader of the tables they print."""

import subprocess
import threading
from pathlib import Path

from tests.parts import install

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
"""kafka-consumer-groups.sh"""
CONFIGS = "kafka.admin.ConfigCommand"
"""kafka-configs.sh"""
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
"""kafka-transactions.sh"""
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
"""kafka-delete-records.sh"""
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
"""kafka-log-dirs.sh"""
FEATURES = "org.apache.kafka.tools.FeatureCommand"
"""kafka-features.sh"""
ACLS = "org.apache.kafka.tools.AclCommand"
"""kafka-acls.sh"""
TOPICS = "org.apache.kafka.tools.TopicCommand"
"""kafka-topics.sh"""
METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
"""kafka-metadata-quorum.sh"""
DELEGATION_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
"""kafka-delegation-tokens.sh"""
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
"""kafka-leader-election.sh"""
BROKER_API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
"""kafka-broker-api-versions.sh"""
REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
"""kafka-reassign-partitions.sh"""
CLUSTER = "org.apache.kafka.tools.ClusterTool"
"""kafka-cluster.sh"""
ALL_GROUPS = "org.apache.kafka.tools.GroupsCommand"
"""kafka-groups.sh"""
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
"""kafka-get-offsets.sh"""
STREAMS_RESET = "org.apache.kafka.tools.StreamsResetter"
"""kafka-streams-application-reset.sh"""
PRODUCER_PERF_TEST = "org.apache.kafka.tools.ProducerPerformance"
"""kafka-producer-perf-test.sh"""
CONSUMER_PERF_TEST = "org.apache.kafka.tools.ConsumerPerformance"
"""kafka-consumer-perf-test.sh"""
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
"""kafka-verifiable-producer.sh"""
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
"""kafka-verifiable-consumer.sh"""
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
"""kafka-console-producer.sh"""
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
"""kafka-console-consumer.sh"""
E2E_LATENCY = "org.apache.kafka.tools.EndToEndLatency"
"""kafka-e2e-latency.sh"""
CLIENT_COMPATIBILITY = "org.apache.kafka.tools.ClientCompatibilityTest"
"""What Kafka's system tests run with each release of its clients against each of its brokers."""


CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
"""kafka-client-metrics.sh"""


TOOL_S_MAX = 300.0


class KafkaTools:
    """A process that runs one tool after the other (`java/Tools.java`)."""

    def __init__(self) -> None:
        program = Path(__file__).parent / "java" / "Tools.java"
        self._process = subprocess.Popen(
            install.java_program(program, install.kafka_jars(), heap="256m"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, tool: str, bootstrap: str, *arguments: str) -> str:
        """What a tool prints, its errors included."""
        return self.end_of(tool, "--bootstrap-server", bootstrap, *arguments)[1]

    def end_of(self, tool: str, *words: str) -> tuple[int, str]:
        """The exit code of a tool and what it prints, its errors included. One that does not end is ended,
        with all tools."""
        guard = threading.Timer(TOOL_S_MAX, self._process.kill)
        guard.start()
        try:
            return self._end(tool, *words)
        finally:
            guard.cancel()

    def _end(self, tool: str, *words: str) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((tool, *words)) + "\n")
        self._process.stdin.flush()
        printed = []
        for line in self._process.stdout:
            if line.startswith("ended "):
                return int(line.split()[1]), "".join(printed)
            printed.append(line)
        said = "".join(printed)
        raise AssertionError(f"the tools ended in {tool} {' '.join(words)}: {said}")

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


def table(printed: str) -> list[dict[str, str]]:
    """The rows below the header in capitals (GROUP, TOPIC, …), by column."""
    lines = iter(printed.splitlines())
    for line in lines:
        names = line.split()
        if len(names) > 1 and names[0] in ("GROUP", "TOPIC", "TRANSACTIONAL-ID", "FEATURE"):
            break
    else:
        raise AssertionError(f"no table in: {printed}")
    rows = []
    for line in lines:
        if not line.strip():
            break
        rows.append(dict(zip(names, line.split(), strict=False)))
    return rows


def columns(printed: str) -> list[dict[str, str]]:
    """The rows of kafka-transactions.sh, by column; with tabs between, and cells may be empty."""
    found = [[cell.strip() for cell in line.split("\t")] for line in printed.splitlines()]
    names, *rows = [cells for cells in found if len(cells) > 2]
    return [dict(zip(names, cells, strict=True)) for cells in rows]
