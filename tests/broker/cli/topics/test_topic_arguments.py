"""The command line of `frazil topic`: mistakes, and the question before something is deleted."""

import asyncio
import json
import re
import sys

import pytest

from broker.cli import main
from broker.cli.arguments import FAILED, MISUSED
from broker.cli.topics import arguments
from tests.broker.cli.topics.topics_kit import with_topic
from tests.kit.sockets import Running

real_loop = pytest.mark.real_loop

NO_SUCH_TOPIC = "there is no such topic (frazil topic list shows all)"


def run(*words: str) -> int:
    try:
        return main.main(["topic", *words])
    except SystemExit as ended:
        return int(ended.code or 0)


async def run_on(running: Running, command: str, *words: str) -> int:
    """As `run`, with the address of an agent that runs."""
    place = f"127.0.0.1:{running.port}"
    return await asyncio.to_thread(run, command, "--bootstrap", place, *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("list orders", "unrecognized arguments: orders"),
        ("list --bootstrap nowhere", '"nowhere" is not an address'),
        ("list --bootstrap localhost:1", "is one running? (--bootstrap says where)"),
        ("create", "required: TOPIC"),
        ("create a --partitions 0", "0 is too small: at least 1"),
        ("create a --partitions many", '"many" is not a whole number'),
        ("create a --replication-factor 40000", "40000 is too large: at most 32767"),
        ("create a --config retention.ms", '"retention.ms" is not NAME=VALUE'),
        ("create a --if-exists", "unrecognized arguments: --if-exists"),
        ("describe", "required: TOPIC"),
        ("describe a --agent http://h:1", "an agent's admin listener is asked with --storage only"),
        ("describe a b --storage", "--storage is told of one topic at a time"),
        ("describe a --storage --bootstrap h:1", "say where it is with --agent"),
        ("alter a", "what of them? --set, --unset, --append or --subtract"),
        ("alter a --set =1", '"=1" is not NAME=VALUE'),
        ("alter a --append cleanup.policy", '"cleanup.policy" is not NAME=VALUE'),
        ("alter --set a=1", "required: TOPIC"),
        ("delete", "required: TOPIC"),
        ("delete a --force", "unrecognized arguments: --force"),
        ("delete a --yes --bootstrap localhost:1", "is one running?"),
        ("add-partitions a", "--to --by is required"),
        ("add-partitions a --to 3 --by 1", "not allowed with argument --to"),
        ("add-partitions a --by 0", "0 is too small: at least 1"),
        ("trim a", "--before-offset --before-datetime --all is required"),
        ("trim a --all --before-offset 3", "not allowed with argument --all"),
        ("trim a:x --all --yes", '"a:x" is not a topic with partitions'),
        ("trim a --before-offset -1", "-1 is too small: at least 0"),
        ("trim a --before-datetime now", '"now" is not a time'),
    ],
)
def test_mistakes_are_one_sentence_and_not_zero(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words.split()) in (FAILED, MISUSED)
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@real_loop
@pytest.mark.parametrize(
    ("command", "words", "sentence"),
    [
        ("create", "t", 'topic "t" is not created: there is one already (--if-not-exists takes'),
        ("create", "u --config retention.ms=x", "(INVALID_CONFIG)"),
        ("create", "u --config no.such=x", "Unknown topic config name: no.such"),
        ("describe", "none", f'topic "none" is not described: {NO_SUCH_TOPIC}'),
        ("alter", "none --set retention.ms=1", f'topic "none" is not altered: {NO_SUCH_TOPIC}'),
        ("alter", "t --set retention.ms=x", "(INVALID_CONFIG)"),
        ("alter", "t --subtract retention.ms=1", "its type is not LIST"),
        ("delete", "none --yes", f'topic "none" is not deleted: {NO_SUCH_TOPIC}'),
        ("add-partitions", "none --by 1", f'topic "none" is not widened: {NO_SUCH_TOPIC}'),
        ("add-partitions", "t --to 1", "(INVALID_PARTITIONS)"),
        ("trim", "none --all --yes", f'topic "none": {NO_SUCH_TOPIC}'),
        ("trim", "t:5 --all --yes", 'topic "t" has no partition 5, but 0 to 0'),
        ("trim", "t --before-offset 9 --yes", "its records end before that offset"),
    ],
)
async def test_what_the_cluster_refuses_is_one_sentence_and_not_zero(
    command: str, words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with with_topic() as (running, _):
        assert await run_on(running, command, *words.split()) == FAILED
        printed = capsys.readouterr()
        assert printed.err.startswith(f"frazil topic {command}: ")
        assert sentence in printed.err
        assert printed.err.count("\n") == 1


def names_in(view: object) -> list[str]:
    """The names of all fields in JSON, those of the first element of a list behind the list's own."""
    if isinstance(view, list):
        return names_in(view[0]) if view else []
    if not isinstance(view, dict):
        return []
    return [name for key, value in view.items() for name in (key, *names_in(value))]


@real_loop
@pytest.mark.parametrize(
    ("command", "words", "shape"),
    [
        ("create", "u --config retention.ms=5 --json", arguments.JSON_CREATE),
        ("list", "--json", arguments.JSON_LIST),
        ("describe", "t --json", arguments.JSON_DESCRIBE),
    ],
)
async def test_json_is_one_line_with_the_fields_that_help_promises(
    command: str, words: str, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with with_topic() as (running, _):
        assert await run_on(running, "alter", "t", "--set", "retention.ms=5000") == 0
        capsys.readouterr()
        assert await run_on(running, command, *words.split()) == 0
        (line,) = capsys.readouterr().out.splitlines()
        promised = shape[shape.index("{") : shape.rindex("}")]
        assert names_in(json.loads(line)) == re.findall(r"[a-z_]+", promised)


class Terminal:
    """Somebody who types an answer; None: no terminal at all."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return self.answer is not None

    def readline(self) -> str:
        assert self.answer is not None
        return self.answer


@real_loop
@pytest.mark.parametrize(
    ("command", "words", "question"),
    [
        ("delete", ("t",), "delete topic t with all its records? [y/N] "),
        ("delete", ("t", "u", "t"), "delete topics t, u with all their records? [y/N] "),
        ("trim", ("t:0", "--all"), "delete all records of t:0? [y/N] "),
        ("trim", ("t", "--before-offset", "2"), "delete the records before offset 2 of t? [y/N] "),
        (
            "trim",
            ("t", "--before-datetime", "2026-01-31T08:00:00+02:00"),
            "delete the records before 2026-01-31T06:00:00+00:00 of t? [y/N] ",
        ),
    ],
)
async def test_whoever_sits_at_a_terminal_is_asked_and_a_no_does_nothing(
    command: str,
    words: tuple[str, ...],
    question: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with with_topic() as (running, _):
        for answer in ("\n", "", "no\n"):
            monkeypatch.setattr(sys, "stdin", Terminal(answer))
            assert await run_on(running, command, *words) == FAILED
            said = f"{question}frazil topic {command}: nothing is done: the answer was not yes\n"
            assert capsys.readouterr().err == said
        _, view = await running.http("GET", "/topics/t")
        assert view["partitions"][0]["log_start"] == 0


@real_loop
@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
async def test_a_yes_deletes(
    answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with with_topic() as (running, _):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        assert await run_on(running, "delete", "t") == 0
        assert capsys.readouterr().out == 'topic "t" is deleted\n'


@real_loop
@pytest.mark.parametrize("words", [("delete", "t"), ("trim", "t", "--all")], ids=" ".join)
async def test_without_a_terminal_nothing_is_deleted_unless_told_so(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with with_topic() as (running, _):
        monkeypatch.setattr(sys, "stdin", Terminal(None))
        assert await run_on(running, *words) == FAILED
        assert "there is no terminal to ask" in (said := capsys.readouterr().err)
        assert "(--yes does it unasked)" in said
        assert await run_on(running, *words, "--yes") == 0


def test_names_in_a_question_do_not_command_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert run("delete", "a\x1b[2J") == FAILED
    assert "a\\x1b[2J" in capsys.readouterr().err


@real_loop
async def test_where_records_lie_is_told_by_an_agent(capsys: pytest.CaptureFixture[str]) -> None:
    async with with_topic() as (running, size):
        host, port = running.agent.listening()["http"]
        words = ("describe", "t", "--storage", "--agent", f"http://{host}:{port}", "--json")
        assert await asyncio.to_thread(run, *words) == 0
        view = json.loads(capsys.readouterr().out)
        assert view["partitions"][0]["chunk_bytes"] == size
