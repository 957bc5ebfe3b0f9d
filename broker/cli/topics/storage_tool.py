"""`frazil topic describe --storage`: where a topic's records lie.

Asks an agent's admin listener, since Kafka's protocol knows nothing of chunks, segments and pages.
"""

import json
from urllib.parse import quote

from broker.cli import admin_client
from broker.cli.admin_client import AgentPlace
from broker.cli.command_result import CommandResult
from broker.reports import topic_report


def describe(agent: AgentPlace, name: str, *, as_json: bool) -> CommandResult:
    """One topic with all its partitions. Raises ToolError."""
    path = f"/topics/{quote(name, safe='')}?from="
    view = admin_client.ask(agent, f"{path}0")
    partitions = view["partitions"]
    # Partitions are asked for in slices; a topic that is deleted meanwhile ends it.
    while len(partitions) < view["partition_count"]:
        more = admin_client.ask(agent, f"{path}{len(partitions)}")
        if more["topic_id"] != view["topic_id"] or not more["partitions"]:
            break
        partitions += more["partitions"]
    return CommandResult([json.dumps(view)] if as_json else topic_report.lines(view))
