"""`python -m tests.docs.references` writes docs/commands.md and docs/metrics.md, from parsers and tables.

Here and not beside them, since the exporter's commands and metrics are on the same pages as the agents'.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Final

from broker.admin.metrics import LATENCY, TABLE, Type
from broker.cli import main as agent_cli
from broker.cli.arguments import Parser, add_agent, add_cluster
from iceberg_export.cli.parser import make_parser
from iceberg_export.runs.metrics import LoopCollector, LoopMetrics
from tests.docs.blocks import ROOT

COMMANDS: Final = ROOT / "docs" / "commands.md"
METRICS: Final = ROOT / "docs" / "metrics.md"

_COMMANDS_HEAD: Final = """\
# Commands and their flags

Written by `python -m tests.docs.references` from the parsers of the commands. What they are for, with examples, is in
[the command line](command-line.md). Flags of whatever asks a cluster (*of a cluster*) and of whatever asks an agent's
HTTP listener (*of an agent*) are told once.
"""
_METRICS_HEAD: Final = """\
# Metrics

Written by `python -m tests.docs.references` from the tables that agents and exporters answer by. Agents have them at
`/metrics` of their HTTP listener (9094), exporters at the port of `--metrics-port`. Alerts and a dashboard over them are in
[deploy/](../deploy/README.md).
"""

_EXPORTERS: Final = """\
Those of a topic have the label `topic`, and `route` where it has several tables; dead letters by reason also `code`.
"""

Flag = tuple[str, str]
"""How it is written, and what it says."""


def _flags(parser: argparse.ArgumentParser) -> list[Flag]:
    return [
        (_written(action), _cell(_said(parser, action)))
        for action in parser._actions
        if not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
        and action.help != argparse.SUPPRESS
    ]


def _written(action: argparse.Action) -> str:
    dest = action.dest.upper() if action.option_strings else action.dest
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else dest)
    names = value if isinstance(value, str) else " ".join(value)
    if not action.option_strings:
        return f"`{names}`"
    takes = action.nargs != 0
    options = ", ".join(f"`{option}`" for option in action.option_strings)
    needed = "" if not action.required else " (must be given)"
    return options + (f" `{names}`" if takes else "") + needed


def _said(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _table(flags: Sequence[Flag]) -> str:
    if not flags:
        return ""
    rows = "".join(
        f"| {written.replace('|', chr(92) + '|')} | {said} |\n" for written, said in flags
    )
    return f"\n| | |\n|---|---|\n{rows}"


def _shared() -> dict[str, list[Flag]]:
    shared = {}
    for name, add in (("of a cluster", add_cluster), ("of an agent", add_agent)):
        parser = Parser()
        add(parser)
        shared[name] = _flags(parser)
    return shared


def _leaves(
    parser: argparse.ArgumentParser, words: str, text: str
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """The commands that have none below them, with what they say of themselves."""
    below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    for each in below:
        said = {one.dest: one.help or "" for one in each._choices_actions}
        for name, command in each.choices.items():
            yield from _leaves(command, f"{words} {name}", said.get(name, ""))
    if not below:
        yield words, text, parser


def commands() -> str:
    """The text of docs/commands.md."""
    shared = _shared()
    parts = [_COMMANDS_HEAD]
    parts += [f"\n## Flags {name}\n{_table(flags)}" for name, flags in shared.items()]
    exporter = make_parser()
    agents = list(_leaves(agent_cli._parser(), "frazil", ""))
    of_exporter = list(_leaves(exporter, "frazil export", ""))
    for words, text, parser in [*agents, *of_exporter]:
        if words == "frazil export":
            continue  # Its commands come behind the others.
        own = _flags(parser)
        has = [name for name, flags in shared.items() if set(flags) <= set(own)]
        own = [flag for flag in own if not any(flag in shared[name] for name in has)]
        also = f"\nAlso flags {', and '.join(has)}.\n" if has else ""
        said = f"\n{_cell(text)}\n" if text else ""
        parts.append(f"\n## {words}\n{said}{also}{_table(own)}")
    return "".join(parts)


def metrics() -> str:
    """The text of docs/metrics.md."""
    rows = [
        (
            f"{row.name}_total" if row.type is Type.COUNTER else row.name,
            row.type.value,
            ", ".join([row.labels] if isinstance(row.labels, str) else row.labels),
            row.help,
        )
        for row in TABLE
    ]
    rows.append(
        (LATENCY, "histogram", "api", "Time from a request's last byte to its answer, by API.")
    )
    of_exporter = [
        (
            f"{one.name}_total" if one.type == "counter" else one.name,
            one.type,
            "",
            f"{one.documentation}.",
        )
        for one in LoopCollector(LoopMetrics()).collect()
    ]
    return f"{_METRICS_HEAD}\n## Agents\n{_metrics(rows)}\n## Exporters\n\n{_EXPORTERS}{_metrics(of_exporter)}"


def _metrics(rows: Sequence[tuple[str, str, str, str]]) -> str:
    lines = (
        f"| `{name}` | {kind} | {labels} | {_cell(said)} |\n" for name, kind, labels, said in rows
    )
    return "\n| metric | | labels | what |\n|---|---|---|---|\n" + "".join(lines)


if __name__ == "__main__":
    COMMANDS.write_text(commands(), encoding="utf-8")
    METRICS.write_text(metrics(), encoding="utf-8")
