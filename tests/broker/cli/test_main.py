"""The command line: bad input to every command is one clear sentence and an exit code."""

import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from broker.cli import arguments, main
from broker.cli.command_result import CommandResult
from broker.cli.groups import arguments as group_arguments
from broker.store import identity
from coordinator.log.sqlite import SqliteLog
from storage.stores.disk import DiskStore
from storage.stores.memory import MemoryStore
from storage.stores.object_store import ObjectStore
from tests.kit.certificates import Authority

ROOT = Path(__file__).parents[3]
PLACE = ("--set", "store=file:///s", "--set", "log=etcd://127.0.0.1:1/p")


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("FRAZIL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> int:
    try:
        return main.main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "what should it do?"),
        (["brew"], "invalid choice: 'brew'"),
        (["dev", "--port", "x"], '"x" is not a port'),
        (["dev", "--port", "70000"], '"70000" is not a port'),
        (["dev", "--set", "zone"], 'write it as "name=value"'),
        (["dev", "--set", "num.partition=3"], 'did you mean "num.partitions"?'),
        (["dev", "--data", "file"], "file is not a folder"),
        (["dev", "--data", "file/below"], "cannot be used: Not a directory"),
        (["dev", "--config", "nowhere.properties"], "cannot read nowhere.properties: No such file"),
        (["dev", "--config", "wrong.properties"], 'num.partitions: "many" is not a whole number'),
        (["dev", "--secure", "--data", "file"], "file is not a folder"),
        (["serve", "--config", "nowhere.toml"], "cannot read nowhere.toml: No such file"),
        (["serve", "--config", "broken.toml"], "broken.toml is not TOML"),
        (["serve", "--config", "binary.toml"], "not UTF-8"),
        (["serve", "--set", "log=sqlite:///l.db"], "store is not set"),
        (["serve", "--set", "store=file:///s"], "log is not set"),
        (["serve", "--set", "store=s3:/b", "--set", "log=sqlite:///l"], "is not one of s3://"),
        (["dev", "--workers", "2"], "it is one process, whose log (SQLite) no other can have"),
        (["dev", "--set", "workers=auto"], "it is one process, whose log (SQLite)"),
        (
            ["serve", "--workers", "many", *PLACE],
            'workers (from --set): "many" is not a whole number',
        ),
        (["serve", "--workers", "2", *PLACE, "--set", "log=sqlite:///l.db"], "cannot share log"),
        (
            ["serve", "--workers", "2", *PLACE, "--set", "workers.port.step=2"],
            "the port 9094 of worker 1 at listener PLAINTEXT is that of the http listener",
        ),
        (["doctor", "--set", "store=file:///s"], "log is not set"),
        (["group"], "list, describe, reset or delete"),
        (["group", "list", "--bootstrap", "nowhere"], '"nowhere" is not an address'),
        (["group", "list", "--bootstrap", "localhost:1"], "is one running?"),
        (["group", "list", "--bootstrap-server", "localhost:1"], "is one running?"),
        (["group", "list", "--command-config", "nowhere"], "cannot read nowhere: No such file"),
        (
            ["group", "list", "--command-config", "tls.properties"],
            "ssl.truststore.location: none.pem",
        ),
        (["group", "list", "--state", "Fine"], '"Fine" is not a state (Empty, '),
        (["group", "list", "--timeout-ms", "1"], "1 is too small: at least 100"),
        (["group", "describe"], "required: GROUP"),
        (["group", "reset", "g", "--to-latest"], "--topic --all-topics is required"),
        (["group", "reset", "g", "--all-topics"], "--to-latest"),
        (["group", "reset", "g", "--topic", "t:x", "--to-latest"], '"t:x" is not a topic with'),
        (["group", "reset", "g", "--all-topics", "--to-offset", "-1"], "-1 is too small"),
        (["group", "reset", "g", "--all-topics", "--to-datetime", "now"], '"now" is not a time'),
        (
            ["topic", "trim", "t", "--before-datetime", "1969-12-31T23:59:59.999"],
            "is before 1970",
        ),
        (["group", "reset", "g", "--all-topics", "--by-duration", "x"], '"x" is not a duration'),
        (["group", "delete"], "required: GROUP"),
        (["topic"], "frazil topic --help"),
        (["topic", "describe"], "required: TOPIC"),
        (
            ["topic", "describe", "t", "--storage", "--agent", "nowhere"],
            '"nowhere" is not an address',
        ),
        (["topic", "describe", "t", "--storage", "--agent", "http://127.0.0.1:1"], "running?"),
        (["txn"], "list, describe, abort or find-hanging"),
        (["txn", "list", "--bootstrap", "localhost:1"], "is one running?"),
        (["txn", "list", "--state", "Fine"], '"Fine" is not a state (Empty, '),
        (["txn", "list", "--producer-id", "x"], '"x" is not a whole number'),
        (["txn", "list", "--longer-than", "x"], '"x" is not a duration'),
        (["txn", "describe"], "required: ID"),
        (["txn", "abort"], "which one? an ID, or"),
        (["txn", "abort", "--topic", "t", "--partition", "0"], "which one? an ID, or"),
        (["txn", "abort", "--topic", "t", "--producer-id", "7"], "which one? an ID, or"),
        (["txn", "abort", "x", "--topic", "t"], "either an ID, or a partition"),
        (["txn", "find-hanging", "--max-transaction-timeout", "-1"], "-1 is too small"),
        (["acl"], "list, add or remove"),
        (["acl", "add", "--topic", "t"], "whose?"),
        (["acl", "add", "--operation", "Fly"], '"Fly" is not an operation'),
        (["certificates"], "frazil certificates --help"),
        (["certificates", "create", "ca"], '"ca" is not a name'),
        (["certificates", "create", "a", "--host", "x y"], '"x y" is neither the name of a host'),
        (["certificates", "create", "a", "--days", "0"], "0 is too small: at least 1"),
        (["certificates", "create", "a", "--data", "file"], "file cannot be used: "),
        (["feature"], "describe, upgrade or downgrade"),
        (["feature", "describe", "--bootstrap", "localhost:1"], "is one running?"),
        (["feature", "upgrade"], "required: --feature"),
        (["feature", "upgrade", "--feature", "x"], '"x" is not a level'),
        (["feature", "upgrade", "--feature", "x=1", "--unsafe"], "unrecognized arguments"),
        (["export", "apply"], "required: --file"),
        (["export", "apply", "--file", "nowhere.toml"], "cannot read nowhere.toml: No such file"),
        (
            ["export", "plan", "--file", "file", "--bootstrap", "localhost:1"],
            "file: it names no topic",
        ),
        (["job"], "list or run"),
        (["job", "run"], "required: JOB"),
        (["job", "run", "brew"], 'there is no job "brew"'),
        (["job", "list", "--agent", "nowhere"], "is not an address"),
        (["job", "list", "--agent", "http://127.0.0.1:1"], "is one running?"),
        (["cost", "--price-put", "cheap"], '"cheap" is not a price in USD'),
        (["cost", "--price-get", "-1"], '"-1" is not a price in USD'),
        (["cost", "--seconds", "0"], "0"),
        (["cost", "--agent", "http://127.0.0.1:1"], "is one running?"),
        (["log"], "frazil log tail"),
        (["log", "tail", "--agent", "nowhere"], "is not an address like http://"),
        (["log", "tail", "--agent", "http://127.0.0.1:1"], "is one running?"),
        (["log", "tail", "--after", "soon"], '"soon" is not a position'),
        (["log", "void", "1:42"], "required: --reason"),
        (["log", "void", "soon", "--reason", "why"], '"soon" is not a position'),
        (["log", "void", "0:5", "--reason", "why"], '"0:5" is not a position'),
        (["log", "void", "40000:5", "--reason", "why"], '"40000:5" is not a position'),
        (["log", "tail", "--after", f"1:{1 << 48}"], "is not a position"),
        (["log", "tail", "--after", "9" * 19], "is not a position"),
        (["log", "tail", "--after", "1:2:3"], '"1:2:3" is not a position'),
        (["log", "void", "1:42", "--reason", " "], "a reason has 1 to 500 characters"),
        (["log", "void", "1:42", "--reason", "why", "--data", "none"], "none/log.db is not there"),
        (["backup"], "frazil backup list, frazil backup verify"),
        (["backup", "list"], "store is not set"),
        (["backup", "list", "--store", "nowhere"], "is not one of s3://"),
        (["backup", "list", "--data", "none"], "none/objects is not there: --store names another"),
        (["backup", "verify", "soon"], '"soon" is not a position'),
        (["backup", "verify", "--all", "1:42"], "not allowed with argument --all"),
        (["backup", "verify", "--store", "memory://"], "there are no snapshots in memory://"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence_and_not_zero(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "broken.toml").write_text("listen = \n")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "wrong.properties").write_text("num.partitions=many\n")
    (tmp_path / "tls.properties").write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=none.pem\n"
    )
    assert run(*arguments) != 0
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_all_mistakes_are_printed_each_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dev", "--set", "zne=a", "--set", "cache.bytes=b") == main.MISUSED
    assert capsys.readouterr().err.count("\n") == 2


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("frazil ")


def test_positions_are_read_as_they_are_printed() -> None:
    options = main._parser().parse_args(["log", "tail", "--after", "1:42"])
    assert options.after == (1 << 48) + 42


@pytest.mark.parametrize(
    "text",
    [
        "1970-01-02T00:00:00",
        "1970-01-02T00:00:00.000Z",
        "1970-01-02T02:00:00+02:00",
        "1970-01-01T19:00-0500",
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str) -> None:
    words = ["group", "reset", "g", "--all-topics", "--to-datetime", text]
    assert main._parser().parse_args(words).to_datetime == 86_400_000


def test_a_duration_that_is_longer_than_there_has_been_time_means_the_beginning() -> None:
    """A negative time would mean something else: -1 is the end."""
    words = ["group", "reset", "g", "--all-topics", "--by-duration", "P999999D"]
    assert group_arguments._target(main._parser().parse_args(words)).value == 0


def test_a_negative_shift_is_no_flag() -> None:
    words = ["group", "reset", "g", "--all-topics", "--shift-by", "-3"]
    assert main._parser().parse_args(words).shift_by == -3


def test_assertions_cannot_be_switched_off() -> None:
    command = [sys.executable, "-O", "-m", "broker", "--version"]
    ended = subprocess.run(
        command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == main.MISUSED
    assert "needs its assertions" in ended.stderr


def test_doctor_finds_a_folder_and_free_ports_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [f"store=file://{tmp_path}/objects", f"log=sqlite://{tmp_path}/log.db"]
    flags = [*places, "listen=127.0.0.1:0", "http=off"]
    code = run("doctor", *(part for flag in flags for part in ("--set", flag)))
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, lines
    assert all(line.startswith("ok") for line in lines)
    whats = {line.split()[1] for line in lines}
    assert whats == {"settings", "store", "acks", "clock", "log", "ports"}
    assert not (tmp_path / "log.db").exists()


def test_doctor_looks_at_the_ports_of_each_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "listen=127.0.0.1:17000\nworkers=2\nworkers.port.step=3\n"
    code, lines = doctor(capsys, tmp_path, text)
    assert code == 1
    for port in (17003, 17006):
        assert [line for line in lines if f"workers.port.step 127.0.0.1:{port}" in line]
    assert [line for line in lines if line.startswith("BAD  workers") and "cannot share" in line]


def test_doctor_says_what_is_wrong_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at" * 9)
    (tmp_path / "file").write_text("")
    places = [f"store=file://{tmp_path}/file", f"log=sqlite://{tmp_path}/text.db"]
    flags = [*places, "listen=127.0.0.1:1,B://192.0.2.1:9092", "http=off"]
    code = run("doctor", *(part for flag in flags for part in ("--set", flag)))
    bad = [line for line in capsys.readouterr().out.splitlines() if line.startswith("BAD")]
    assert code == main.FAILED
    assert {line.split()[1] for line in bad} == {"store", "log", "ports"}


def test_doctor_finds_a_log_that_belongs_to_another_store_as_an_agent_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def claim(log_file: str, store: ObjectStore) -> None:
        async with aclosing(SqliteLog(tmp_path / log_file)) as log:
            await identity.check(store, log, "frazil", random.Random(log_file))

    (tmp_path / "objects").mkdir()
    asyncio.run(claim("other.db", DiskStore(tmp_path / "objects")))
    asyncio.run(claim("log.db", MemoryStore()))
    code, lines = doctor(capsys, tmp_path, "listen=127.0.0.1:0\n")
    assert code == main.FAILED
    (bad,) = [line for line in lines if line.startswith("BAD")]
    assert "belongs to another metadata log" in bad


def test_doctor_tells_of_a_log_file_that_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def claim() -> None:
        async with aclosing(SqliteLog(tmp_path / "log.db")) as log:
            await identity.check(
                DiskStore(tmp_path / "objects"), log, "frazil", random.Random("one")
            )

    (tmp_path / "objects").mkdir()
    asyncio.run(claim())
    assert doctor(capsys, tmp_path, "listen=127.0.0.1:0\n")[0] == 0
    for file in tmp_path.glob("log.db*"):
        file.unlink()
    code, lines = doctor(capsys, tmp_path, "listen=127.0.0.1:0\n")
    assert code == main.FAILED
    (bad,) = [line for line in lines if line.startswith("BAD")]
    assert "log.db is not there" in bad
    assert "frazil recover" in bad
    assert not (tmp_path / "log.db").exists()


def doctor(capsys: pytest.CaptureFixture[str], folder: Path, text: str) -> tuple[int, list[str]]:
    """Code and lines, with a server.properties of this text."""
    file = folder / "server.properties"
    file.write_text(text)
    places = [f"store=file://{folder}/objects", f"log=sqlite://{folder}/log.db", "http=off"]
    words = [word for place in places for word in ("--set", place)]
    code = run("doctor", "--config", str(file), *words)
    return code, capsys.readouterr().out.splitlines()


def test_doctor_looks_at_the_certificates_of_a_brokers_properties(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent.pem").write_text(Authority().sign("agent").pem)
    code, lines = doctor(
        capsys,
        tmp_path,
        "listeners=SSL://127.0.0.1:0\nssl.keystore.type=PEM\nzookeeper.connect=h:2181\n"
        f"ssl.keystore.location={tmp_path}/agent.pem\n",
    )
    assert code == 0, lines
    (told,) = [line for line in lines if line.split()[1] == "tls"]
    assert re.search(r"listener SSL: CN=agent, for (29\.9|30\.0) days", told), told
    assert any("zookeeper.connect" in line for line in lines)


def test_doctor_says_why_a_certificate_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent.jks").write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    code, lines = doctor(
        capsys,
        tmp_path,
        f"listeners=SSL://127.0.0.1:0\nssl.keystore.location={tmp_path}/agent.jks\n",
    )
    assert code == main.FAILED
    (bad,) = [line for line in lines if line.startswith("BAD")]
    assert "keytool -importkeystore" in bad


def test_doctor_notes_what_is_allowed_and_not_safe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent.pem").write_text(Authority().sign("agent", days=5).pem)
    code, lines = doctor(
        capsys,
        tmp_path,
        "listeners=SASL_SSL://127.0.0.1:0\nsasl.enabled.mechanisms=SCRAM-SHA-512\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={tmp_path}/agent.pem\n"
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "allow.everyone.if.no.acl.found=true\n",
    )
    assert code == 0, lines
    notes = [line for line in lines if line.startswith("note")]
    assert {line.split()[1] for line in notes} == {"rights", "tls"}
    for words in ("super.users is not", "open to everybody", "put a new one in its place"):
        assert any(words in line for line in notes), notes


def test_doctor_says_what_is_wrong_with_a_mechanism(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "listeners=SASL_PLAINTEXT://127.0.0.1:0\nsasl.enabled.mechanisms=PLAIN\n"
    code, lines = doctor(capsys, tmp_path, text)
    assert code == main.FAILED
    (bad,) = [line for line in lines if line.startswith("BAD")]
    assert "sasl.jaas.config" in bad


def test_certificates_are_made_where_they_are_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("certificates", "create", "agent1", "--host", "agent1.example.com") == 0
    assert "certificates/agent1.pem is the key store of agent1" in capsys.readouterr().out
    assert (tmp_path / "certificates" / "ca.pem").exists()
    assert run("certificates", "create", "agent1") == main.FAILED
    assert "--renew" in capsys.readouterr().err
    assert run("certificates", "create", "agent1", "--renew") == 0


def test_names_that_others_have_chosen_do_not_command_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A group may be called so that a terminal clears itself, or a line looks like two."""
    said = CommandResult(["a\x1b[2Jb  \u00e4"], ["one\ntwo"], ["bell\a"])
    assert arguments._say(argparse.Namespace(name="frazil group list"), said) == main.FAILED
    printed = capsys.readouterr()
    assert printed.out == "a\\x1b[2Jb  \u00e4\n"
    assert printed.err.splitlines() == [
        "frazil group list: one\\ntwo",
        "frazil group list: bell\\x07",
    ]


def test_settings_of_a_client_that_mean_nothing_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.properties").write_text("bootstrap.servers=localhost:1\nacks=all\nretries=1\n")
    words = ["group", "list", "--command-config", "c.properties", "--timeout-ms", "1000"]
    assert run(*words) == main.FAILED
    told = capsys.readouterr().err.splitlines()
    assert told[0] == (
        "frazil group list: c.properties: settings that have no effect: acks, retries"
    )
    assert "localhost:1 cannot be reached" in told[1]
    assert len(told) == 2


def test_no_argument_is_a_secret() -> None:
    """Others on the machine can read command lines: files have secrets, or they are asked for."""
    words = re.compile("password|secret|token|key")
    found = []
    parsers = [main._parser()]
    while parsers:
        parser = parsers.pop()
        for action in parser._actions:
            if isinstance(action.choices, dict):
                parsers += action.choices.values()
            found += [flag for flag in action.option_strings if words.search(flag)]
    assert "--password-file" in found
    keys_of_records = {
        "--key",
        "--key-separator",
        "--key-format",
        "--key-schema-id",
        "--key-message",
    }
    assert {flag for flag in found if not flag.endswith("-file")} == keys_of_records


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.config"]
)
def test_no_setting_of_librdkafka_that_is_a_secret_is_taken_from_the_command_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("consume", "t", "-X", f"{name}=hush") == main.MISUSED
    told = capsys.readouterr().err
    assert f"{name} is a secret: put it into the file of --command-config" in told
    assert "hush" not in told
