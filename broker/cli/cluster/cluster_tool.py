"""`frazil cluster describe`: who the cluster is, and which agents it has (DescribeCluster, KIP-700).

Works on any cluster that speaks Kafka's protocol; what Kafka calls a broker is an agent of ours.
"""

import json

from broker.cli.command_result import CommandResult
from broker.cli.kafka_client import KafkaClient, check
from broker.reports.group_report import count
from broker.reports.tables import Cell, table
from protocol import apis, messages


async def describe(client: KafkaClient, *, as_json: bool) -> CommandResult:
    """Raises ClientError, KafkaError."""

    async def attempt() -> messages.DescribeClusterResponse:
        answer: messages.DescribeClusterResponse = await client.ask(
            apis.DESCRIBE_CLUSTER, messages.DescribeClusterRequest()
        )
        check(answer.error_code, answer.error_message or "")
        return answer

    answer = await client.until_done(attempt)
    brokers = sorted(answer.brokers, key=lambda one: one.broker_id)
    if as_json:
        told = {
            "cluster_id": answer.cluster_id,
            "controller": answer.controller_id if answer.controller_id >= 0 else None,
            "brokers": [
                {"id": one.broker_id, "host": one.host, "port": one.port, "rack": one.rack}
                for one in brokers
            ],
        }
        return CommandResult([json.dumps(told)])
    rows: list[list[Cell]] = [
        [
            one.broker_id,
            f"{one.host}:{one.port}",
            one.rack,
            "controller" if one.broker_id == answer.controller_id else None,
        ]
        for one in brokers
    ]
    said = f"{answer.cluster_id}: {count(len(brokers), 'broker')}"
    return CommandResult([said, "", *table(("ID", "ADDRESS", "RACK", "ROLE"), rows)])
