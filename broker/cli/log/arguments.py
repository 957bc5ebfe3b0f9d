"""The arguments of `frazil log tail` and `frazil log void`.

What a command needs is imported when it is called.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.cli.arguments import (
    FailedError,
    add_agent,
    add_yes,
    complain,
    confirm,
    log_position,
    place_of,
    tell,
    tool,
)

if TYPE_CHECKING:
    from broker.config.settings import Loaded

REASON_MAX: Final = 500
"""Characters."""


class Load(Protocol):
    """How the command line gets its settings."""

    def __call__(self, options: argparse.Namespace, *, defaults: dict[str, str]) -> "Loaded": ...


def add_log(
    commands: Any, *, add_config: Callable[[argparse.ArgumentParser], None], load: Load
) -> None:
    """`frazil log`, with its commands. `add_config`: where settings are."""
    need = "what of it? (frazil log tail, frazil log void)"
    add = tool(commands, "log", "the metadata log: tail, void", need=need)
    tail = add("tail", _tail, "print its entries")
    add_agent(tail)
    tail.add_argument("--after", type=log_position, default=0, metavar="POSITION")
    tail.add_argument("--follow", "-f", action="store_true", help="go on as entries come")
    tail.add_argument("--json", action="store_true", help="one JSON object per line")
    text = (
        "have every agent pass over an entry that stops them all, while none is running: what it says"
        " did not happen, for anybody"
    )
    void = add("void", partial(_void, load=load), text)
    void.add_argument("position", type=log_position, metavar="POSITION", help="like 1:42")
    void.add_argument(
        "--reason", type=_reason, required=True, metavar="TEXT", help="kept in the log beside it"
    )
    add_config(void)
    void.add_argument(
        "--data", type=Path, metavar="DIR", help="instead: the folder of frazil dev, which is ended"
    )
    add_yes(void)


def _reason(text: str) -> str:
    if not text.strip() or len(text) > REASON_MAX:
        raise argparse.ArgumentTypeError(f"a reason has 1 to {REASON_MAX} characters")
    return text.strip()


def _tail(options: argparse.Namespace) -> int:
    from broker.cli.command_result import ToolError
    from broker.cli.log import log_tail

    try:
        for line in log_tail.tail(
            place_of(options), after=options.after, follow=options.follow, as_json=options.json
        ):
            tell(line, flush=options.follow)
    except ToolError as error:
        raise FailedError.of(error) from error
    return 0


def _void(options: argparse.Namespace, *, load: Load) -> int:
    from broker import process
    from broker.cli import dev
    from broker.cli.command_result import ToolError
    from broker.cli.log import void_tool

    defaults = {}
    if options.data is not None:
        defaults = dev.defaults(port=9092, http_port=9094, registry_port=0, data=options.data)
    settings = load(options, defaults=defaults).settings

    def ask(lines: list[str]) -> None:
        for line in lines:
            tell(line, flush=True)
        confirm(options, "void it, for all agents and for ever?")

    try:
        waiting = partial(complain, options.name)
        work = void_tool.void(settings, options.position, options.reason, ask=ask, tell=waiting)
        for line in process.run_once(work):
            tell(line)
    except ToolError as error:
        raise FailedError.of(error) from error
    return 0
