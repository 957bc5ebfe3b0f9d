"""`frazil explain CODE`: what stands behind a code that ended a sentence; without one, all codes."""

import argparse
import json

from broker.cli.arguments import tell
from protocol.fault_codes import FaultCode


def add_explain(commands: argparse._SubParsersAction) -> None:  # type: ignore[type-arg]
    """`frazil explain`."""
    text = "what a code at the end of a sentence means, and what to do"
    parser = commands.add_parser("explain", help=text, description=text)
    parser.set_defaults(run=_explain, name="frazil explain")
    codes = [code.value for code in FaultCode]
    parser.add_argument(
        "code", nargs="?", choices=codes, metavar="CODE", help="without: all of them"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="an object per line: code, means, clients, steps",
    )


def _explain(options: argparse.Namespace) -> int:
    from broker.reports import error_page

    codes = [*FaultCode] if options.code is None else [FaultCode(options.code)]
    for code in codes:
        if options.json:
            tell(json.dumps(error_page.view(code)))
        elif options.code is None:
            tell(f"{code:<24}{error_page.brief(code)}")
        else:
            for line in error_page.lines(code):
                tell(line)
    return 0
