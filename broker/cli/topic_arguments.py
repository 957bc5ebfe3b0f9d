"""The arguments of `frazil topic`; the rest of the command line is `broker.cli.main`.

What a command needs is imported when it is called.
"""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.cli.command_result import CommandResult

Run = Callable[[argparse.Namespace, Callable[[], "CommandResult"]], int]
"""Runs a command of a tool, prints what it says, and gives the exit code."""


def add_topic(commands: Any, run: Run, need: Callable[[argparse.Namespace], int]) -> None:
    """`frazil topic`, with its command. `need` says that one is missing."""
    topic = commands.add_parser("topic", help="topics: describe")
    topic.set_defaults(run=need, name="frazil topic")
    text = "where a topic's records lie: offsets, bytes in chunks and segments, rows, pages"
    describing = topic.add_subparsers(metavar="COMMAND", parser_class=type(topic)).add_parser(
        "describe", help=text, description=text
    )
    describing.add_argument("topic", metavar="TOPIC")
    describing.add_argument("--agent", default="http://127.0.0.1:9094", metavar="URL")
    describing.add_argument("--json", action="store_true", help="as one JSON object")
    describing.set_defaults(
        run=lambda options: run(options, lambda: _describe(options)), name="frazil topic describe"
    )


def _describe(options: argparse.Namespace) -> "CommandResult":
    from broker.cli import topic_tool

    return topic_tool.describe(options.agent, options.topic, as_json=options.json)
