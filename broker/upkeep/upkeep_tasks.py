"""All that an agent does by the clock, as tasks of whoever runs the agent."""

import asyncio

from broker.node import Node
from broker.upkeep import (
    deleted_topics,
    offset_expiration,
    quota_usage,
    token_expiration,
    transaction_expiration,
)


def start(node: Node, tasks: asyncio.TaskGroup) -> None:
    """Have it done for as long as `tasks` live."""
    tasks.create_task(deleted_topics.run(node.log_client), name="purging")
    tasks.create_task(offset_expiration.run(node), name="expiry of offsets")
    tasks.create_task(transaction_expiration.run(node), name="expiry of transactional ids")
    tasks.create_task(token_expiration.run(node), name="expiry of tokens")
    tasks.create_task(quota_usage.run(node), name="usage of quotas")
