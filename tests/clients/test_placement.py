"""A client that knows one agent finds all of them, and is served by each."""

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.records import in_order, records
from tests.clients.test_confluent import consume, produce
from tests.parts.servers import FrazilCluster
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration


def test_a_client_of_one_agent_is_served_by_all(three_agents: FrazilCluster) -> None:
    admin = AdminClient({"bootstrap.servers": three_agents.bootstrap})
    create_topic(admin, "placement", 32)
    found = admin.list_topics("placement", timeout=30)
    ports = {broker.port for broker in found.brokers.values()}
    assert ports == {agent.port for agent in three_agents.agents}
    leaders = [row.leader for row in found.topics["placement"].partitions.values()]
    assert {found.brokers[leader].port for leader in leaders} == ports
    sent = records(1000)
    produce(three_agents.bootstrap, "placement", "none", sent)
    assert in_order(consume(three_agents.bootstrap, "placement", len(sent))) == sent
