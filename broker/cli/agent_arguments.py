"""The arguments of `frazil topic` and `frazil job`; the rest of the command line is `broker.cli.main`.

What a command needs is imported when it is called.
"""

import argparse
from typing import Any

from broker.cli.arguments import add_agent, on_agent, place_of, tool


def add_topic(commands: Any) -> None:
    """`frazil topic`, with its command."""
    need = "what of them? describe (frazil topic --help)"
    add = tool(commands, "topic", "topics: describe", need=need)
    text = "where a topic's records lie: offsets, bytes in chunks and segments, rows, pages"
    describing = add("describe", _describe_topic, text)
    describing.add_argument("topic", metavar="TOPIC")
    add_agent(describing)
    describing.add_argument("--json", action="store_true", help="as one JSON object")


def add_job(commands: Any) -> None:
    """`frazil job`, with its commands."""
    need = "what of them? list or run (frazil job --help)"
    add = tool(commands, "job", "jobs that keep the cluster bounded: list, run", need=need)
    text = "which agent runs them, how far they are; snapshots and the log's size"
    listing = add("list", _list_jobs, text)
    listing.add_argument("--json", action="store_true", help="as one JSON object")
    add_agent(listing)
    running = add("run", _run_job, "have a job run now, whether or not it is due")
    running.add_argument("job", metavar="JOB")
    add_agent(running)


def _describe_topic(options: argparse.Namespace) -> int:
    from broker.cli import topic_tool

    return on_agent(
        options, lambda: topic_tool.describe(place_of(options), options.topic, as_json=options.json)
    )


def _list_jobs(options: argparse.Namespace) -> int:
    from broker.cli import job_tool
    from broker.environment import now_ms

    return on_agent(
        options,
        lambda: job_tool.list_jobs(place_of(options), now_ms=now_ms(), as_json=options.json),
    )


def _run_job(options: argparse.Namespace) -> int:
    from broker.cli import job_tool

    return on_agent(options, lambda: job_tool.run_job(place_of(options), options.job))
