"""The arguments of `frazil user`; the rest of the command line is `broker.cli.main`.

A password is never an argument: others on the machine can read those. What a command needs is
imported when it is called.
"""

import argparse
from pathlib import Path
from typing import Any, Final

from broker.cli.arguments import FailedError, cluster_tool, on_cluster, secret_text, whole

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISM_DEFAULT: Final = "SCRAM-SHA-512"
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384


def add_user(commands: Any) -> None:
    """`frazil user`, with its commands."""
    add = cluster_tool(
        commands,
        "user",
        "users of SCRAM: create, list, delete",
        need="what of them? create, list or delete",
    )
    creating = add("create", _create, "make a user, or give one another password")
    creating.add_argument("user", metavar="USER")
    add_mechanism(creating, MECHANISM_DEFAULT, MECHANISM_DEFAULT)
    creating.add_argument(
        "--iterations",
        type=whole(ITERATIONS_MIN, ITERATIONS_MAX),
        default=ITERATIONS_MIN,
        metavar="N",
        help=f"({ITERATIONS_MIN})",
    )
    creating.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="the password is in it (else it is asked for, or read from standard input)",
    )
    listing = add("list", _list, "all users, and how they log in")
    listing.add_argument(
        "--json",
        action="store_true",
        help="a list of {user, credentials: [{mechanism, iterations}]}",
    )
    deleting = add("delete", _delete, "take a user's password away")
    deleting.add_argument("user", metavar="USER")
    add_mechanism(deleting, None, "both")


def add_mechanism(parser: argparse.ArgumentParser, default: str | None, without: str) -> None:
    """`without`: what it is where nothing is said."""
    parser.add_argument(
        "--mechanism",
        choices=MECHANISMS,
        type=str.upper,
        default=default,
        metavar="NAME",
        help=f"{' or '.join(MECHANISMS)} ({without})",
    )


def _create(options: argparse.Namespace) -> int:
    from broker.cli import user_tool

    password = _password(options)
    return on_cluster(
        options,
        lambda client: user_tool.create(
            client,
            options.user,
            password,
            mechanism=options.mechanism,
            iterations=options.iterations,
        ),
    )


def _list(options: argparse.Namespace) -> int:
    from broker.cli import user_tool

    return on_cluster(options, lambda client: user_tool.list_users(client, as_json=options.json))


def _delete(options: argparse.Namespace) -> int:
    from broker.cli import user_tool

    return on_cluster(
        options,
        lambda client: user_tool.delete(client, options.user, mechanism=options.mechanism),
    )


def _password(options: argparse.Namespace) -> str:
    """Raises FailedError."""
    text = secret_text(options.password_file, f"Password of {options.user}: ")
    password = text.rstrip("\r\n")
    if not password:
        raise FailedError("the password is empty")
    return password
