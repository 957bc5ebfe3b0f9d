"""`frazil schema` against an agent's registry, which wants to know who asks."""

import http.server
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from broker.cli import main
from tests.broker.cli.test_completion import completed
from tests.clients import commands
from tests.clients.commands import Done
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
PRICED = ORDER[:-2] + ',{"name":"cents","type":"long","default":0}]}'
NAMED = ORDER[:-2] + ',{"name":"name","type":"string"}]}'
TOKEN = "a-token-of-a-user-of-the-registry"
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "token").write_text(TOKEN)
    url = f"http://127.0.0.1:{free_port()}"
    settings = (
        f"schema.registry.listeners={url}",
        "schema.registry.basic.auth.user.info=ann:pw",
        f"schema.registry.tokens=bob:{folder / 'token'}",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    with FrazilDev(folder, *words) as agent:
        yield url
        assert agent.stop() == 0


@pytest.fixture
def subject() -> str:
    return f"s/{next(NUMBERS)}-value"


class Shell:
    """Commands of somebody who has a file of settings, and files with schemas."""

    def __init__(self, folder: Path, settings: str) -> None:
        self.folder = folder
        self.config = folder / "client.properties"
        self.config.write_text(settings)

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def run(self, *words: str) -> Done:
        return commands.frazil("schema", *words, "--command-config", str(self.config))

    def told(self, *words: str) -> str:
        """What a command that did its work has said."""
        done = self.run(*words)
        assert (done.code, done.err) == (0, "")
        return done.out.decode()

    def json(self, *words: str) -> Any:
        return json.loads(self.told(*words, "--json"))

    def refused(self, *words: str) -> str:
        """The sentence of one that could not."""
        done = self.run(*words)
        assert (done.code, done.out) == (1, b"")
        (line,) = done.err.splitlines()
        return line.partition(": ")[2]


@pytest.fixture
def shell(url: str, tmp_path: Path) -> Shell:
    login = "basic.auth.credentials.source=USER_INFO\nbasic.auth.user.info=ann:pw"
    return Shell(tmp_path, f"schema.registry.url={url}\n{login}\n")


def create(shell: Shell, subject: str, text: str = ORDER, *more: str) -> dict[str, Any]:
    return shell.json("create", subject, "--file", shell.file("a.avsc", text), *more)


def test_a_schema_is_registered_once_and_then_it_is_there_already(
    shell: Shell, subject: str
) -> None:
    made = create(shell, subject)
    assert made == {"subject": subject, "id": made["id"], "version": 1, "is_new": True}
    assert create(shell, subject) == made | {"is_new": False}
    said = shell.told("create", subject, "--file", shell.file("b.avsc", PRICED))
    assert said == f"subject {subject}: version 2, id {made['id'] + 1}, is registered\n"


def test_a_subject_is_described_with_its_newest_version_or_another(
    shell: Shell, subject: str
) -> None:
    first, second = create(shell, subject), create(shell, subject, PRICED)
    assert shell.json("describe", subject) == {
        "subject": subject,
        "version": 2,
        "versions": [1, 2],
        "id": second["id"],
        "type": "AVRO",
        "references": [],
        "schema": PRICED,
    }
    assert shell.told("describe", subject, "--version", "1").splitlines() == [
        f"subject     {subject}",
        "version     1 (of 1-2)",
        f"id          {first['id']}",
        "type        AVRO",
        ORDER,
    ]


def test_a_schema_is_got_by_its_id_as_it_was_written(shell: Shell, subject: str) -> None:
    text = 'syntax = "proto3";\nmessage Order {\n  int64 id = 1;\n}\n'
    made = shell.json("create", subject, "--file", shell.file("a.proto", text))
    assert shell.told("get", "--id", str(made["id"])) == text
    assert shell.json("get", "--id", str(made["id"])) == {
        "id": made["id"],
        "type": "PROTOBUF",
        "references": [],
        "subjects": [{"subject": subject, "version": 1}],
        "schema": text,
    }


def test_a_schema_refers_to_another_subjects_version(shell: Shell, subject: str) -> None:
    money = '{"type":"fixed","name":"Money","namespace":"shop","size":2}'
    create(shell, f"money-{subject}", money)
    bill = '{"type":"record","name":"Bill","fields":[{"name":"sum","type":"shop.Money"}]}'
    create(shell, subject, bill, "--reference", f"shop.Money=money-{subject}:1")
    found = shell.json("describe", subject)
    assert found["references"] == [
        {"name": "shop.Money", "subject": f"money-{subject}", "version": 1}
    ]
    assert f"reference   shop.Money=money-{subject}:1\n" in shell.told("describe", subject)
    said = shell.refused("delete", f"money-{subject}", "--yes")
    assert said.startswith(f'subject "money-{subject}": the registry refuses: ')


def test_what_is_deleted_is_listed_when_that_is_asked_for(shell: Shell, subject: str) -> None:
    create(shell, subject)
    create(shell, subject, PRICED)
    shell.told("delete", subject, "--version", "1", "--yes")

    def listed(*more: str) -> list[dict[str, Any]]:
        return [one for one in shell.json("list", *more) if one["subject"] == subject]

    row = {"subject": subject, "type": "AVRO"}
    assert listed() == [row | {"versions": [2], "deleted": []}]
    assert listed("--deleted") == [row | {"versions": [2], "deleted": [1]}]
    shell.told("delete", subject, "--yes")
    assert listed() == []
    assert listed("--deleted") == [row | {"versions": [], "deleted": [1, 2]}]
    assert [
        line.split() for line in shell.told("list", "--deleted").splitlines() if subject in line
    ] == [[subject, "AVRO", "-", "1-2"]]


def test_a_subject_is_forgotten_whether_or_not_it_was_deleted_before(
    shell: Shell, subject: str
) -> None:
    create(shell, subject)
    create(shell, subject, PRICED)
    said = shell.told("delete", subject, "--version", "latest", "--permanent", "--yes")
    assert said == f"subject {subject}, version 2: forgotten for ever\n"
    shell.told("delete", subject, "--yes")
    said = shell.told("delete", subject, "--permanent", "--yes")
    assert said == f"subject {subject}, version 1: forgotten for ever\n"
    assert subject not in shell.told("list", "--deleted")


def test_nothing_is_deleted_unasked(shell: Shell, subject: str) -> None:
    create(shell, subject)
    said = shell.refused("delete", subject)
    assert said.startswith('nothing is done: there is no terminal to ask "delete all versions of')
    assert subject in shell.told("list")


def test_a_schema_that_may_not_follow_is_refused_with_the_registrys_reasons(
    shell: Shell, subject: str
) -> None:
    create(shell, subject)
    good, bad = shell.file("good.avsc", PRICED), shell.file("bad.avsc", NAMED)
    said = shell.told("check", subject, "--file", good)
    assert said == f'{good} is compatible with subject "{subject}"\n'
    said = shell.refused("check", subject, "--file", bad)
    assert said.startswith(f'{bad} is not compatible with subject "{subject}": ')
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in said
    done = shell.run("check", subject, "--file", bad, "--version", "1", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert (found["subject"], found["is_compatible"]) == (subject, False)
    assert any("READER_FIELD_MISSING_DEFAULT_VALUE" in reason for reason in found["reasons"])
    said = shell.refused("create", subject, "--file", bad)
    assert said.startswith(f'{bad} may not follow what subject "{subject}" has: ')
    assert said.endswith("(frazil schema check says why)")


def test_of_a_subject_that_there_is_not_no_schema_is_compatible(shell: Shell) -> None:
    said = shell.refused("check", "nowhere", "--file", shell.file("a.avsc", ORDER))
    assert said.startswith('there is no subject "nowhere"')


def test_the_compatibility_of_a_subject_is_its_own_or_that_of_all(
    shell: Shell, subject: str
) -> None:
    create(shell, subject)
    before = {"subject": subject, "compatibility": "BACKWARD", "is_own": False}
    assert shell.json("compatibility", "get", subject) == before
    said = shell.told("compatibility", "set", "full", subject)
    assert said == f"compatibility of subject {subject} is FULL\n"
    own = {"subject": subject, "compatibility": "FULL", "is_own": True}
    assert shell.json("compatibility", "get", subject) == own
    shell.told("compatibility", "delete", subject)
    said = shell.told("compatibility", "get", subject)
    assert said == f"compatibility of subject {subject}: BACKWARD (as for all subjects)\n"
    assert shell.refused("compatibility", "delete", subject) == (
        f'subject "{subject}" has no compatibility of its own'
    )


def test_the_compatibility_of_all_is_set_and_unset(shell: Shell, subject: str) -> None:
    shell.told("compatibility", "set", "NONE")
    assert shell.json("compatibility", "get") == {
        "subject": None,
        "compatibility": "NONE",
        "is_own": True,
    }
    assert shell.json("compatibility", "get", subject)["compatibility"] == "NONE"
    shell.told("compatibility", "delete")
    assert shell.told("compatibility", "get") == "compatibility of all subjects: BACKWARD\n"


def test_a_subject_that_is_read_only_takes_no_schema(shell: Shell, subject: str) -> None:
    create(shell, subject)
    shell.told("mode", "set", "READONLY", subject)
    said = shell.refused("create", subject, "--file", shell.file("b.avsc", PRICED))
    assert said.startswith(f'subject "{subject}": the registry refuses: ')
    shell.told("mode", "delete", subject)
    assert shell.told("mode", "get", subject).endswith("READWRITE (as for all subjects)\n")
    assert create(shell, subject, PRICED)["is_new"]


def test_import_wants_to_be_forced_where_there_are_schemas(shell: Shell, subject: str) -> None:
    create(shell, subject)
    assert "existing subjects" in shell.refused("mode", "set", "IMPORT", subject)
    assert shell.told("mode", "set", "IMPORT", subject, "--force").endswith("is IMPORT\n")
    shell.told("mode", "delete", subject)


def test_many_subjects_are_listed_page_by_page(
    shell: Shell, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        create(shell, f"{subject}-{number}")
    monkeypatch.setattr("broker.cli.schemas.schema_tool.PAGE", 2)
    names = [one["subject"] for one in shell.json("list")]
    assert [name for name in names if name.startswith(f"{subject}-")] == [
        f"{subject}-{number}" for number in range(5)
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("describe", "nowhere"), 'there is no subject "nowhere" (frazil schema list shows all'),
        (("get", "--id", "99999"), "there is no schema of id 99999"),
        (("delete", "nowhere", "--yes"), 'there is no subject "nowhere"'),
        (("delete", "nowhere", "--permanent", "--yes"), 'there is no subject "nowhere"'),
        (("create", "x", "--file", "/nowhere.avsc"), "cannot read /nowhere.avsc: No such file"),
        (("create", "x", "--file", "/nowhere"), "the name of /nowhere does not say what it is"),
    ],
)
def test_what_there_is_not_is_one_sentence(shell: Shell, words: tuple[str, ...], said: str) -> None:
    assert shell.refused(*words).startswith(said)


def test_a_version_that_there_is_not_is_one_sentence(shell: Shell, subject: str) -> None:
    create(shell, subject)
    said = shell.refused("describe", subject, "--version", "7")
    assert said == (
        f'subject "{subject}" has no version 7 (frazil schema describe {subject} shows all)'
    )


def test_a_text_that_is_no_schema_is_one_sentence(shell: Shell) -> None:
    file = shell.file("bad.avsc", '{"type": "recrod"}')
    for command in ("create", "check"):
        create(shell, "known")
        said = shell.refused(command, "known", "--file", file)
        assert said.startswith(f"{file} is no schema of type AVRO: ")


def test_a_token_in_a_file_is_a_login_too(shell: Shell, url: str) -> None:
    token = shell.file("token", f"{TOKEN}\n")
    shell.config.write_text(f"schema.registry.url={url}\nbearer.auth.token.file={token}\n")
    shell.told("list")


@pytest.mark.parametrize("login", ["", "basic.auth.user.info=ann:wrong\n"])
def test_whoever_is_not_known_is_told_what_to_do(shell: Shell, url: str, login: str) -> None:
    shell.config.write_text(f"schema.registry.url={url}\n{login}")
    assert shell.refused("list") == (
        f"{url} does not take this login, or wants one: basic.auth.user.info or"
        " bearer.auth.token.file in the file of --command-config [login-failed]"
    )


def test_of_several_addresses_the_next_is_asked_when_one_does_not_answer(
    shell: Shell, url: str
) -> None:
    login = "basic.auth.user.info=ann:pw"
    shell.config.write_text(f"schema.registry.url=http://127.0.0.1:1,{url}\n{login}\n")
    shell.told("list")


def test_a_context_says_where_the_registry_is(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    shell.config.write_text(shell.config.read_text() + "bootstrap.servers=localhost:1\n")
    words = ("context", "create", "here", "--command-config", str(shell.config))
    assert commands.frazil(*words).code == 0
    assert commands.frazil("schema", "list", "--context", "here").code == 0
    monkeypatch.setenv("FRAZIL_CONTEXT", "here")
    assert commands.frazil("schema", "list").code == 0


def test_names_of_subjects_are_completed(shell: Shell, subject: str, tmp_path: Path) -> None:
    create(shell, f"completed-{subject}")
    line = f"frazil schema describe --command-config {shell.config} completed-"
    assert completed(line, tmp_path) == [f"completed-{subject}"]


def test_confluents_client_sees_what_was_registered(shell: Shell, url: str, subject: str) -> None:
    made = create(shell, subject)
    told = {"url": url, "basic.auth.user.info": "ann:pw"}
    with SchemaRegistryClient(told) as registry:
        found = registry.get_latest_version(subject)
    assert (found.schema_id, found.version, found.schema.schema_str) == (made["id"], 1, ORDER)


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers everything alike, but what it leads on to."""

    status, body = 200, b""

    def do_GET(self) -> None:
        is_led = self.path == "/elsewhere"
        self.send_response(200 if is_led else self.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(b"[]" if is_led else self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "does not answer like a schema registry"),
        (200, b"{}", "does not answer like a schema registry"),
        (200, b'[{"version": 1}]', "does not answer like a schema registry"),
        (404, b"<html>", "does not answer like a schema registry"),
        (302, b"", "does not answer like a schema registry"),
        (403, b'{"error_code":40301,"message":"no"}', "does not allow it: no"),
        (503, b'{"error_code":50001,"message":"later"}', "503 later: is one running?"),
    ],
)
def test_what_is_no_registry_or_cannot_answer_is_one_sentence(
    status: int, body: bytes, said: str
) -> None:
    handler = type("Handler", (Answers,), {"status": status, "body": body})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            done = commands.frazil(
                "schema", "list", "--registry", f"http://127.0.0.1:{server.server_port}"
            )
        finally:
            server.shutdown()
            thread.join()
    assert done.code == main.FAILED
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_a_registry_that_is_silent_is_waited_for_as_long_as_one_says() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = commands.frazil("schema", "list", "--registry", url, "--timeout-ms", "200")
    assert done.code == main.FAILED
    assert f"no schema registry answers at {url}: it is silent (--timeout-ms)" in done.err


def test_where_no_registry_is_that_is_said() -> None:
    done = commands.frazil("schema", "list", "--registry", "http://127.0.0.1:1")
    assert done.err == (
        "frazil schema list: no schema registry answers at http://127.0.0.1:1: Connection refused: is one running?"
        " (--registry says where) [cluster-unreachable]\n"
    )
