"""The command line: `frazil dev | serve | group … | txn … | feature … | user … | acl … | log … | …`.

Arguments become settings and calls; every foreseeable failure becomes one sentence on standard
error and an exit code other than 0 (1 it did not work, 2 wrong use). What a command needs is
imported when it is called, so that `--help` and mistakes are answered at once.

`frazil export` is the exporter's own command line: another process image, since broker and
exporter do not know each other. Project files alone (`export plan --file`, `export apply`) are read here:
what they set is set over Kafka's protocol.
"""

import argparse
import gc
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.cli import (
    acl_arguments,
    agent_arguments,
    completion,
    context_arguments,
    txn_arguments,
    user_arguments,
)
from broker.cli.arguments import (
    FAILED,
    MISUSED,
    FailedError,
    Parser,
    complain,
)
from broker.cli.backup import arguments as backup_arguments
from broker.cli.bench import arguments as bench_arguments
from broker.cli.checks import check_arguments, explain
from broker.cli.cluster import arguments as cluster_arguments
from broker.cli.cluster import quota_arguments
from broker.cli.groups import arguments as group_arguments
from broker.cli.log import arguments as log_arguments
from broker.cli.records import arguments as record_arguments
from broker.cli.recovery import recovery_arguments
from broker.cli.schemas import arguments as schema_arguments
from broker.cli.tokens import arguments as token_arguments
from broker.cli.topics import arguments as topic_arguments
from broker.config.values import SettingsError
from protocol.fault_codes import FaultCode

if TYPE_CHECKING:
    from broker.agent import Agent
    from broker.config.settings import Loaded
    from broker.trial.secure_dev import SecureFolder

INTERRUPTED = 130
COLLECTED_AFTER = (50_000, 50, 50)
"""Of objects; the others are counts of collections of the younger ones (`gc.set_threshold`)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["export"]:
        parser = _project_parser(given[1:])
        if parser is None:
            return _export(given[1:])
        options = parser.parse_args(given[1:])
    else:
        completion.answer(_parser, _project_parser, _export)
        options = _parser().parse_args(given)
    try:
        return int(options.run(options))
    except SettingsError as error:
        complain(options.name, *error.mistakes)
        return MISUSED
    except (FailedError, ValueError) as error:
        complain(options.name, error)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`frazil log tail | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="frazil", description="A Kafka-compatible log on object storage.")
    parser.add_argument("--version", action="store_true", help="print the version and end")
    parser.set_defaults(run=_version, name="frazil")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)

    dev = commands.add_parser("dev", help="one agent, everything embedded")
    dev.add_argument("--port", type=_port, default=9092, help="for Kafka clients; 0: a free one")
    dev.add_argument(
        "--http", type=_port, default=None, help="for health and metrics; 0: a free one (9094)"
    )
    text = "let others in, too: 0.0.0.0 in a container; clients are told localhost (advertise)"
    dev.add_argument("--bind", metavar="ADDRESS", help=text)
    dev.add_argument("--data", type=Path, default=Path("frazil-data"), metavar="DIR")
    dev.add_argument(
        "--secure",
        action="store_true",
        help="TLS, users and rights, with certificates and clients' settings in DIR/secure",
    )
    dev.add_argument("--workers", help=argparse.SUPPRESS)  # To be refused with a reason.
    _add_config(dev)
    dev.set_defaults(run=_dev, name="frazil dev")

    serve = commands.add_parser("serve", help="one agent of a cluster, or one for each core")
    serve.add_argument(
        "--workers",
        metavar="N|auto",
        help="agents, each a process of its own (default 1); auto: one for each core",
    )
    _add_config(serve)
    serve.set_defaults(run=_serve, name="frazil serve")

    doctor = commands.add_parser("doctor", help="check settings, store, log, clock and ports")
    _add_config(doctor)
    doctor.set_defaults(run=_doctor, name="frazil doctor")

    check_arguments.add_check(commands, add_config=_add_config, load=_load)

    group_arguments.add_group(commands)
    topic_arguments.add_topic(commands)
    record_arguments.add_produce(commands)
    record_arguments.add_consume(commands)
    bench_arguments.add_bench(commands)
    schema_arguments.add_schema(commands)
    cluster_arguments.add_cluster_commands(commands)
    cluster_arguments.add_config(commands)
    quota_arguments.add_quota(commands)
    context_arguments.add_context(commands)
    agent_arguments.add_job(commands)
    agent_arguments.add_cost(commands)
    agent_arguments.add_certificates(commands)
    txn_arguments.add_txn(commands)
    txn_arguments.add_feature(commands)
    user_arguments.add_user(commands)
    acl_arguments.add_acl(commands)
    token_arguments.add_token(commands)

    log_arguments.add_log(commands, add_config=_add_config, load=_load)
    recovery_arguments.add_recover(commands, add_config=_add_config, load=_load)
    backup_arguments.add_backup(commands, add_config=_add_config, load=_load)

    explain.add_explain(commands)
    completion.add_completion(commands)
    commands.add_parser("export", help="turn topics into Iceberg tables (run, status, verify)")
    return parser


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting, Frazil's or Kafka's; may be repeated",
    )


def _add_config(parser: argparse.ArgumentParser) -> None:
    text = "TOML file of settings, or a server.properties of Kafka"
    parser.add_argument("--config", type=Path, metavar="FILE", help=text)
    _add_set(parser)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f'"{text}" is not a port (0 to 65535)')
    return int(text)


def _version(options: argparse.Namespace) -> int:
    from broker.environment import software_version

    if not options.version:
        raise FailedError(
            "what should it do? dev, serve, produce, consume, schema, context, cluster, config, topic, group, txn, feature, user, acl, token, quota, job, cost, bench, certificates, completion, explain,"
            " doctor, check, log, backup, recover or export (--help)"
        )
    print(f"frazil {software_version()}")
    return 0


def _dev(options: argparse.Namespace) -> int:
    from broker.cli import dev

    # Two agents on one machine are told apart by --port alone when it is free to choose.
    chosen = options.http
    http_port = chosen if chosen is not None else (0 if options.port == 0 else 9094)
    registry_port = dev.REGISTRY_PORT if options.port == 9092 else 0
    defaults = dev.defaults(
        port=options.port,
        http_port=http_port,
        registry_port=registry_port,
        data=options.data,
        bind=options.bind,
    )
    secure = _secure_folder(options) if options.secure else None
    if secure is not None:
        defaults |= dev.secure_defaults(secure, port=options.port, bind=options.bind)
    loaded = _load(options, defaults=defaults)
    if loaded.settings.workers != 1:
        raise FailedError(
            "it is one process, whose log (SQLite) no other can have: leave workers out, or use"
            " frazil serve with etcd"
        )
    _prepare(options.data)
    command = "frazil" if shutil.which("frazil") else sys.argv[0]
    return _run(
        loaded,
        greet=lambda at: dev.greeting(
            at,
            data=options.data,
            command=command,
            secure=options.secure,
            https=loaded.settings.https_listeners(),
        ),
        prepare=None if secure is None else partial(dev.make_users, secure),
    )


def _secure_folder(options: argparse.Namespace) -> "SecureFolder":
    """Where secrets of `--secure` are; what is missing is made. Raises FailedError."""
    from broker.environment import now_ms
    from broker.trial.certificate_files import CertificateError
    from broker.trial.secure_dev import SecureFolder

    _prepare(options.data)
    try:
        folder = SecureFolder(options.data, now_ms=now_ms())
    except CertificateError as error:
        raise FailedError(str(error)) from error
    except OSError as error:
        raise FailedError(f"{options.data}/secure cannot be used: {error.strerror}") from error
    if not (options.data / "log.db").exists():
        folder.forget_users()
    return folder


def _prepare(data: Path) -> None:
    """Make the data folder of `frazil dev`. Raises FailedError."""
    from broker.cli import dev

    try:
        dev.prepare(data)
    except dev.DataError as error:
        raise FailedError(str(error)) from error


def _serve(options: argparse.Namespace) -> int:
    from broker.config.settings import load

    texts = _texts(options, defaults={})
    loaded = load(**texts, environ=os.environ)
    if loaded.settings.workers == 1:
        return _run(loaded, greet=_serving)
    from broker.workers import supervisor

    count = supervisor.count_of(loaded.settings)
    if count == 1:
        return _run(loaded, greet=_serving)
    try:
        return supervisor.run(loaded, texts, count, announce=_announce)
    except supervisor.WorkersError as error:
        raise FailedError(str(error)) from error


def _serving(listening: dict[str, tuple[str, int]]) -> str:
    at = " ".join(f"{name}={host}:{port}" for name, (host, port) in listening.items())
    return f"serving {at}"


def _announce(line: str) -> None:
    """Say it on standard output; who cannot hear it (a full disk, a pipe that nobody reads) ends no agent."""
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(
    loaded: "Loaded",
    *,
    greet: Callable[[dict[str, tuple[str, int]]], str],
    prepare: "Callable[[Agent], Awaitable[None]] | None" = None,
) -> int:
    from broker.doors import reserve
    from broker.environment import boot_ms

    # What an agent is made of is made once, and stays: the collector would walk it again and again.
    gc.set_threshold(*COLLECTED_AFTER)
    settings = loaded.settings
    reserved = reserve(
        [(each.host, each.port or 0) for each in settings.listen],
        backlog=settings.kafka.socket_listen_backlog_size,
        now_ms=boot_ms(),
    )
    from broker import process
    from broker.agent import AgentError

    try:
        return process.run(
            loaded,
            reserved=reserved,
            announce=lambda agent: _announce(greet(agent.listening())),
            prepare=prepare or process.nothing,
        )
    except AgentError as error:
        raise FailedError.of(error) from error
    except ValueError as error:
        raise FailedError(str(error), fault=FaultCode.WRONG_VALUE) from error


def _doctor(options: argparse.Namespace) -> int:
    from broker import process
    from broker.cli import doctor

    tell = partial(complain, options.name)
    findings = process.run_once(doctor.examine(_load(options, defaults={}), tell=tell))
    for finding in findings:
        print(finding.line())
    return FAILED if any(finding.bad for finding in findings) else 0


def _project_parser(arguments: Sequence[str]) -> Parser | None:
    """What reads arguments of `frazil export` that are about a project file; None: they are the exporter's."""
    command, *others = arguments or [""]
    has_file = any(one.partition("=")[0] == "--file" for one in others)
    if command != "apply" and not (command == "plan" and has_file):
        return None
    parser = Parser(prog="frazil export")
    agent_arguments.add_project_file(parser.add_subparsers(metavar="COMMAND", parser_class=Parser))
    return parser


def _export(arguments: list[str]) -> int:
    """Become the exporter's process; returns only when that cannot be."""
    try:
        os.execv(sys.executable, [sys.executable, "-m", "iceberg_export", *arguments])  # noqa: S606
    except OSError as error:
        complain("frazil export", f"the exporter cannot be started: {error.strerror}")
    return FAILED


def _load(options: argparse.Namespace, *, defaults: dict[str, str]) -> "Loaded":
    from broker.config.settings import load

    return load(**_texts(options, defaults=defaults), environ=os.environ)


def _texts(options: argparse.Namespace, *, defaults: dict[str, str]) -> dict[str, Any]:
    """All sources of settings but the environment, for `load`. `FRAZIL_CONFIG` names the file when no
    flag does."""
    file = getattr(options, "config", None)
    if file is None and "FRAZIL_CONFIG" in os.environ and hasattr(options, "config"):
        file = Path(os.environ["FRAZIL_CONFIG"])
    text = None
    workers = getattr(options, "workers", None)
    is_kafkas = file is not None and file.suffix == ".properties"
    if file is not None:
        try:
            text = (str(file), file.read_text(encoding="utf-8"))
        except OSError as error:
            raise FailedError(f"cannot read {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            form = "a file of properties" if is_kafkas else "TOML"
            raise FailedError(f"{file} is not {form}: it is not UTF-8 text") from error
    return {
        "defaults": defaults,
        "toml": None if is_kafkas else text,
        "properties": text if is_kafkas else None,
        "flags": [*options.set, *([f"workers={workers}"] if workers is not None else [])],
    }
