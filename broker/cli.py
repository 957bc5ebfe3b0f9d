"""The command line: `frazil dev | serve | log tail | doctor | export …`.

Arguments become settings and calls; every foreseeable failure becomes one sentence on standard
error and an exit code other than 0 (1 it did not work, 2 wrong use). What a command needs is
imported when it is called, so that `--help` and mistakes are answered at once.

`frazil export` is the exporter's own command line: another process image, since broker and
exporter do not know each other.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from typing_extensions import override

from broker.config import Loaded, SettingsError, load
from protocol.types import position

FAILED = 1
MISUSED = 2
INTERRUPTED = 130


class _FailedError(Exception):
    """The command cannot do its work; the sentence says why."""


class _Parser(argparse.ArgumentParser):
    """Mistakes in one line, without the usage before it."""

    @override
    def error(self, message: str) -> NoReturn:
        self.exit(MISUSED, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["export"]:
        return _export(given[1:])
    options = _parser().parse_args(given)
    try:
        return int(options.run(options))
    except SettingsError as error:
        _complain(options.name, *error.mistakes)
        return MISUSED
    except (_FailedError, ValueError) as error:
        _complain(options.name, str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough (`frazil log tail | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="frazil", description="A Kafka-compatible log on object storage.")
    parser.add_argument("--version", action="store_true", help="print the version and end")
    parser.set_defaults(run=_version, name="frazil")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=_Parser)

    dev = commands.add_parser("dev", help="one agent, everything embedded")
    dev.add_argument("--port", type=_port, default=9092, help="for Kafka clients; 0: a free one")
    dev.add_argument(
        "--http", type=_port, default=None, help="for health and metrics; 0: a free one (9094)"
    )
    dev.add_argument("--data", type=Path, default=Path("frazil-data"), metavar="DIR")
    _add_set(dev)
    dev.set_defaults(run=_dev, name="frazil dev")

    serve = commands.add_parser("serve", help="one agent of a cluster")
    _add_config(serve)
    serve.set_defaults(run=_serve, name="frazil serve")

    doctor = commands.add_parser("doctor", help="check settings, store, log, clock and ports")
    _add_config(doctor)
    doctor.set_defaults(run=_doctor, name="frazil doctor")

    log = commands.add_parser("log", help="the metadata log")
    log.set_defaults(run=_need_log_command, name="frazil log")
    tail = log.add_subparsers(metavar="COMMAND", parser_class=_Parser).add_parser(
        "tail", help="print its entries"
    )
    tail.add_argument("--agent", default="http://127.0.0.1:9094", metavar="URL")
    tail.add_argument("--after", type=_position, default=0, metavar="POSITION")
    tail.add_argument("--follow", "-f", action="store_true", help="go on as entries come")
    tail.add_argument("--json", action="store_true", help="one JSON object per line")
    tail.set_defaults(run=_log_tail, name="frazil log tail")

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
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
    _add_set(parser)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f'"{text}" is not a port (0 to 65535)')
    return int(text)


def _position(text: str) -> int:
    """A position as it is printed (`era:revision`), or as one number."""
    era, colon, revision = text.partition(":")
    parts = [era, revision] if colon else [text]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f'"{text}" is not a position (examples: 1:42, 0)')
    return position(int(era), int(revision)) if colon else int(text)


def _version(options: argparse.Namespace) -> int:
    from broker.process import software_version

    if not options.version:
        raise _FailedError("what should it do? dev, serve, doctor, log tail or export (--help)")
    print(f"frazil {software_version()}")
    return 0


def _need_log_command(_options: argparse.Namespace) -> int:
    raise _FailedError("what of it? (frazil log tail)")


def _dev(options: argparse.Namespace) -> int:
    from broker import dev

    # Two agents on one machine are told apart by --port alone when it is free to choose.
    chosen = options.http
    http_port = chosen if chosen is not None else (0 if options.port == 0 else 9094)
    loaded = _load(
        options, defaults=dev.defaults(port=options.port, http_port=http_port, data=options.data)
    )
    try:
        dev.prepare(options.data)
    except dev.DataError as error:
        raise _FailedError(str(error)) from error
    command = "frazil" if shutil.which("frazil") else sys.argv[0]
    return _run(loaded, greet=lambda at: dev.greeting(at, data=options.data, command=command))


def _serve(options: argparse.Namespace) -> int:
    return _run(_load(options, defaults={}), greet=_serving)


def _serving(listening: dict[str, tuple[str, int]]) -> str:
    at = " ".join(f"{name}={host}:{port}" for name, (host, port) in listening.items())
    return f"serving {at}"


def _run(loaded: Loaded, *, greet: Callable[[dict[str, tuple[str, int]]], str]) -> int:
    from broker import process
    from broker.agent import AgentError

    try:
        return process.run(
            loaded, announce=lambda agent: print(greet(agent.listening()), flush=True)
        )
    except AgentError as error:
        raise _FailedError(str(error)) from error


def _doctor(options: argparse.Namespace) -> int:
    from broker import doctor, process

    findings = process.run_once(doctor.examine(_load(options, defaults={})))
    for finding in findings:
        print(finding.line())
    return FAILED if any(finding.bad for finding in findings) else 0


def _log_tail(options: argparse.Namespace) -> int:
    from broker import log_tail

    try:
        for line in log_tail.tail(
            options.agent, after=options.after, follow=options.follow, as_json=options.json
        ):
            print(line, flush=options.follow)
    except log_tail.TailError as error:
        raise _FailedError(str(error)) from error
    return 0


def _export(arguments: list[str]) -> int:
    """Become the exporter's process; returns only when that cannot be."""
    try:
        os.execv(sys.executable, [sys.executable, "-m", "iceberg_export", *arguments])  # noqa: S606
    except OSError as error:
        _complain("frazil export", f"the exporter cannot be started: {error.strerror}")
    return FAILED


def _load(options: argparse.Namespace, *, defaults: dict[str, str]) -> Loaded:
    """All sources of settings. `FRAZIL_CONFIG` names the file when no flag does."""
    from broker.process import host_name

    file = getattr(options, "config", None)
    if file is None and "FRAZIL_CONFIG" in os.environ and hasattr(options, "config"):
        file = Path(os.environ["FRAZIL_CONFIG"])
    toml = None
    if file is not None:
        try:
            toml = (str(file), file.read_text(encoding="utf-8"))
        except OSError as error:
            raise _FailedError(f"cannot read {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise _FailedError(f"{file} is not TOML: it is not UTF-8 text") from error
    return load(
        defaults=defaults,
        toml=toml,
        environ=os.environ,
        flags=options.set,
        host_name=host_name(),
    )


def _complain(name: str, *sentences: str) -> None:
    for sentence in sentences:
        print(f"{name}: {sentence}", file=sys.stderr)
