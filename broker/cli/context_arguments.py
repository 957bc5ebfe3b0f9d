"""The arguments of `frazil context`, and its commands.

What a command needs is imported when it is called.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.cli.arguments import (
    FailedError,
    add_yes,
    client_settings,
    complain,
    confirm,
    on_agent,
    tool,
)

if TYPE_CHECKING:
    from broker.cli.command_result import CommandResult
    from broker.client.contexts import Contexts


def add_context(commands: Any) -> None:
    """`frazil context`, with its commands."""
    names = "list, create, use, delete"
    add = tool(commands, "context", f"clusters by name: {names}", need=f"what of them? {names}")
    listing = add("list", _list, "all contexts; the one in use has a star")
    listing.add_argument(
        "--json", action="store_true", help="a list of {name, is_current, bootstrap}"
    )
    text = "keep a file of a client's settings under a name; its files stay where they are"
    creating = add("create", _create, text)
    creating.add_argument("name_of_context", metavar="NAME")
    creating.add_argument(
        "--command-config",
        type=Path,
        required=True,
        metavar="FILE",
        help="bootstrap.servers, TLS, and how to log in, as Kafka's tools take them",
    )
    creating.add_argument("--use", action="store_true", help="and use it from now on")
    using = add("use", _use, "have all commands use it that are told nothing else")
    using.add_argument("name_of_context", metavar="NAME", nargs="?", help="(without one: none)")
    deleting = add("delete", _delete, "forget a context, with the secrets that it has")
    deleting.add_argument("name_of_context", metavar="NAME")
    add_yes(deleting)


def _run(options: argparse.Namespace, command: Callable[[], "CommandResult"]) -> int:
    from broker.client.contexts import ContextError

    try:
        return on_agent(options, command)
    except ContextError as error:
        raise FailedError(str(error)) from error


def _contexts() -> "Contexts":
    from broker.client.contexts import Contexts, folder_of

    return Contexts(folder_of(os.environ))


def _list(options: argparse.Namespace) -> int:
    return _run(options, lambda: _listed(_contexts(), as_json=options.json))


def _listed(contexts: "Contexts", *, as_json: bool) -> "CommandResult":
    """Raises ToolError."""
    import json

    from broker.cli.command_result import CommandResult
    from broker.reports.tables import Cell, table

    current = contexts.current()
    found = [
        {
            "name": name,
            "is_current": name == current,
            "bootstrap": client_settings(contexts.file(name)).bootstrap,
        }
        for name in contexts.names()
    ]
    if as_json:
        return CommandResult([json.dumps(found)])
    rows: list[list[Cell]] = [
        ["*" if one["is_current"] else "", one["name"], one["bootstrap"]] for one in found
    ]
    return CommandResult(
        table(("", "NAME", "BOOTSTRAP"), rows) if rows else ["there are no contexts"]
    )


def _create(options: argparse.Namespace) -> int:
    """The settings are judged before they are kept."""
    file = options.command_config
    settings = client_settings(file)
    complain(options.name, *[f"{file}: {warning}" for warning in settings.warnings])
    return _run(options, lambda: _created(_contexts(), options, settings.bootstrap))


def _created(
    contexts: "Contexts", options: argparse.Namespace, bootstrap: str | None
) -> "CommandResult":
    """Raises ToolError."""
    from broker.cli.command_result import CommandResult, ToolError
    from broker.config import properties_text

    file, name = options.command_config, options.name_of_context
    text = file.read_text(encoding="utf-8")
    if bootstrap is None:
        raise ToolError(f"{file} has no bootstrap.servers, which say where the cluster is")
    for key, value in properties_text.parse(str(file), text):
        if key.endswith((".location", ".file")) and not Path(value).is_absolute():
            raise ToolError(f"{file}: {key} is a path from here alone: write it from / on")
    contexts.create(name, text)
    if options.use:
        contexts.use(name)
    return CommandResult(
        [f'context "{name}" is kept{" and used" if options.use else ""}: {bootstrap}']
    )


def _use(options: argparse.Namespace) -> int:
    return _run(options, lambda: _used(_contexts(), options.name_of_context))


def _used(contexts: "Contexts", name: str | None) -> "CommandResult":
    """Raises ToolError."""
    from broker.cli.command_result import CommandResult

    contexts.use(name)
    return CommandResult([f'context "{name}" is used' if name else "no context is used"])


def _delete(options: argparse.Namespace) -> int:
    confirm(options, f"delete context {options.name_of_context} with its settings?")
    return _run(options, lambda: _deleted(_contexts(), options.name_of_context))


def _deleted(contexts: "Contexts", name: str) -> "CommandResult":
    """Raises ToolError."""
    from broker.cli.command_result import CommandResult

    contexts.delete(name)
    return CommandResult([f'context "{name}" is deleted'])
