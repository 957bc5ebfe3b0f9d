"""kafka-metadata-quorum.sh and kafka-leader-election.sh of Kafka 4.3 against agents."""

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.kafka_tools import LEADER_ELECTION, METADATA_QUORUM, KafkaTools
from tests.parts.servers import FrazilCluster, FrazilDev
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration


def fields(printed: str) -> dict[str, str]:
    rows = (line.partition(":") for line in printed.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in rows}


def test_the_status_of_the_quorum_names_all_agents(
    tools: KafkaTools, three_agents: FrazilCluster
) -> None:
    printed = tools.run(METADATA_QUORUM, three_agents.bootstrap, "describe", "--status")
    status = fields(printed)
    assert int(status["HighWatermark"]) > 0, printed
    assert status["MaxFollowerLag"] == "0"
    assert status["CurrentVoters"].count('"id"') == 3
    assert f'"id": {status["LeaderId"]},' in status["CurrentVoters"]


def test_the_replication_of_the_quorum_has_a_row_for_each_agent(
    tools: KafkaTools, three_agents: FrazilCluster
) -> None:
    printed = tools.run(METADATA_QUORUM, three_agents.bootstrap, "describe", "--replication")
    head, *rows = [line.split() for line in printed.splitlines() if line.strip()]
    assert head[:4] == ["NodeId", "DirectoryId", "LogEndOffset", "Lag"], printed
    assert sorted(row[-1] for row in rows) == ["Follower", "Follower", "Leader"], printed


def test_an_election_is_answered_by_the_leader_that_is_there(
    tools: KafkaTools, embedded: FrazilDev
) -> None:
    create_topic(AdminClient({"bootstrap.servers": embedded.bootstrap}), "elected", 2)
    arguments = ("--election-type", "preferred", "--topic", "elected", "--partition", "1")
    printed = tools.run(LEADER_ELECTION, embedded.bootstrap, *arguments)
    assert "Valid replica already elected for partitions elected-1" in printed
    everything = ("--election-type", "preferred", "--all-topic-partitions")
    assert "Exception" not in tools.run(LEADER_ELECTION, embedded.bootstrap, *everything)
