"""The arguments of `frazil job`, `frazil cost` and `frazil certificates`; of project files.

What is about one agent, or made for one, or is a file; the rest of the command line is `broker.cli.main`.

What a command needs is imported when it is called.
"""

import argparse
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.cli.arguments import (
    FailedError,
    add_agent,
    add_cluster,
    on_agent,
    on_cluster,
    place_of,
    tool,
    whole,
)
from broker.reports.prices import Prices

if TYPE_CHECKING:
    from broker.cli.command_result import CommandResult
    from broker.reports.project_file import Settings


def add_project_file(commands: Any) -> None:
    """`frazil export plan --file` and `frazil export apply`: they ask a cluster, not the exporter."""
    for name, run, text in (
        ("plan", _plan_project, "what a project file would change of its topics' table settings"),
        ("apply", _apply_project, "set what a project file says, if the cluster takes all of it"),
    ):
        parser = commands.add_parser(name, help=text, description=text)
        parser.set_defaults(run=run, name=f"frazil export {name}")
        parser.add_argument(
            "--file", type=Path, required=True, metavar="FILE", help="as frazil-export.toml"
        )
        add_cluster(parser)


def _wanted(options: argparse.Namespace) -> "Mapping[str, Settings]":
    """Raises FailedError."""
    from broker.reports import project_file

    file = options.file
    try:
        return project_file.parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FailedError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        # Of text that is not UTF-8, too.
        raise FailedError(f"{file}: {error}") from error


def _plan_project(options: argparse.Namespace) -> int:
    from broker.cli.topics import project_tool

    wanted = _wanted(options)
    return on_cluster(options, lambda client: project_tool.plan(client, wanted))


def _apply_project(options: argparse.Namespace) -> int:
    from broker.cli.topics import project_tool

    wanted = _wanted(options)
    return on_cluster(options, lambda client: project_tool.apply(client, wanted))


def add_job(commands: Any) -> None:
    """`frazil job`, with its commands."""
    need = "what of them? list or run (frazil job --help)"
    add = tool(commands, "job", "jobs that keep the cluster bounded: list, run", need=need)
    text = "which agent runs them, how far they are; snapshots and the log's size"
    listing = add("list", _list_jobs, text)
    listing.add_argument("--json", action="store_true", help="as one JSON object")
    add_agent(listing)
    running = add("run", _run_job, "have a job run now, whether or not it is due")
    running.add_argument("job", metavar="JOB")
    add_agent(running)


def add_cost(commands: Any) -> None:
    """`frazil cost`."""
    text = "what an agent's store costs: by cause, by topic, and by other settings"
    parser = commands.add_parser("cost", help=text, description=text)
    parser.set_defaults(run=_cost, name="frazil cost")
    add_agent(parser)
    listed = Prices()
    parser.add_argument(
        "--seconds", type=whole(1, 86_400), default=10, metavar="N", help="to look at it for (10)"
    )
    for name, price, what in (
        ("put", listed.put_1000, "of 1,000 PUT and LIST requests"),
        ("get", listed.get_1000, "of 1,000 GET requests"),
        ("storage", listed.gib_month, "of a GiB that is stored for a month"),
    ):
        parser.add_argument(
            f"--price-{name}", type=_usd, default=price, metavar="USD", help=f"{what} ({price})"
        )
    parser.add_argument("--json", action="store_true", help="as one JSON object")


def _usd(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (amount := float(text)) < 1e6:
            return amount
    raise argparse.ArgumentTypeError(f'"{text}" is not a price in USD (example: 0.005)')


def _cost(options: argparse.Namespace) -> int:
    from broker.cli import cost_tool

    prices = Prices(options.price_put, options.price_get, options.price_storage)
    return on_agent(
        options,
        lambda: cost_tool.cost(
            place_of(options), seconds=options.seconds, prices=prices, as_json=options.json
        ),
    )


def add_certificates(commands: Any) -> None:
    """`frazil certificates`, with its command."""
    need = "what of them? create (frazil certificates --help)"
    add = tool(commands, "certificates", "certificates for trying TLS out: create", need=need)
    text = "a key with its certificate, signed by an authority that lies beside it, made if need be"
    creating = add("create", _create_certificate, text)
    creating.add_argument("name", metavar="NAME", help="of an agent or a client: NAME.pem")
    creating.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="a name or address by which clients reach the agent; may be repeated",
    )
    creating.add_argument("--data", type=Path, default=Path("certificates"), metavar="DIR")
    creating.add_argument(
        "--days", type=whole(1, 36_500), default=365, metavar="N", help="how long it holds (365)"
    )
    creating.add_argument("--renew", action="store_true", help="in place of the one that is there")


def _list_jobs(options: argparse.Namespace) -> int:
    from broker.cli import job_tool
    from broker.environment import now_ms

    return on_agent(
        options,
        lambda: job_tool.list_jobs(place_of(options), now_ms=now_ms(), as_json=options.json),
    )


def _run_job(options: argparse.Namespace) -> int:
    from broker.cli import job_tool

    return on_agent(options, lambda: job_tool.run_job(place_of(options), options.job))


def _create_certificate(options: argparse.Namespace) -> int:
    return on_agent(options, lambda: _created(options))


def _created(options: argparse.Namespace) -> "CommandResult":
    """Raises ToolError."""
    from broker.cli.command_result import CommandResult, ToolError
    from broker.environment import now_ms
    from broker.trial import certificate_files
    from broker.trial.certificate_files import CertificateError

    try:
        file = certificate_files.create(
            options.data,
            options.name,
            options.host,
            now_ms=now_ms(),
            days=options.days,
            renew=options.renew,
        )
    except CertificateError as error:
        raise ToolError(str(error)) from error
    except OSError as error:
        raise ToolError(f"{options.data} cannot be used: {error.strerror}") from error
    trusted = file.parent / certificate_files.CA
    return CommandResult([f"{file} is the key store of {options.name}; {trusted} is whom to trust"])
