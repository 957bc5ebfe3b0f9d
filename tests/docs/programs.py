"""Whether a program on a page takes the words that it is given. A program that is not in `CHECKS` is a mistake.

Each check raises WrongError, with a sentence.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import duckdb

from broker.cli import main as agent_cli
from broker.config import group_configs, topic_configs
from broker.config.kafka_settings import parse as kafka_settings
from iceberg_export.cli.parser import make_parser
from tests.docs.blocks import ROOT

KAFKA = kafka_settings({}).settings
TOOLS: Final = ("client-metrics", "configs", "get-offsets")
"""Of `kafka-NAME.sh`; tests/clients runs them."""


class WrongError(Exception):
    pass


Words = Sequence[str]


def run(words: Words) -> None:
    """Check a command."""
    program, *arguments = words
    name = re.sub(r"^kafka-(.*)\.sh$", r"kafka", program)
    if name not in CHECKS:
        raise WrongError(f"nobody knows how to check {program}")
    CHECKS[name](words if name == "kafka" else arguments)


def _frazil(words: Words) -> None:
    if not words:
        raise WrongError("frazil alone does nothing")
    # What stands for a part of a word is as good as any text.
    given = [word.replace("…", "x") for word in words]
    parser = agent_cli._parser()
    if given[0] == "export":
        given = given[1:]
        parser = agent_cli._project_parser(given) or make_parser()
    try:
        parser.parse_args(given)
    except SystemExit as error:
        if error.code:
            raise WrongError(f"frazil {shlex.join(words)} is not understood") from error


def _make(words: Words) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in (word for word in words if "=" not in word):
        if not re.search(rf"^(\S+ )*{target}( \S+)*:", makefile, re.MULTILINE) and target != (
            ".venv/.run"
        ):
            raise WrongError(f"make {target} is no target")


def _kafka(words: Words) -> None:
    program, *arguments = words
    if program.removeprefix("kafka-").removesuffix(".sh") not in TOOLS:
        raise WrongError(f"{program} is no tool that tests run")
    if "--add-config" not in arguments:
        return
    pairs = arguments[arguments.index("--add-config") + 1]
    group = arguments[arguments.index("--entity-type") + 1] == "groups"
    for name, _, value in (pair.partition("=") for pair in pairs.split(",")):
        config(name, value, of_group=group)


def config(name: str, value: str, *, of_group: bool = False) -> None:
    """Of a topic, or of a group."""
    wrong = (
        group_configs.check(name, value, KAFKA) if of_group else topic_configs.check(name, value)
    )
    if wrong:
        raise WrongError(wrong)


def _files(words: Words) -> None:
    """Whatever it names in this repository is there; what is run inside of a container is checked, too."""
    for word in words:
        if word.startswith("deploy/") and not (ROOT / word).exists():
            raise WrongError(f"{word} is not there")
    for at, word in enumerate(words[1:], start=1):
        if word == "frazil" and words[at - 1] in {
            "exec",
            "exporter",
            "frazil-0.1.0-py3-none-any.whl",
        }:
            _frazil(words[at + 1 :])


def _uvx(words: Words) -> None:
    if words[0] != "--from" or words[2] != "frazil":
        raise WrongError("uvx runs frazil from a wheel")
    _frazil(words[3:])


def _sql(flag: str) -> Callable[[Words], None]:
    def check(words: Words) -> None:
        sql(words[list(words).index(flag) + 1])

    return check


def sql(text: str) -> None:
    """As DuckDB reads it."""
    try:
        duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise WrongError(str(error)) from error


def _python(words: Words) -> None:
    if not words or Path(words[0]).suffix != ".py":
        raise WrongError("python runs a file")


def _anything(_words: Words) -> None:
    """A program of others, whose flags nobody here knows."""


CHECKS: Final[dict[str, Callable[[Words], None]]] = {
    "frazil": _frazil,
    "make": _make,
    "kafka": _kafka,
    "docker": _files,
    "helm": _files,
    "uvx": _uvx,
    "duckdb": _sql("-c"),
    "spark-sql": _sql("-e"),
    "python": _python,
    "connect-mirror-maker.sh": _anything,
    **dict.fromkeys(("pip", "pipx", "kubectl", "etcdctl"), _anything),
    **dict.fromkeys(("cat", "printf", "head", "base64", "umask"), _anything),
}
