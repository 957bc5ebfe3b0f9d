"""The arguments that several commands take, and how a command of the tools is run.

Every foreseeable failure is a `FailedError`, a sentence that `broker.cli.main` prints. What a command
needs is imported when it is called.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from typing_extensions import override

from broker.config.values import whole_number
from broker.logs import printable
from protocol.errors import KafkaError
from protocol.fault_codes import FaultError, told
from protocol.types import ERA_MAX, REVISION_MASK, position

if TYPE_CHECKING:
    import ssl

    from broker.cli.admin_client import AgentPlace
    from broker.cli.command_result import CommandResult
    from broker.cli.kafka_client import Address, KafkaClient
    from broker.client.client_settings import ClientSettings
    from broker.client.tls_settings import ClientTls

T = TypeVar("T")

FAILED: Final = 1
MISUSED: Final = 2
INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DIGITS_MAX: Final = 19
BOOTSTRAP_DEFAULT: Final = "localhost:9092"
AGENT_DEFAULT: Final = "http://127.0.0.1:9094"

Run = Callable[[argparse.Namespace], int]
"""Does what a command is for; the exit code."""
Add = Callable[[str, Run, str], argparse.ArgumentParser]
"""Adds a command of name, function and text below another one."""


class FailedError(FaultError):
    """The command cannot do its work; the sentence says why."""


class Parser(argparse.ArgumentParser):
    """Mistakes in one line, without the usage before it."""

    @override
    def error(self, message: str) -> NoReturn:
        self.exit(MISUSED, f"{self.prog}: {message} (see {self.prog} --help)\n")


def tool(commands: Any, name: str, text: str, *, need: str) -> Add:
    """A command with others below it; returns what adds those. `need`: the sentence without one."""
    parser = commands.add_parser(name, help=text)
    parser.set_defaults(run=needed(need), name=f"frazil {name}")
    below = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)

    def add(command: str, run: Run, text: str) -> argparse.ArgumentParser:
        parser: Parser = below.add_parser(command, help=text, description=text)
        parser.set_defaults(run=run, name=f"frazil {name} {command}")
        return parser

    return add


def cluster_tool(commands: Any, name: str, text: str, *, need: str) -> Add:
    """As `tool`; the commands below ask a cluster over Kafka's protocol."""
    add_below = tool(commands, name, text, need=f"{need} (frazil {name} --help)")

    def add(command: str, run: Run, text: str) -> argparse.ArgumentParser:
        parser = add_below(command, run, text)
        add_cluster(parser)
        return parser

    return add


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Where the cluster is, and how to log in."""
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",  # As Kafka's tools call it.
        type=_addresses,
        metavar="HOST:PORT",
        help=f"({BOOTSTRAP_DEFAULT}, or bootstrap.servers of --command-config)",
    )
    add_settings_file(parser, "Kafka's tools take them: TLS, and how to log in")


def add_settings_file(parser: argparse.ArgumentParser, whose: str) -> None:
    """A file of a client's settings, or the context that has them, and how long an answer is waited for."""
    parser.add_argument(
        "--context", metavar="NAME", help="(the one of frazil context use, or FRAZIL_CONTEXT)"
    )
    parser.add_argument(
        "--timeout-ms", type=whole(100, 3_600_000), default=15_000, metavar="MS", help="(15000)"
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help=f"settings of a client, as {whose}",
    )


def needed(sentence: str) -> Run:
    """What is run when the command below is missing."""

    def run(_options: argparse.Namespace) -> int:
        raise FailedError(sentence)

    return run


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """The type of an argument that `read` reads; its ValueError is the sentence."""

    def parse(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def whole(minimum: int, maximum: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number."""
    return checked(lambda text: whole_number(text, minimum=minimum, maximum=maximum))


def log_position(text: str) -> int:
    """The type of an argument that is a position, as it is printed (`era:revision`) or as one number."""
    parts = text.split(":")
    if all(part.isascii() and part.isdigit() and len(part) <= DIGITS_MAX for part in parts):
        match [int(part) for part in parts]:
            case [number] if number <= LONG_MAX:
                return number
            case [era, revision] if 0 < era <= ERA_MAX and revision <= REVISION_MASK:
                return position(era, revision)
    raise argparse.ArgumentTypeError(f'"{text}" is not a position (examples: 1:42, 0)')


def named_value(example: str) -> Callable[[str], tuple[str, str]]:
    """The type of an argument that is NAME=VALUE, as the example is."""

    def read(text: str) -> tuple[str, str]:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ValueError(f'"{text}" is not NAME=VALUE (example: {example})')
        return name, value

    return checked(read)


def state(text: str, states: Iterable[str]) -> str:
    """A state by its name, whatever the case."""
    for each in states:
        if each.lower() == text.lower():
            return each
    raise argparse.ArgumentTypeError(f'"{text}" is not a state ({", ".join(states)})')


def _addresses(text: str) -> tuple["Address", ...]:
    from broker.cli.kafka_client import addresses

    return checked(addresses)(text)


def duration_ms(text: str) -> int:
    """ms of a duration."""
    from broker.cli.groups.group_reset import duration_ms

    return checked(duration_ms)(text)


def datetime_ms(text: str) -> int:
    """ms since the epoch of an ISO 8601 time; UTC when it names no zone, as Kafka's tool."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a time (example: 2026-01-31T08:00:00)'
        ) from error
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    time_ms = int(at.timestamp() * 1000)
    # Negative ones mean something else to ListOffsets: -1 is the end.
    if time_ms < 0:
        raise argparse.ArgumentTypeError(f'"{text}" is before 1970')
    return time_ms


def add_yes(parser: argparse.ArgumentParser) -> None:
    """The flag of a command that asks before it deletes (`confirm`)."""
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def confirm(options: argparse.Namespace, question: str) -> None:
    """Ask whoever sits at the terminal, unless there is --yes. Raises FailedError for a no, and when
    nobody can be asked."""
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise FailedError(
            f'nothing is done: there is no terminal to ask "{question}" (--yes does it unasked)'
        )
    print(printable(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise FailedError("nothing is done: the answer was not yes")


def secret_text(file: Path | None, question: str) -> str:
    """What no argument may be: from a file, the terminal, or what is piped in. Raises FailedError."""
    if file is None and sys.stdin.isatty():
        import getpass

        return getpass.getpass(question)
    try:
        return sys.stdin.read() if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise FailedError(f"cannot read {file or 'standard input'}: {reason}") from error


def on_cluster(
    options: argparse.Namespace, command: Callable[["KafkaClient"], Awaitable["CommandResult"]]
) -> int:
    """Run a command of one of the tools; print what it says."""
    import asyncio

    from broker.cli.command_result import ToolError
    from broker.cli.kafka_client import ClientError

    async def work() -> "CommandResult":
        async with client:
            return await command(client)

    client = client_of(options)
    try:
        # Not `process.run_once`: what an agent is made of takes longer to import than all this.
        said = asyncio.run(work())
    except (ClientError, ToolError) as error:
        raise FailedError(str(error)) from error
    except KafkaError as error:
        raise FailedError(f"refused: {error.message or error.code.name}") from error
    return _say(options, said)


def client_of(options: argparse.Namespace) -> "KafkaClient":
    """The client that the arguments and their file of settings mean. Raises FailedError, SettingsError."""
    from broker.cli.kafka_client import KafkaClient, addresses

    file = settings_file(options)
    if file is None:
        # Logins and TLS take longer to import than all the rest.
        bootstrap = options.bootstrap or addresses(BOOTSTRAP_DEFAULT)
        return KafkaClient(bootstrap, timeout_ms=options.timeout_ms)
    from broker.client.bearer_tokens import BearerTokens
    from broker.client.token_settings import BearerLogin

    settings = client_settings(file)
    complain(options.name, *[f"{file}: {warning}" for warning in settings.warnings])
    try:
        bootstrap = options.bootstrap or addresses(settings.bootstrap or BOOTSTRAP_DEFAULT)
    except ValueError as error:
        raise FailedError(f"{file}: bootstrap.servers: {error}") from error
    context = None if settings.tls is None else _client_context(settings.tls, file)
    login = settings.login
    return KafkaClient(
        bootstrap,
        timeout_ms=options.timeout_ms,
        login=BearerTokens(login) if isinstance(login, BearerLogin) else login,
        tls=context,
    )


def settings_file(options: argparse.Namespace) -> Path | None:
    """The client's settings of a command: a file that it names, or a context. A context that is in use is that
    of commands which say neither where the cluster is nor who asks; an empty FRAZIL_CONTEXT means none. Raises
    FailedError."""
    from broker.client.contexts import ContextError, Contexts, folder_of

    file: Path | None = options.command_config
    if file is not None and options.context is not None:
        raise FailedError("--context and --command-config exclude each other")
    name: str | None = options.context
    try:
        contexts = Contexts(folder_of(os.environ))
        if name is None and file is None and options.bootstrap is None:
            name = os.environ.get("FRAZIL_CONTEXT", contexts.current())
        return contexts.file(name) if name else file
    except ContextError as error:
        raise FailedError(str(error)) from error


def _client_context(settings: "ClientTls", file: Path) -> "ssl.SSLContext":
    """Raises FailedError. What reads certificates is imported only where there are any."""
    from broker.client.client_tls import client_context
    from broker.edge.key_stores import TlsError

    try:
        return client_context(settings)
    except TlsError as error:
        raise FailedError(f"{file}: {error}") from error


def client_settings(file: Path) -> "ClientSettings":
    """What a file of a client's settings says. Raises FailedError, and SettingsError."""
    from broker.client.client_settings import client_settings_of
    from broker.config import properties_text
    from broker.config.values import SettingsError

    try:
        text = file.read_text(encoding="utf-8")
        return client_settings_of(dict(properties_text.parse(str(file), text)))
    except OSError as error:
        raise FailedError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FailedError(f"{file} is not UTF-8 text") from error
    except ValueError as error:
        raise SettingsError([f"{file}: {each}" for each in str(error).splitlines()]) from error


def on_agent(options: argparse.Namespace, command: Callable[[], "CommandResult"]) -> int:
    """Run a command that asks no cluster, an agent's admin listener at most; print what it says."""
    from broker.cli.command_result import ToolError

    try:
        return _say(options, command())
    except ToolError as error:
        raise FailedError(str(error)) from error


def add_agent(parser: argparse.ArgumentParser) -> None:
    """The address of an agent's admin listener, and what it wants to hear."""
    parser.add_argument("--agent", default=AGENT_DEFAULT, metavar="URL")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="the agent's http.token is in it (else FRAZIL_HTTP_TOKEN or FRAZIL_HTTP_TOKEN_FILE)",
    )
    parser.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="who signed the agent's certificate (PEM)"
    )
    parser.add_argument(
        "--cert-file", type=Path, metavar="FILE", help="certificate and key to show to it (PEM)"
    )


def _context(ca: Path | None, own: Path | None) -> "ssl.SSLContext | None":
    """Trusts whom the one file has, and shows what is in the other. Raises FailedError."""
    import ssl

    if ca is None and own is None:
        return None
    file = ca
    try:
        context = ssl.create_default_context(cafile=ca)
        if own is not None:
            file = own
            # Without a password nobody is asked for one.
            context.load_cert_chain(own, password=lambda: "")
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror
        raise FailedError(f"cannot use the certificates in {file}: {reason}") from error
    return context


def place_of(options: argparse.Namespace) -> "AgentPlace":
    """Where the agent is, with its token from a file or the environment. Raises FailedError."""
    from broker.cli.admin_client import AgentPlace
    from broker.config.value_types import tokens_in

    said = os.environ.get("FRAZIL_HTTP_TOKEN", "")
    file = options.token_file or os.environ.get("FRAZIL_HTTP_TOKEN_FILE")
    if file and (options.token_file is not None or not said):
        try:
            said = Path(file).read_text(encoding="utf-8")
        except OSError as error:
            raise FailedError(f"cannot read the token in {file}: {error.strerror}") from error
    try:
        token = tokens_in(said)[0] if said.strip() else None
    except ValueError as error:
        raise FailedError(f"the agent's token is not usable: {error}") from error
    return AgentPlace(options.agent, token, _context(options.ca_file, options.cert_file))


def _say(options: argparse.Namespace, said: "CommandResult") -> int:
    from broker.reports.tables import TableLine

    # Whoever reads them by a program gets all of them.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in said.lines:
        if width is not None and isinstance(line, TableLine):
            tell(line.within(width))
        else:
            tell(line)
    complain(options.name, *said.warnings, *said.failures)
    return FAILED if said.failures else 0


def tell(line: str, *, flush: bool = False) -> None:
    """A line of what was asked for. Names in it come from whoever connects: the terminal does not obey
    them."""
    print(printable(line), flush=flush)


def tell_progress(line: str) -> None:
    """How far a long command is: beside what was asked for."""
    print(printable(line), file=sys.stderr, flush=True)


def complain(name: str, *sentences: str | Exception) -> None:
    """Tell mistakes and warnings, each with its code."""
    for sentence in sentences:
        print(printable(f"{name}: {told(sentence)}"), file=sys.stderr)
