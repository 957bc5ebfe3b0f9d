"""The registry client: what is asked once, what is an answer, and what ends the run."""

import base64

import pytest

from iceberg_export.errors import SettingsError
from iceberg_export.settings import DEFAULTS
from iceberg_export.typed import registry_client
from iceberg_export.typed.registry_client import RegistryClient, RegistryError
from tests.iceberg_export.kit.http import killed_while_it_answers, served
from tests.iceberg_export.kit.registry import FakeRegistry


@pytest.fixture
def registry():
    return FakeRegistry()


@pytest.fixture
def client(registry):
    with served(registry) as url:
        yield lambda **more: make(url, **more)


def make(url, **more):
    told = {f"schema.registry.{name.replace('_', '.')}": value for name, value in more.items()}
    given = DEFAULTS | {"schema.registry.url": url} | told
    return RegistryClient(given, told=str, sleep=lambda _seconds: None)


def test_versions_come_oldest_first_and_ids_are_asked_for_once(registry, client):
    one = registry.register("t-value", '"int"')
    two = registry.register("t-value", "{}", "JSON")
    found = client()
    schemas = found.versions("t-value")
    assert [(s.schema_id, s.kind, s.text) for s in schemas] == [
        (one, "AVRO", '"int"'),
        (two, "JSON", "{}"),
    ]
    asked = len(registry.requests)
    assert [found.by_id(one), found.by_id(two), found.by_id(one)] == [*schemas, schemas[0]]
    assert len(registry.requests) == asked


def test_what_is_not_there_is_an_answer(client):
    found = client()
    assert found.versions("nothing") == []
    assert found.by_id(99) is None


@pytest.mark.parametrize("tells_ids", [True, False])
def test_a_guid_is_a_schema_with_its_id_in_the_default_context(registry, client, tells_ids):
    registry.register("t-value", "{}", "JSON")
    number = registry.register("t-value", '"int"')
    if not tells_ids:
        registry.by_guid = lambda _schema_id, found: found
    guid = registry.schemas[number]["guid"]
    found = client()
    schema = found.by_guid(guid)
    assert (schema.schema_id, schema.text, schema.guid) == (number, '"int"', guid)
    assert found.by_id(number) is schema
    assert found.by_guid("0" * 8) is None


def test_the_newest_version_is_one_question(registry, client):
    registry.register("t-value", '"int"')
    number = registry.register("t-value", '"long"')
    found = client()
    assert found.latest("t-value").schema_id == number
    assert len(registry.requests) == 1
    assert found.latest("nothing") is None


def test_references_are_gathered_those_first_that_others_need(registry, client):
    registry.register("inner", "1", "PROTOBUF")
    inner = {"name": "inner.proto", "subject": "inner", "version": 1}
    registry.register("middle", "2", "PROTOBUF", [inner])
    middle = {"name": "middle.proto", "subject": "middle", "version": 1}
    outer = registry.register("a/b", "3", "PROTOBUF", [middle, inner])
    (found,) = client().versions("a/b")
    assert found == client().by_id(outer)
    assert list(found.references.items()) == [("inner.proto", "1"), ("middle.proto", "2")]


def test_a_lost_reference_and_one_in_circles_end_the_run(registry, client):
    gone = registry.register("a", "1", "AVRO", [{"name": "n", "subject": "b", "version": 1}])
    with pytest.raises(RegistryError, match="has lost version 1 of subject b"):
        client().by_id(gone)
    own = {"name": "n", "subject": "c", "version": 1}
    round_and_round = registry.register("c", "1", "AVRO", [own])
    with pytest.raises(RegistryError, match="in circles"):
        client().by_id(round_and_round)


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ({}, None),
        (
            {"basic_auth_user_info": "ann:pw"},
            "Basic " + base64.b64encode(b"ann:pw").decode(),
        ),
        ({"bearer_auth_token": "t0"}, "Bearer t0"),
    ],
)
def test_credentials_are_sent_with_every_request(registry, client, more, sent):
    client(**more).versions("t")
    assert registry.authorization == [sent]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, {"error_code": 40101, "message": "who?"}, "refuses the credentials (who?)"),
        (404, b"<html>", "does not answer like a schema registry"),
        (200, b"<html>", "does not answer like a schema registry"),
        (422, {"error_code": 42201, "message": "no"}, "refuses /schemas/ids/1: no"),
        (503, {"error_code": 50001, "message": "busy"}, "no schema registry answers"),
    ],
)
def test_what_is_no_answer_ends_the_run_in_one_sentence(registry, client, status, body, said):
    registry.refuse = lambda _path: (status, body)
    with pytest.raises(RegistryError) as refused:
        client().by_id(1)
    assert said in str(refused.value)


def test_an_address_that_is_away_is_passed_over(registry):
    registry.register("t", '"int"')
    with served(registry) as url:
        assert make(f"http://127.0.0.1:1,{url}/").by_id(1).text == '"int"'


@pytest.mark.parametrize(
    ("url", "more", "said"),
    [
        ("registry:8081", {}, "is not an address like http://host:8081"),
        ("http://r", {"ssl_ca_location": "/nowhere/ca.pem"}, "cannot be used"),
        ("http://r", {"basic_auth_user_info": "a:b", "bearer_auth_token": "t"}, "cannot both"),
    ],
)
def test_wrong_settings_are_refused_at_once(url, more, said):
    with pytest.raises(SettingsError, match=said):
        make(url, **more)


def test_of_a_subject_with_very_many_versions_the_newest_are_read(registry, client, monkeypatch):
    monkeypatch.setattr(registry_client, "VERSIONS_MAX", 3)
    ids = [registry.register("t-value", f'"{kind}"') for kind in ("int", "long", "float", "double")]
    assert [one.schema_id for one in client().versions("t-value")] == ids[1:]
    assert len(registry.requests) == 1 + 3


def test_an_answer_that_breaks_off_is_asked_of_the_next_registry(registry):
    number = registry.register("t-value", '"int"')
    with killed_while_it_answers(b'{"schema": "int"}', 10) as here, served(registry) as there:
        schema = make(f"{here},{there}").by_id(number)
    assert schema is not None
    assert schema.text == '"int"'


def test_while_nobody_answers_where_an_agent_told_another_is_asked_and_then_stayed_with(registry):
    number = registry.register("t-value", '"int"')
    pauses: list[float] = []
    with served(registry) as url:
        told = ["http://127.0.0.1:1", "http://127.0.0.1:2", url]
        client = RegistryClient(DEFAULTS, told=lambda: told.pop(0), sleep=pauses.append)
        schema = client.by_id(number)
        assert schema is not None
        assert (schema.text, told, pauses) == ('"int"', [], [1.0, 2.0])
        assert client.latest("t-value") == schema, "nobody is asked again"


def test_when_no_agent_tells_a_registry_that_answers_all_that_were_tried_are_named():
    told = iter(["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:1"])
    client = RegistryClient(DEFAULTS, told=lambda: next(told), sleep=lambda _seconds: None)
    with pytest.raises(RegistryError, match=r"127.0.0.1:1: .*; http://127.0.0.1:2: ") as ended:
        client.by_id(1)
    assert "set schema.registry.url" in str(ended.value)


def test_registries_that_the_settings_name_are_asked_whatever_agents_tell():
    def told():
        raise AssertionError

    given = DEFAULTS | {"schema.registry.url": "http://127.0.0.1:1"}
    with pytest.raises(RegistryError, match="no schema registry answers"):
        RegistryClient(given, told=told, sleep=lambda _seconds: None).by_id(1)


def test_an_address_that_can_be_nobodys_is_told() -> None:
    given = DEFAULTS | {"schema.registry.url": "http://registry..svc:8081"}
    client = RegistryClient(given, told=lambda: "", sleep=lambda _seconds: None)
    with pytest.raises(RegistryError, match=r"no schema registry answers \(http://registry\.\.svc"):
        client.by_id(1)
