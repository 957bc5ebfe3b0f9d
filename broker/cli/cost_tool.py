"""`frazil cost`: what an agent's store costs, by two looks at its counters.

Asks an agent's admin listener. What is computed and shown is in `broker.reports.cost_report`.
"""

import json
import time
import urllib.error

from broker.cli import admin_client
from broker.cli.admin_client import AgentPlace
from broker.cli.command_result import CommandResult
from broker.environment import boot_ms
from broker.reports import cost_report
from broker.reports.cost_report import CounterReading
from broker.reports.prices import Prices


def cost(agent: AgentPlace, *, seconds: float, prices: Prices, as_json: bool) -> CommandResult:
    """Read counters, wait, read them again. Raises ToolError."""
    before = _reading(agent)
    time.sleep(seconds)
    found = cost_report.report(before, _reading(agent), prices)
    warnings = []
    if found["agents"] > 1:
        warnings.append(
            f"the cluster has {found['agents']} agents: ask each for its requests (--agent)"
        )
    shown = [json.dumps(found)] if as_json else cost_report.lines(found)
    return CommandResult(shown, warnings)


def _reading(agent: AgentPlace) -> CounterReading:
    try:
        with admin_client.opened(agent, "/metrics", timeout_s=admin_client.TIMEOUT_S) as response:
            metrics = cost_report.metrics_of(response.read().decode())
            time_s = boot_ms() / 1000
    except urllib.error.HTTPError as error:
        raise admin_client.refusal(error, f"{agent.url}: {error}") from error
    return CounterReading(time_s, metrics, admin_client.ask(agent, "/costs"))
