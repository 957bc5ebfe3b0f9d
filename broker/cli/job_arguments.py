"""The arguments of `frazil job`; the rest of the command line is `broker.cli.main`.

What a command needs is imported when it is called.
"""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.cli.command_result import CommandResult

Run = Callable[[argparse.Namespace, Callable[[], "CommandResult"]], int]
"""Runs a command of a tool, prints what it says, and gives the exit code."""


def add_job(commands: Any, run: Run, need: Callable[[argparse.Namespace], int]) -> None:
    """`frazil job`, with its commands. `need` says that one is missing."""
    job = commands.add_parser("job", help="jobs that keep the cluster bounded: list, run")
    job.set_defaults(run=need, name="frazil job")
    below = job.add_subparsers(metavar="COMMAND", parser_class=type(job))

    text = "which agent runs them, how far they are; snapshots and the log's size"
    listing = below.add_parser("list", help=text, description=text)
    listing.add_argument("--json", action="store_true", help="as one JSON object")
    listing.set_defaults(
        run=lambda options: run(options, lambda: _list(options)), name="frazil job list"
    )

    text = "have a job run now, whether or not it is due"
    running = below.add_parser("run", help=text, description=text)
    running.add_argument("job", metavar="JOB")
    running.set_defaults(
        run=lambda options: run(options, lambda: _run(options)), name="frazil job run"
    )

    for parser in (listing, running):
        parser.add_argument("--agent", default="http://127.0.0.1:9094", metavar="URL")


def _list(options: argparse.Namespace) -> "CommandResult":
    from broker.cli import job_tool
    from broker.environment import now_ms

    return job_tool.list_jobs(options.agent, now_ms=now_ms(), as_json=options.json)


def _run(options: argparse.Namespace) -> "CommandResult":
    from broker.cli import job_tool

    return job_tool.run_job(options.agent, options.job)
