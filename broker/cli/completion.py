"""Completion in shells: commands, flags, and names of topics and groups that the cluster tells.

argcomplete walks the parsers; the shell calls `frazil` itself for it, with `_ARGCOMPLETE` in its environment. A cluster
that does not answer within a second completes nothing, and nothing is said: nobody has asked it to do anything.
"""

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from broker.cli.arguments import FailedError, client_of
from broker.config.values import SettingsError
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.cli.command_result import CommandResult
    from broker.cli.kafka_client import KafkaClient

SHELLS: Final = ("bash", "zsh", "fish")
TIMEOUT_MS: Final = 1000
_ASKED: Final = "_ARGCOMPLETE"

List = Callable[["KafkaClient"], Awaitable["CommandResult"]]
"""A command that lists what there is, as a list of objects in JSON."""


def answer(
    parser: Callable[[], argparse.ArgumentParser],
    of_export: Callable[[list[str]], argparse.ArgumentParser | None],
    become_exporter: Callable[[list[str]], int],
) -> None:
    """Ends the process when it is a shell that asks. `of_export`: what reads the words behind `frazil export`;
    None: the exporter, which completes them in this process's place."""
    if _ASKED not in os.environ:
        return
    import argcomplete
    from argcomplete.lexers import split_line

    before = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    first = int(os.environ[_ASKED])
    if before[first : first + 1] != ["export"]:
        argcomplete.autocomplete(parser())
        return
    # What argcomplete takes for the command begins there.
    os.environ[_ASKED] = str(first + 1)
    reads = of_export(before[first + 1 :])
    if reads is None:
        sys.exit(become_exporter([]))
    argcomplete.autocomplete(reads)


def add_completion(commands: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    """`frazil completion`."""
    text = (
        'print what makes a shell complete: source <(frazil completion bash), or "| source" in fish'
    )
    parser = commands.add_parser("completion", help=text, description=text)
    parser.set_defaults(run=_script, name="frazil completion")
    parser.add_argument("shell", choices=SHELLS)


def _script(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["frazil"], shell=options.shell))
    return 0


def completes_topics(action: argparse.Action) -> None:
    """An argument is the name of a topic."""

    async def names(client: "KafkaClient") -> "CommandResult":
        from broker.cli.topics.topic_tool import list_topics

        return await list_topics(client, internal=False, as_json=True)

    _complete(action, names, "name")


def completes_groups(action: argparse.Action) -> None:
    """An argument is the name of a group."""

    async def names(client: "KafkaClient") -> "CommandResult":
        from broker.cli.groups.group_tool import list_groups

        return await list_groups(client, as_json=True)

    _complete(action, names, "group_id")


def _complete(action: argparse.Action, command: List, field: str) -> None:
    # argcomplete looks for it there.
    vars(action)["completer"] = lambda parsed_args, **_: _names(parsed_args, command, field)


def _names(options: argparse.Namespace, command: List, field: str) -> list[str]:
    """None when they cannot be had."""
    import asyncio

    from broker.cli.command_result import ToolError
    from broker.cli.kafka_client import ClientError

    async def work() -> "CommandResult":
        async with client_of(options) as client:
            return await command(client)

    options.timeout_ms = TIMEOUT_MS
    try:
        said = asyncio.run(work())
    except (FailedError, SettingsError, ToolError, ClientError, KafkaError):
        return []
    return [one[field] for line in said.lines for one in json.loads(line)]
