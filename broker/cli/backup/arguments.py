"""The arguments of `frazil backup list` and `frazil backup verify`.

What a command needs is imported when it is called.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.cli.arguments import log_position, on_agent, tool
from broker.cli.log.arguments import Load

if TYPE_CHECKING:
    from broker.cli.command_result import CommandResult
    from broker.config.settings import Settings


def add_backup(
    commands: Any, *, add_config: Callable[[argparse.ArgumentParser], None], load: Load
) -> None:
    """`frazil backup`, with its commands. `add_config`: where settings are."""
    need = "what of them? (frazil backup list, frazil backup verify)"
    add = tool(commands, "backup", "snapshots to go back to: list, verify", need=need)
    text = "all snapshots in a store, the newest first, and until when each is kept"
    listing = add("list", partial(_list, load=load), text)
    shape = "position, place, time_ms, age_ms, bytes, why, kept_until_ms, trouble"
    listing.add_argument("--json", action="store_true", help=f"a list of {{{shape}}}")
    _add_store(listing, add_config)
    text = "read snapshots, and look whether all objects are there that they point at"
    verify = add("verify", partial(_verify, load=load), text)
    which = verify.add_mutually_exclusive_group()
    which.add_argument(
        "positions",
        type=log_position,
        nargs="*",
        default=[],
        metavar="POSITION",
        help="like 1:42 (without one: the newest)",
    )
    which.add_argument("--all", action="store_true", help="all that there are")
    _add_store(verify, add_config)


def _add_store(
    parser: argparse.ArgumentParser, add_config: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Where the snapshots are: settings of an agent, or as much of them as it takes."""
    parser.add_argument("--store", metavar="URL", help="like s3://bucket/prefix: as the setting")
    parser.add_argument(
        "--cluster-id", metavar="ID", help="refuse a store of another cluster (else any is taken)"
    )
    add_config(parser)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="instead: the folder of frazil dev"
    )


def _settings(options: argparse.Namespace, load: Load) -> "tuple[Settings, bool]":
    """With whether somebody has said whose store it should be. Raises SettingsError."""
    from broker.cli import dev
    from broker.config.settings import TABLE

    # No log is opened.
    defaults = {"log": "memory://"}
    if options.data is not None:
        defaults = dev.defaults(port=9092, http_port=9094, registry_port=0, data=options.data)
    given = {"store": options.store, "cluster.id": options.cluster_id}
    options.set += [f"{name}={text}" for name, text in given.items() if text is not None]
    settings = load(options, defaults=defaults).settings
    is_named = settings.cluster_id != TABLE["cluster_id"].default
    return settings, is_named or options.cluster_id is not None


def _list(options: argparse.Namespace, *, load: Load) -> int:
    from broker import process
    from broker.cli.backup import backup_tool

    settings, is_named = _settings(options, load)
    work = partial(backup_tool.list_snapshots, settings, is_named=is_named, as_json=options.json)
    return on_agent(options, lambda: process.run_once(work()))


def _verify(options: argparse.Namespace, *, load: Load) -> int:
    from broker import process
    from broker.cli.backup import backup_tool
    from broker.cli.status_line import StatusLine

    settings, is_named = _settings(options, load)
    tell = StatusLine()
    work = partial(
        backup_tool.verify,
        settings,
        options.positions,
        everything=options.all,
        is_named=is_named,
        tell=tell,
    )

    def command() -> "CommandResult":
        try:
            return process.run_once(work())
        finally:
            tell.end()

    return on_agent(options, command)
