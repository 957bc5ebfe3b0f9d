"""`frazil job`: which agent runs the jobs, how far they are, and having one run now.

Asks an agent's admin listener; any agent will do. Formatting is in `broker.reports.job_report`.
"""

import json

from broker.cli import admin_client
from broker.cli.admin_client import AgentPlace
from broker.cli.command_result import CommandResult, ToolError
from broker.reports import job_report


def list_jobs(agent: AgentPlace, *, now_ms: int, as_json: bool) -> CommandResult:
    """All jobs. Raises ToolError."""
    view = admin_client.ask(agent, "/jobs")
    return CommandResult([json.dumps(view)] if as_json else job_report.lines(view, now_ms=now_ms))


def run_job(agent: AgentPlace, name: str) -> CommandResult:
    """Ask for a round of a job; it begins in a moment. Raises ToolError."""
    kind = job_report.job_kind(name)
    if kind is None:
        raise ToolError(f'there is no job "{name}" ({job_report.names()})')
    answer = admin_client.ask(agent, f"/jobs/{name.lower()}/run", method="POST")
    where = answer["node_name"] or "the agent that takes the jobs next"
    return CommandResult(
        [f"asked for {answer['job']}, at {where}; frazil job list says how far it is"]
    )
