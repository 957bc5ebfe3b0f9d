"""The arguments of `frazil token`; its flags are those of kafka-delegation-tokens.sh.

A token's HMAC is never an argument: others on the machine can read those. What a command needs is imported when it
is called. `JSON_*` are the shapes of `--json`: promises to programs.
"""

import argparse
import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from broker.cli.arguments import (
    BOOTSTRAP_DEFAULT,
    LONG_MAX,
    FailedError,
    checked,
    client_settings,
    cluster_tool,
    on_cluster,
    secret_text,
    settings_file,
    whole,
)
from broker.cli.user_arguments import add_mechanism

if TYPE_CHECKING:
    from broker.cli.command_result import CommandResult
    from broker.cli.tokens.token_file import Way
    from broker.cli.tokens.token_tool import Principal, Token

JSON_ROW: Final = "{token_id, owner, requester, renewers, issued_ms, expires_ms, max_ms, hmac}"
JSON_ENDS: Final = "{expires_ms}; null: it has ended already"
_PERIOD: Final = whole(-1, LONG_MAX)


def add_token(commands: Any) -> None:
    """`frazil token`, with its commands."""
    names = "create, list, renew"
    text = "delegation tokens, with which others are a user for a while"
    add = cluster_tool(
        commands, "token", f"{text}: {names}, expire", need=f"what of them? {names} or expire"
    )
    _add_create(add("create", _create, "make a token of one's own, or of another owner"))
    listing = add("list", _list, "the tokens that one may see, without their HMACs")
    listing.add_argument(
        "--owner-principal",
        type=_principal,
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="(all); may be repeated",
    )
    listing.add_argument("--with-hmac", action="store_true", help="with what logs in by them")
    listing.add_argument(
        "--json", action="store_true", help=f"a list of {JSON_ROW}; hmac with --with-hmac"
    )
    renewing = add("renew", _renew, "let a token live on, as its owner or a renewer")
    _add_hmac(renewing)
    _add_period(renewing, "--renew-time-period", "from now on, -1: as long as tokens do (-1)")
    expiring = add("expire", _expire, "let a token end, as its owner or a renewer")
    _add_hmac(expiring)
    _add_period(expiring, "--expiry-time-period", "from now on, -1: at once (-1)")
    for parser in (renewing, expiring):
        parser.add_argument("--json", action="store_true", help=JSON_ENDS)


def _add_create(parser: argparse.ArgumentParser) -> None:
    text = "it cannot be renewed beyond that, -1: as long as tokens may live (-1)"
    _add_period(parser, "--max-life-time-period", text)
    parser.add_argument(
        "--renewer-principal",
        type=_principal,
        action="append",
        default=[],
        metavar="TYPE:NAME",
        help="who may renew and end it, too: User:bob; may be repeated",
    )
    parser.add_argument(
        "--owner-principal",
        type=_principal,
        metavar="TYPE:NAME",
        help="who one is by it: User:alice (whoever asks)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="for --command-config, to be read by its owner alone (without it the HMAC is printed)",
    )
    add_mechanism(parser, None, "by which FILE logs in; the one of this login, or SCRAM-SHA-512")
    parser.add_argument("--json", action="store_true", help=f"{JSON_ROW}; no hmac with --out")


def _add_period(parser: argparse.ArgumentParser, flag: str, text: str) -> None:
    parser.add_argument(flag, type=_PERIOD, default=-1, metavar="MS", help=text)


def _add_hmac(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hmac-file",
        type=Path,
        metavar="FILE",
        help="of create --out, or the HMAC alone (else it is asked for, or read from standard input)",
    )
    # As Kafka's tool has it, which ours would take for the beginning of the other flag.
    parser.add_argument("--hmac", type=_secret, help=argparse.SUPPRESS)


def _secret(_text: str) -> str:
    raise argparse.ArgumentTypeError(
        "others can read command lines: --hmac-file names a file with it, or it comes by standard input"
    )


def _principal(text: str) -> "Principal":
    from broker.cli.tokens.token_tool import Principal

    return checked(Principal.of)(text)


def _create(options: argparse.Namespace) -> int:
    from broker.cli.tokens import token_tool

    wanted = token_tool.NewToken(
        options.owner_principal, options.renewer_principal, options.max_life_time_period
    )
    if options.out is None:
        keep = partial(token_tool.shown, as_json=options.json)
        return on_cluster(options, lambda client: token_tool.create(client, wanted, keep))
    way = _way(options)
    with _new_file(options.out) as file:
        keep = partial(_kept, options, way, file)
        return on_cluster(options, lambda client: token_tool.create(client, wanted, keep))


def _way(options: argparse.Namespace) -> "Way":
    """To the cluster, as the command goes. Raises FailedError, SettingsError."""
    from broker.cli.tokens.token_file import TRUSTED, Way
    from broker.config import properties_text

    file, settings, bootstrap = settings_file(options), dict[str, str](), None
    if file is not None:
        bootstrap = client_settings(file).bootstrap
        settings = dict(properties_text.parse(str(file), file.read_text(encoding="utf-8")))
    if settings.get(TRUSTED):
        # A path from here means nothing to whoever gets the token.
        settings[TRUSTED] = str(Path(settings[TRUSTED]).absolute())
    said = ",".join(map(str, options.bootstrap or ()))
    return Way(settings, said or bootstrap or BOOTSTRAP_DEFAULT, options.mechanism)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[TextIO]:
    """A file of its owner's alone, which was not there; without anything in it it does not stay. Raises
    FailedError."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise FailedError(f"{path} is there already: name another file") from error
    except OSError as error:
        raise FailedError(f"cannot write {path}: {error.strerror}") from error
    with os.fdopen(number, "w", encoding="utf-8") as file:
        try:
            yield file
        finally:
            if file.tell() == 0:
                path.unlink(missing_ok=True)


def _kept(options: argparse.Namespace, way: "Way", file: TextIO, token: "Token") -> "CommandResult":
    """Raises ToolError."""
    from broker.cli.command_result import ToolError
    from broker.cli.tokens import token_tool

    try:
        file.write(way.text(token.token_id, token.hmac))
        file.flush()
    except OSError as error:
        raise ToolError(
            f"token {token.token_id} is made, but {options.out} cannot be written: {error.strerror}"
            " (frazil token list --with-hmac has its HMAC)"
        ) from error
    said = token_tool.kept(token, str(options.out), as_json=options.json)
    if way.has_sasl:
        return said
    return said._replace(
        warnings=[
            f"{options.out} has no bootstrap.servers: a token logs in where the cluster speaks SASL"
        ]
    )


def _list(options: argparse.Namespace) -> int:
    from broker.cli.tokens import token_tool

    return on_cluster(
        options,
        lambda client: token_tool.list_tokens(
            client, options.owner_principal, with_hmac=options.with_hmac, as_json=options.json
        ),
    )


def _renew(options: argparse.Namespace) -> int:
    from broker.cli.tokens import token_tool

    hmac, period_ms = _hmac(options), options.renew_time_period
    return on_cluster(
        options,
        lambda client: token_tool.renew(client, hmac, period_ms=period_ms, as_json=options.json),
    )


def _expire(options: argparse.Namespace) -> int:
    from broker.cli.tokens import token_tool

    hmac, period_ms = _hmac(options), options.expiry_time_period
    return on_cluster(
        options,
        lambda client: token_tool.expire(client, hmac, period_ms=period_ms, as_json=options.json),
    )


def _hmac(options: argparse.Namespace) -> bytes:
    """Raises FailedError."""
    from broker.cli.tokens.token_file import hmac_in

    text = secret_text(options.hmac_file, "HMAC of the token: ")
    try:
        return hmac_in(text)
    except ValueError as error:
        raise FailedError(f"{options.hmac_file or 'standard input'}: {error}") from error
