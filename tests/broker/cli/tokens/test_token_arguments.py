"""The command line of `frazil token`: mistakes, and the files in which tokens are kept and looked for."""

import asyncio
import stat
from pathlib import Path

import pytest

from broker.cli.command_result import CommandResult
from broker.cli.main import main
from broker.cli.tokens import arguments, token_tool
from broker.cli.tokens.token_tool import Keep, NewToken, Token
from broker.client.client_settings import client_settings_of
from broker.config import properties_text
from broker.sasl.client import Login

HMAC = "+/v7" * 21 + "+w=="
NOWHERE = ("--bootstrap", "127.0.0.1:1")


def run(*words: str) -> int:
    try:
        return main(["token", *words])
    except SystemExit as ended:
        return int(ended.code or 0)


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence of a command that could not do its work."""
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ((), 1, "what of them? create, list, renew or expire"),
        (("create", "--owner-principal", "alice"), 2, '"alice" is not a principal'),
        (("create", "--renewer-principal", "User:"), 2, '"User:" is not a principal'),
        (("create", "--max-life-time-period", "-2"), 2, "--max-life-time-period"),
        (("create", "--mechanism", "PLAIN"), 2, "--mechanism"),
        (("renew", "--renew-time-period", "soon"), 2, "--renew-time-period"),
        (("renew", "--hmac", HMAC), 2, "others can read command lines"),
        (("expire", "--hmac-file", "/nowhere/token"), 1, "cannot read /nowhere/token: No such"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, sentence: str
) -> None:
    assert run(*words) == code
    said = refused(capsys)
    assert sentence in said
    assert HMAC not in said


def test_a_file_that_is_there_is_not_written_over_and_no_token_is_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "token.properties"
    file.write_text("kept")
    assert run("create", "--out", str(file), *NOWHERE) == 1
    assert f"{file} is there already" in refused(capsys)
    assert file.read_text() == "kept"


@pytest.mark.real_loop
def test_no_file_is_left_where_no_token_was_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "token.properties"
    assert run("create", "--out", str(file), *NOWHERE) == 1
    assert "is one running?" in refused(capsys)
    assert not file.exists()


def test_a_tokens_file_is_its_owners_alone_and_logs_in_from_any_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whatever the umask, and with whom TLS trusts named from / on."""
    own = tmp_path / "own.properties"
    own.write_text(
        "bootstrap.servers=agent:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        'sasl.jaas.config=a.M required username="alice" password="hers";\n'
        "ssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n"
    )
    monkeypatch.chdir(tmp_path)
    token = Token(
        token_id="an-id",
        hmac=HMAC,
        owner="User:alice",
        requester="User:alice",
        renewers=(),
        issued_ms=0,
        expires_ms=0,
        max_ms=0,
    )

    async def create(_client: object, _wanted: NewToken, keep: Keep) -> CommandResult:
        return keep(token)

    monkeypatch.setattr(token_tool, "create", create)
    monkeypatch.setattr(
        arguments,
        "on_cluster",
        lambda _options, command: int(bool(asyncio.run(command(None)).failures)),
    )
    assert run("create", "--out", "token.properties", "--command-config", str(own)) == 0
    file = tmp_path / "token.properties"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert HMAC not in capsys.readouterr().out
    found = client_settings_of(dict(properties_text.parse("it", file.read_text())))
    assert found.login == Login("SCRAM-SHA-512", "an-id", HMAC, by_token=True)
    assert found.tls is not None
    assert found.tls.truststore.location == str(tmp_path / "ca.pem")
