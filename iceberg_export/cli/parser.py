"""The arguments of `frazil export`, of all its commands.

Imports nothing that has to be installed, nor anything that commands are made of: help, mistakes and completion take
no longer than Python's start, and are told before the exporter's packages are there. `plan --file` and `apply` are the
agent's package's, which does them without an exporter; they are here to be found.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from iceberg_export.cli import completion
from iceberg_export.table.latest_view import QUOTES
from iceberg_export.units import parse_bytes, parse_duration_ms

EXIT_CODES: Final = (
    "Exit codes: 0 done (verify: exact; status: nothing is wrong); 1 something failed, or differs; "
    "2 wrong use or settings; 3 another exporter was first; 4 done, and some records have become dead "
    "letters (run --once; status: with the newest commit); 143 run --once was asked to stop."
)
OLDER_THAN_MS: Final = 3 * 86_400_000


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Returns a command's arguments; None: of this process. Ends the process when it is a mistake, a question
    for help, or a shell that asks."""
    parser = make_parser()
    completion.answer(parser)
    arguments = parser.parse_args(argv)
    if arguments.command == "apply" or getattr(arguments, "file", None) is not None:
        parser.error("project files are read by `frazil export`, not by the exporter alone")
    return arguments


def make_parser() -> argparse.ArgumentParser:
    """Returns a parser; `command` is the name of the command."""
    parser = argparse.ArgumentParser(
        prog="frazil export",
        description="Turns topics into Iceberg tables, each record once.",
        epilog=EXIT_CODES,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_export_commands(commands)
    _add_table_commands(commands)
    commands.add_parser(
        "apply", help="set the tables' settings of many topics, as a project file has them (--file)"
    )
    return parser


def _add_export_commands(commands: Any) -> None:
    """Adds the commands that export, and that look at exports."""
    run = commands.add_parser("run", help="export what is new in every topic")
    how = run.add_mutually_exclusive_group(required=True)
    how.add_argument("--once", action="store_true", help="up to now, then end")
    how.add_argument(
        "--interval", metavar="TIME", type=parse_duration_ms,
        help="until asked to stop: look this often (300s, 5m), export what is due",
    )  # fmt: skip
    run.add_argument(
        "--max-bytes-per-run", metavar="BYTES", type=parse_bytes,
        help="of each topic, about (64g); the rest comes with the next run",
    )  # fmt: skip
    run.add_argument(
        "--new-warehouse", action="store_true",
        help="make an embedded warehouse here though tables were exported into another one",
    )  # fmt: skip
    run.add_argument("--metrics-port", metavar="[HOST:]PORT", help="answer Prometheus there")
    status = commands.add_parser("status", help="how far tables are behind, per partition")
    status.add_argument("--json", action="store_true", help="for programs")
    for command in (run, status):
        command.add_argument("--topics", metavar="REGEX", help="only topics that match as a whole")
    plan = commands.add_parser("plan", help="what a run would read and write, without doing it")
    plan.add_argument(
        "--infer",
        action="store_true",
        help="show the columns that its JSON would get without a schema",
    )
    plan.add_argument(
        "--file", metavar="FILE",
        help="instead of a topic: what `frazil export apply` of this project file would change",
    )  # fmt: skip
    view = commands.add_parser(
        "view", help="a view of each key's newest record: print its statement, or make it"
    )
    view.add_argument(
        "--create", action="store_true", help="make it in the catalog, which must be of type REST"
    )
    view.add_argument("--dialect", choices=sorted(QUOTES), default="spark", help="(spark)")
    view.add_argument("--catalog", metavar="NAME", help="what the engine calls the catalog")
    verify = commands.add_parser("verify", help="prove that a table holds each record once")
    for command in (plan, verify, view):
        _add_topic(command)
    for command in (run, plan, verify):
        command.add_argument("--master", metavar="URL", help="where Spark runs (local[*])")
    for command in (run, plan, status, verify, view):
        _add_options(command)


def _add_table_commands(commands: Any) -> None:
    """Adds the commands that change tables by hand."""
    init = commands.add_parser("init", help="make a topic's table and its first, empty snapshot")
    _add_place(
        init, "--from", required=False,
        help="where its export begins: earliest (default), latest, or {partition:offset,...}",
    )  # fmt: skip
    reset = commands.add_parser("reset-offsets", help="say where a topic's export goes on")
    _add_place(
        reset, "--to", required=True,
        help="earliest, latest, or {partition:offset,...}; rows from there on leave the table",
    )  # fmt: skip
    reset.add_argument("--yes", action="store_true", help="do it; without, it says what it would")
    out = commands.add_parser(
        "redact", help="take records out of a table for good, and note who did"
    )
    out.add_argument(
        "--where", metavar="FILTER",
        help="which rows: an Iceberg filter, as \"city = 'Ulm' and kafka_offset < 100\"; without, what was "
        "redacted before and is there again",
    )  # fmt: skip
    out.add_argument("--by", metavar="NAME", help="who redacts (default: this user)")
    out.add_argument("--reason", metavar="TEXT", help="why (default: the filter); verify tells it")
    out.add_argument("--yes", action="store_true", help="do it; without, it says what it would")
    again = commands.add_parser(
        "replay", help="decode dead letters again, after a schema or setting was mended"
    )
    fill = commands.add_parser(
        "backfill", help="export what a reset, or a beginning in the middle, has skipped"
    )
    _add_place(
        fill, "--from", required=False, help="from there on (default: earliest)", name="first"
    )
    _add_place(fill, "--to", required=False, help="up to there (default: latest)")
    for command in (init, reset, out, again, fill):
        _add_topic(command)
    keep = commands.add_parser(
        "maintain", help="expire snapshots, delete orphans, join small files (all, or those named)"
    )
    keep.add_argument("--expire", action="store_true", help="snapshots: keeps 24 h, and 100")
    keep.add_argument("--orphans", action="store_true", help="files that nobody refers to")
    keep.add_argument(
        "--older-than", metavar="TIME", type=parse_duration_ms, default=OLDER_THAN_MS,
        help="of orphans: at least so old (default: 3d)",
    )  # fmt: skip
    keep.add_argument("--compact", action="store_true", help="join small files")
    keep.add_argument(
        "--min-age", metavar="TIME", type=parse_duration_ms,
        help="of small files that are joined (default: 1d, so that each is rewritten about once)",
    )  # fmt: skip
    keep.add_argument(
        "--max-bytes", metavar="BYTES", type=parse_bytes,
        help="of small files that are joined, of each table (64g), the smallest first; the rest waits for "
        "the next time",
    )  # fmt: skip
    keep.add_argument("--topics", metavar="REGEX", help="only topics that match as a whole")
    for command in (reset, out, again, fill, keep):
        command.add_argument("--master", metavar="URL", help="where Spark runs (local[*])")
    for command in (init, reset, out, again, fill, keep):
        _add_options(command)


def _add_place(
    command: argparse.ArgumentParser,
    option: str,
    *,
    required: bool,
    help: str,  # noqa: A002
    name: str = "place",
) -> None:
    """`name`: of what the arguments have it as."""
    place = command.add_mutually_exclusive_group(required=required)
    place.add_argument(option, dest=name, metavar="WHERE", help=help)
    place.add_argument(
        f"{option}-datetime", dest=f"{name}_time", metavar="TIME",
        help="the first record from then on: 2026-01-31T08:00:00, UTC unless it says +02:00",
    )  # fmt: skip


def _add_topic(command: argparse.ArgumentParser) -> None:
    """Adds the options that name a topic, and one of its tables."""
    topic = command.add_argument("--topic", metavar="TOPIC", required=True)
    completion.completes_topics(topic)
    command.add_argument(
        "--table", metavar="NAME",
        help="of a topic with frazil.iceberg.route.by: which of its tables",
    )  # fmt: skip


def _add_options(command: argparse.ArgumentParser) -> None:
    """Adds the options that every command takes."""
    command.add_argument("--agent", metavar="URL", help="admin address of an agent")
    command.add_argument(
        "--data", metavar="DIR", type=Path, default=Path("frazil-data"),
        help="folder of the embedded warehouse (default: ./frazil-data)",
    )  # fmt: skip
    command.add_argument("--config", metavar="FILE", type=Path, help="TOML file of settings")
    command.add_argument("--set", metavar="NAME=VALUE", action="append", default=[])
