"""The arguments of `frazil check`.

What it needs is imported when it is called.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from broker.cli.arguments import (
    FAILED,
    FailedError,
    add_agent,
    add_yes,
    complain,
    confirm,
    place_of,
    tell,
)

if TYPE_CHECKING:
    from broker.config.settings import Loaded


class Load(Protocol):
    """How the command line gets its settings."""

    def __call__(self, options: argparse.Namespace, *, defaults: dict[str, str]) -> "Loaded": ...


def add_check(
    commands: Any, *, add_config: Callable[[argparse.ArgumentParser], None], load: Load
) -> None:
    """`frazil check`. `add_config`: where settings are."""
    text = "whether the store has all that the log points at; agents may run meanwhile"
    parser = commands.add_parser("check", help=text, description=text)
    parser.set_defaults(run=partial(_check, load=load), name="frazil check")
    parser.add_argument(
        "--deep", action="store_true", help="read it all, too, and compare checksums and offsets"
    )
    text = "declare lost what is, by a running agent: consumers go on behind those offsets"
    parser.add_argument("--repair", action="store_true", help=text)
    add_yes(parser)
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    add_config(parser)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="instead: the folder of frazil dev"
    )
    add_agent(parser)


def _check(options: argparse.Namespace, *, load: Load) -> int:
    from broker.check import check_report
    from broker.cli import dev
    from broker.cli.checks import check_tool
    from broker.cli.command_result import ToolError

    defaults = {}
    if options.data is not None:
        defaults = dev.defaults(port=9092, http_port=9094, registry_port=0, data=options.data)
    settings = load(options, defaults=defaults).settings
    try:
        found = check_tool.check(settings, place_of(options), deep=options.deep, tell=_progress)
    except ToolError as error:
        raise FailedError.of(error) from error
    if not options.repair or not found["ranges"]:
        for line in [json.dumps(found)] if options.json else check_report.lines(found):
            tell(line)
        if not found["wrong"]:
            return 0
        complain(options.name, check_report.verdict(found))
        return FAILED
    for line in check_report.lines(found):
        # What --json is asked for is one object.
        (partial(complain, options.name) if options.json else partial(tell, flush=True))(line)
    return _repair(options, found)


def _repair(options: argparse.Namespace, found: dict[str, Any]) -> int:
    from broker.check import check_report
    from broker.cli.checks import check_tool

    is_loss = any(check_report.what(each) != "found again" for each in found["ranges"])
    question = "declare these offsets lost, for ever?" if is_loss else "put the pages back?"
    confirm(options, question)
    told = partial(complain, options.name) if options.json else partial(tell, flush=True)
    repaired = check_tool.repair(place_of(options), found, tell=told)
    if options.json:
        counts = {"declared_lost": repaired.declared_lost, "put_back": repaired.put_back}
        tell(json.dumps(found | counts))
    complain(options.name, *repaired.failures)
    named = {key for each in found["ranges"] for key in each["objects"]}
    is_left = any(each["key"] not in named for each in found["wrong"])
    return FAILED if repaired.failures or is_left else 0


def _progress(line: str) -> None:
    complain("frazil check", line)
