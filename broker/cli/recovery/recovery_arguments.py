"""The arguments of `frazil recover`.

What the command needs is imported when it is called.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from broker.cli.arguments import (
    FailedError,
    add_yes,
    confirm,
    datetime_ms,
    log_position,
    tell,
    tell_progress,
)
from broker.cli.log.arguments import Load

QUESTION = "begin the new era? Agents of the one before never come back to it"


def add_recover(
    commands: Any, *, add_config: Callable[[argparse.ArgumentParser], None], load: Load
) -> None:
    """`add_config`: where settings are."""
    text = (
        "begin the log anew, when it is lost or older than the object store: from the newest snapshot there"
        " and what was archived of the log since; while no agent is running"
    )
    parser = commands.add_parser(
        "recover", help="begin a lost log anew, from the object store", description=text
    )
    parser.set_defaults(run=partial(_recover, load=load), name="frazil recover")
    add_config(parser)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="instead: the folder of frazil dev, which is ended"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what there is and what would become of it"
    )
    until = parser.add_mutually_exclusive_group()
    until.add_argument(
        "--to",
        type=datetime_ms,
        metavar="DATETIME",
        help="leave out what was written later (2026-01-31T08:00:00)",
    )
    until.add_argument(
        "--to-position",
        type=log_position,
        metavar="POSITION",
        help="leave out what comes behind it in the log, like 1:42",
    )
    parser.add_argument("--json", action="store_true", help="with --dry-run: one JSON object")
    add_yes(parser)


def _recover(options: argparse.Namespace, *, load: Load) -> int:
    from broker import process
    from broker.cli import dev
    from broker.cli.command_result import ToolError
    from broker.cli.recovery import recovery_tool
    from broker.recovery.rebuilding import Until

    if options.json and not options.dry_run:
        raise FailedError("--json goes with --dry-run")
    defaults = {}
    if options.data is not None:
        defaults = dev.defaults(port=9092, http_port=9094, registry_port=0, data=options.data)
    settings = load(options, defaults=defaults).settings
    until = Until(position=options.to_position, time_ms=options.to)

    def ask(lines: list[str]) -> None:
        for line in lines:
            tell(line, flush=True)
        confirm(options, QUESTION)

    try:
        if options.dry_run:
            work = recovery_tool.dry_run(settings, until, as_json=options.json, tell=tell_progress)
        else:
            work = recovery_tool.recover(settings, until, ask=ask, tell=tell_progress)
        for line in process.run_once(work):
            tell(line)
    except ToolError as error:
        raise FailedError.of(error) from error
    return 0
