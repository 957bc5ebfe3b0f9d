"""`frazil log tail`: the metadata log, one entry after the other, readable or as JSON.

Asks an agent (its admin listener reads the log), since an embedded log belongs to its agent's
process. Left out: reading etcd without an agent.
"""

import json
import urllib.error
from collections.abc import Iterator

from broker.cli.admin_client import AgentPlace, opened, parsed, refusal
from broker.cli.command_result import ToolError
from broker.reports.log_lines import lines

TIMEOUT_S = 10.0


def tail(agent: AgentPlace, *, after: int, follow: bool, as_json: bool) -> Iterator[str]:
    """Lines to print, for entries after position `after`, for ever with `follow`.

    Raises ToolError.
    """
    path = f"/log?after={after}&follow={int(follow)}"
    try:
        with opened(agent, path, timeout_s=None if follow else TIMEOUT_S) as response:
            for raw in response:
                described = parsed(raw)
                if "commands" not in described and "voided" not in described:
                    where = (
                        f" at position {described['position']}" if "position" in described else ""
                    )
                    raise ToolError(f"the agent cannot read on{where}: {described.get('error')}")
                yield from [json.dumps(described)] if as_json else lines(described)
    except urllib.error.HTTPError as error:
        said = refusal(error, error.reason or "no reason given")
        text = f"{agent.url} answers {error.code}: {said}"
        raise ToolError(text, fault=said.fault) from error
