"""`frazil context`, and commands that use one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.cli import main
from broker.client.contexts import ContextError, Contexts, folder_of

Run = Callable[..., tuple[int, str, str]]
SETTINGS = """\
bootstrap.servers=127.0.0.9:1
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="hush";
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command of somebody who has no context yet; (exit code, output, complaints)."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("FRAZIL_CONTEXT")
    (tmp_path / "client.properties").write_text(SETTINGS)

    def run(*arguments: str) -> tuple[int, str, str]:
        words = [word.replace("FILE", str(tmp_path / "client.properties")) for word in arguments]
        code = main.main(words)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def asked(run: Run, *arguments: str) -> str:
    """Where a command looked for its cluster: nowhere is one."""
    code, _, complaint = run("group", "list", "--timeout-ms", "100", *arguments)
    assert code == main.FAILED
    return complaint


def test_a_context_in_use_says_where_the_cluster_is(run: Run) -> None:
    made = run("context", "create", "prod", "--command-config", "FILE", "--use")
    assert made == (0, 'context "prod" is kept and used: 127.0.0.9:1\n', "")
    assert "127.0.0.9:1" in asked(run)


def test_what_a_command_is_told_itself_counts_more(run: Run) -> None:
    run("context", "create", "prod", "--command-config", "FILE", "--use")
    assert "127.0.0.9" not in asked(run, "--bootstrap", "localhost:1")


def test_a_command_may_name_its_context(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("context", "create", "prod", "--command-config", "FILE")
    assert "127.0.0.9" not in asked(run)
    assert "127.0.0.9:1" in asked(run, "--context", "prod")
    monkeypatch.setenv("FRAZIL_CONTEXT", "prod")
    assert "127.0.0.9:1" in asked(run)


def test_an_empty_variable_means_no_context(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("context", "create", "prod", "--command-config", "FILE", "--use")
    monkeypatch.setenv("FRAZIL_CONTEXT", "")
    assert "127.0.0.9" not in asked(run)


def test_contexts_are_listed_and_no_secret_is_shown(run: Run) -> None:
    for name in ("test", "prod"):
        run("context", "create", name, "--command-config", "FILE")
    run("context", "use", "prod")
    code, listed, _ = run("context", "list", "--json")
    assert code == 0
    assert json.loads(listed) == [
        {"name": "prod", "is_current": True, "bootstrap": "127.0.0.9:1"},
        {"name": "test", "is_current": False, "bootstrap": "127.0.0.9:1"},
    ]
    _, table, _ = run("context", "list")
    assert [line.split() for line in table.splitlines()] == [
        ["NAME", "BOOTSTRAP"],
        ["*", "prod", "127.0.0.9:1"],
        ["test", "127.0.0.9:1"],
    ]
    assert "hush" not in listed + table


def test_a_context_that_is_deleted_is_used_no_more(run: Run) -> None:
    run("context", "create", "prod", "--command-config", "FILE", "--use")
    assert run("context", "delete", "prod", "--yes") == (0, 'context "prod" is deleted\n', "")
    assert run("context", "list") == (0, "there are no contexts\n", "")
    assert "127.0.0.9" not in asked(run)


def test_no_context_is_used_when_none_is_named(run: Run) -> None:
    run("context", "create", "prod", "--command-config", "FILE", "--use")
    assert run("context", "use") == (0, "no context is used\n", "")
    assert "127.0.0.9" not in asked(run)


def test_others_cannot_read_what_a_context_has(run: Run, tmp_path: Path) -> None:
    run("context", "create", "prod", "--command-config", "FILE", "--use")
    folder = tmp_path / "config" / "frazil" / "contexts"
    assert folder.stat().st_mode & 0o777 == 0o700
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["current", "prod.properties"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert files[1].read_text() == SETTINGS


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["use", "nowhere"], 'there is no context "nowhere" (known: prod; frazil context create)'),
        (["delete", "nowhere", "--yes"], 'there is no context "nowhere"'),
        (["create", "prod", "--command-config", "FILE"], 'there is a context "prod" already'),
        (["create", "../x", "--command-config", "FILE"], '"../x" is no name of a context'),
        (["create", "x", "--command-config", "/nowhere"], "cannot read /nowhere: No such file"),
    ],
)
def test_what_cannot_be_done_is_told(run: Run, arguments: list[str], sentence: str) -> None:
    run("context", "create", "prod", "--command-config", "FILE")
    code, _, complaint = run("context", *arguments)
    assert code == main.FAILED
    assert sentence in complaint


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("client.id=x\n", "has no bootstrap.servers"),
        (
            "bootstrap.servers=a:1\nsecurity.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n",
            "ssl.truststore.location is a path from here alone",
        ),
        ("bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\n", "sasl"),
    ],
    ids=["no address", "relative path", "no login"],
)  # fmt: skip
def test_settings_that_would_not_work_are_not_kept(
    run: Run, tmp_path: Path, settings: str, sentence: str
) -> None:
    (tmp_path / "client.properties").write_text(settings)
    code, _, complaint = run("context", "create", "prod", "--command-config", "FILE")
    assert code != 0
    assert sentence in complaint
    assert run("context", "list")[1] == "there are no contexts\n"


def test_a_command_takes_a_context_or_a_file_and_not_both(run: Run) -> None:
    said = asked(run, "--context", "prod", "--command-config", "FILE")
    assert "--context and --command-config exclude each other" in said


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    contexts = Contexts(folder_of({"XDG_CONFIG_HOME": str(tmp_path / "file")}))
    with pytest.raises(ContextError, match="cannot write"):
        contexts.create("prod", SETTINGS)


def test_who_may_not_read_the_folder_has_no_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert Contexts(tmp_path).current() is None


def test_without_a_variable_contexts_are_in_the_users_config() -> None:
    assert folder_of({"HOME": "/home/a"}) == Path("/home/a/.config/frazil/contexts")
