"""The registry's REST API, as Confluent documents it, over an agent in memory."""

import asyncio

import aiohttp
import pytest

from broker.calls.shares import Ledger
from broker.registry import rest_support
from broker.registry.errors import TIMED_OUT
from coordinator.commands.table_commands import DeleteSubject, RegisterSchema
from coordinator.log_client import NotDoneError
from tests.broker.registry.client import BROKEN, RECORD, WIDER, registry_of
from tests.kit.sockets import Place

pytestmark = pytest.mark.real_loop


async def test_a_schema_registered_twice_has_one_id_and_one_version() -> None:
    async with registry_of(Place()) as registry:
        first = await registry.register("s", RECORD)
        assert await registry.register("s", f"  {RECORD.replace(':', ' : ')}") == first
        assert await registry.get("/subjects/s/versions") == [1]
        assert await registry.register("other", RECORD) == first
        assert await registry.get(f"/schemas/ids/{first}/subjects") == ["other", "s"]
        assert await registry.get(f"/schemas/ids/{first}/versions") == [
            {"subject": "other", "version": 1},
            {"subject": "s", "version": 1},
        ]


async def test_a_schema_that_is_known_is_read_once_and_waits_for_nobody() -> None:
    async with registry_of(Place()) as registry:
        checker, asked = registry.running.agent._checker, []
        ask = checker.ask

        async def counted(question, **more):
            asked.append(question)
            return await ask(question, **more)

        checker.ask = counted
        first = await registry.register("s", RECORD)
        assert len(asked) == 1
        assert await registry.register("s", RECORD) == first
        assert len(asked) == 1
        # Looked up, it need not be as right as a new one; that is another question.
        for _ in range(2):
            assert (await registry.ask("POST", "/subjects/s", {"schema": RECORD}))[1]["id"] == first
        assert len(asked) == 2
        await registry.ask("DELETE", "/subjects/s")
        await registry.ask("DELETE", "/subjects/s?permanent=true")
        assert await registry.register("s", RECORD) > first
        assert len(asked) == 3


async def test_who_registers_a_schema_is_told_its_id_though_others_delete_it_at_once() -> None:
    async with registry_of(Place()) as registry:
        log_client = registry.running.agent._shells.log_client
        propose = log_client.propose

        def overtaken(command):
            future = propose(command)
            if isinstance(command, RegisterSchema):
                for permanent in (False, True):
                    propose(DeleteSubject("s", -1, permanent))
            return future

        log_client.propose = overtaken
        status, body = await registry.ask("POST", "/subjects/s/versions", {"schema": RECORD})
        assert (status, body["id"], body["version"]) == (200, 1, 1)
        assert await registry.refused("GET", "/subjects/s/versions") == 40401


async def test_versions_are_given_out_by_number_by_latest_and_as_text() -> None:
    async with registry_of(Place()) as registry:
        one, two = await registry.register("s", RECORD), await registry.register("s", WIDER)
        assert two > one
        latest = await registry.get("/subjects/s/versions/latest")
        assert (latest["subject"], latest["version"], latest["id"]) == ("s", 2, two)
        assert latest["schema"] == WIDER
        assert "schemaType" not in latest  # Avro's is not told, as older clients want it.
        assert (await registry.get("/subjects/s/versions/1"))["schema"] == RECORD
        assert await registry.get("/subjects/s/versions/2/schema") == WIDER
        by_id = await registry.get(f"/schemas/ids/{one}?fetchMaxId=true")
        assert (by_id["schema"], by_id["maxId"]) == (RECORD, two)
        assert await registry.get(f"/schemas/ids/{one}/schema") == RECORD
        by_guid = await registry.get(f"/schemas/guids/{by_id['guid']}")
        assert (by_guid["id"], by_guid["schema"]) == (one, RECORD)
        ids = await registry.get(f"/schemas/guids/{by_id['guid'].upper()}/ids")
        assert ids == [{"context": ".", "id": one}]
        listed = await registry.get("/schemas?subjectPrefix=s&latestOnly=true")
        assert [(each["subject"], each["version"]) for each in listed] == [("s", 2)]


async def test_an_incompatible_schema_is_refused_with_the_place_and_registered_nowhere() -> None:
    async with registry_of(Place()) as registry:
        await registry.register("s", RECORD)
        status, body = await registry.ask("POST", "/subjects/s/versions", {"schema": BROKEN})
        assert (status, body["error_code"]) == (409, 409)
        assert "READER_FIELD_MISSING_DEFAULT_VALUE" in body["message"]
        assert "/fields/1" in body["message"]
        assert "oldSchemaVersion: 1" in body["message"]
        assert await registry.get("/subjects/s/versions") == [1]


async def test_a_level_holds_for_its_subject_before_that_of_all() -> None:
    async with registry_of(Place()) as registry:
        await registry.register("s", RECORD)
        assert await registry.get("/config") == {"compatibilityLevel": "BACKWARD"}
        assert await registry.refused("GET", "/config/s") == 40408
        assert (await registry.get("/config/s?defaultToGlobal=true"))["compatibilityLevel"]
        put = await registry.ask("PUT", "/config/s", {"compatibility": "none"})
        assert put == (200, {"compatibility": "NONE"})
        await registry.register("s", BROKEN)
        assert await registry.ask("DELETE", "/config/s") == (200, {"compatibilityLevel": "NONE"})
        assert await registry.refused("DELETE", "/config/s") == 40401
        await registry.ask("PUT", "/config", {"compatibility": "FORWARD"})
        body = {"schema": RECORD}
        trial = "/compatibility/subjects/s/versions"
        assert await registry.ask("POST", trial, body) == (200, {"is_compatible": False})
        await registry.ask("PUT", "/config", {"compatibility": "BACKWARD"})
        assert await registry.ask("POST", trial, body) == (200, {"is_compatible": True})
        assert await registry.refused("PUT", "/config", {"compatibility": "BEST"}) == 42203


async def test_a_trial_says_why_and_registers_nothing() -> None:
    async with registry_of(Place()) as registry:
        await registry.register("s", RECORD)
        path = "/compatibility/subjects/s/versions/latest"
        status, body = await registry.ask("POST", f"{path}?verbose=true", {"schema": BROKEN})
        assert (status, body["is_compatible"]) == (200, False)
        assert any("'b'" in message for message in body["messages"])
        assert await registry.ask("POST", path, {"schema": WIDER}) == (
            200,
            {"is_compatible": True},
        )
        assert await registry.get("/subjects/s/versions") == [1]
        refused = await registry.refused("POST", path.replace("latest", "7"), {"schema": WIDER})
        assert refused == 40402
        none = path.replace("/s/", "/n/")
        refused = await registry.refused("POST", none.replace("latest", "1"), {"schema": WIDER})
        assert refused == 40402


async def test_a_trial_against_the_latest_of_a_subject_without_versions_is_compatible() -> None:
    async with registry_of(Place()) as registry:
        path = "/compatibility/subjects/s/versions/latest"
        fits = (200, {"is_compatible": True})
        assert await registry.ask("POST", path, {"schema": WIDER}) == fits
        await registry.register("s", RECORD)
        assert (await registry.ask("POST", path, {"schema": BROKEN}))[1]["is_compatible"] is False
        await registry.ask("DELETE", "/subjects/s")
        assert await registry.ask("POST", path, {"schema": BROKEN}) == fits


async def test_a_protobuf_schema_of_kafka_connect_needs_no_references() -> None:
    imports = 'import "confluent/meta.proto"; import "confluent/type/decimal.proto";'
    text = f'syntax = "proto3"; {imports} message V {{ confluent.type.Decimal d = 1; %s }}'
    async with registry_of(Place()) as registry:
        proto = {"schemaType": "PROTOBUF"}
        first = await registry.register("s", text % "", **proto)
        # The second is compared with the first: both are read again from what is kept.
        assert await registry.register("s", text % "int32 n = 2;", **proto) > first


async def test_a_trial_with_reasons_tells_what_is_no_schema_among_them() -> None:
    async with registry_of(Place()) as registry:
        await registry.register("s", RECORD)
        path, body = "/compatibility/subjects/s/versions/latest", {"schema": '{"type":"rec"}'}
        assert await registry.refused("POST", path, body) == 42201
        status, told = await registry.ask("POST", f"{path}?verbose=true", body)
        assert (status, told["is_compatible"]) == (200, False)
        assert [line for line in told["messages"] if "rec" in line] == told["messages"] != []


async def test_looking_up_finds_the_version_or_says_which_is_missing() -> None:
    async with registry_of(Place()) as registry:
        first = await registry.register("s", RECORD)
        await registry.register("s", WIDER)
        status, body = await registry.ask("POST", "/subjects/s", {"schema": RECORD})
        assert (status, body["id"], body["version"]) == (200, first, 1)
        assert await registry.refused("POST", "/subjects/s", {"schema": BROKEN}) == 40403
        assert await registry.refused("POST", "/subjects/none", {"schema": RECORD}) == 40401


async def test_what_is_deleted_is_hidden_first_and_forgotten_when_asked_again() -> None:
    async with registry_of(Place()) as registry:
        first = await registry.register("s", RECORD)
        await registry.register("s", WIDER)
        assert await registry.refused("DELETE", "/subjects/s/versions/1?permanent=true") == 40407
        assert await registry.ask("DELETE", "/subjects/s/versions/1") == (200, 1)
        assert await registry.get("/subjects/s/versions") == [2]
        assert await registry.get("/subjects/s/versions?deleted=true") == [1, 2]
        assert await registry.get("/subjects/s/versions?deletedOnly=true") == [1]
        assert await registry.refused("GET", "/subjects/s/versions/1") == 40402
        assert (await registry.get(f"/schemas/ids/{first}"))["schema"] == RECORD
        assert await registry.refused("DELETE", "/subjects/s/versions/1") == 40406
        assert await registry.refused("DELETE", "/subjects/s?permanent=true") == 40405
        assert await registry.ask("DELETE", "/subjects/s") == (200, [2])
        assert await registry.get("/subjects") == []
        assert await registry.get("/subjects?deletedOnly=true") == ["s"]
        assert await registry.refused("DELETE", "/subjects/s") == 40404
        assert await registry.ask("DELETE", "/subjects/s?permanent=true") == (200, [1, 2])
        assert await registry.refused("GET", f"/schemas/ids/{first}") == 40403
        assert await registry.get("/subjects?deleted=true") == []


async def test_a_schema_that_others_refer_to_stays() -> None:
    async with registry_of(Place()) as registry:
        await registry.register("r", RECORD)
        using = '{"type":"record","name":"U","fields":[{"name":"r","type":"R"}]}'
        references = [{"name": "R", "subject": "r", "version": -1}]
        user = await registry.register("u", using, references=references)
        assert (await registry.get(f"/schemas/ids/{user}"))["references"] == [
            {"name": "R", "subject": "r", "version": 1}
        ]
        assert await registry.get("/subjects/r/versions/1/referencedby") == [user]
        assert '"fields"' in (await registry.get(f"/schemas/ids/{user}?format=resolved"))["schema"]
        assert await registry.refused("DELETE", "/subjects/r/versions/1") == 42206
        assert await registry.refused("DELETE", "/subjects/r") == 42206
        body = {"schema": using}
        assert await registry.refused("POST", "/subjects/u/versions", body) == 42201
        for version in (9, True):
            body["references"] = [{"name": "R", "subject": "r", "version": version}]
            assert await registry.refused("POST", "/subjects/u/versions", body) == 42201
        await registry.ask("DELETE", "/subjects/u")
        assert await registry.refused("DELETE", "/subjects/r?permanent=true") == 40405
        assert await registry.ask("DELETE", "/subjects/r") == (200, [1])


async def test_a_subject_that_is_read_only_takes_nothing() -> None:
    async with registry_of(Place()) as registry:
        await registry.register("s", RECORD)
        assert await registry.refused("GET", "/mode/s") == 40409
        assert await registry.get("/mode") == {"mode": "READWRITE"}
        await registry.ask("PUT", "/mode/s", {"mode": "READONLY"})
        refused = await registry.refused("POST", "/subjects/s/versions", {"schema": WIDER})
        assert refused == 42205
        assert await registry.refused("DELETE", "/subjects/s") == 42205
        assert await registry.register("s", RECORD)  # It is there already.
        assert await registry.ask("DELETE", "/mode/s") == (200, {"mode": "READONLY"})
        await registry.register("s", WIDER)
        assert await registry.refused("PUT", "/mode", {"mode": "SOME"}) == 42204


async def test_import_mode_takes_ids_and_versions_from_another_registry() -> None:
    async with registry_of(Place()) as registry:
        await registry.ask("PUT", "/mode/s", {"mode": "IMPORT"})
        assert await registry.refused("POST", "/subjects/s/versions", {"schema": RECORD}) == 42205
        assert await registry.register("s", RECORD, id=700, version=5) == 700
        assert await registry.get("/subjects/s/versions") == [5]
        body = {"schema": WIDER, "id": 700, "version": 6}
        assert await registry.refused("POST", "/subjects/s/versions", body) == 42207
        await registry.ask("PUT", "/mode/s", {"mode": "READWRITE"})
        assert await registry.register("s", WIDER) == 701
        assert await registry.refused("PUT", "/mode/s", {"mode": "IMPORT"}) == 42205
        assert (await registry.ask("PUT", "/mode/s?force=true", {"mode": "IMPORT"}))[0] == 200


WRONG = [
    ("GET", "/subjects/none/versions", None, 40401),
    ("GET", "/subjects/none/versions/latest", None, 40401),
    ("GET", "/schemas/ids/77", None, 40403),
    ("GET", "/schemas/guids/00000000-0000-0000-0000-000000000000", None, 40403),
    ("GET", "/subjects/s/versions/zero", None, 42202),
    ("GET", "/subjects/s/versions/0", None, 42202),
    ("GET", "/subjects/:.ctx:s/versions", None, 42208),
    ("DELETE", "/subjects/none", None, 40401),
    ("POST", "/subjects/s/versions", {"schema": '{"type":"recrd"}'}, 42201),
    ("POST", "/subjects/s/versions", {"schema": ""}, 42201),
    ("POST", "/subjects/s/versions", {}, 42201),
    ("POST", "/subjects/s/versions", {"schema": "{}", "schemaType": "XML"}, 42201),
    ("POST", "/subjects/s/versions", {"schema": "message {", "schemaType": "PROTOBUF"}, 42201),
    ("POST", "/subjects/s/versions", {"schema": "[]", "schemaType": "JSON"}, 42201),
    ("POST", "/subjects/s/versions", {"schema": '"int"', "references": [{"name": 1}]}, 42201),
    ("POST", "/subjects/s/versions", {"schema": '"int"', "ruleSet": {"x": 1}}, 422),
    ("POST", "/subjects/s/versions", {"schema": '"int"', "id": 5}, 42205),
    ("POST", "/subjects/s/versions", {"schema": '"int"', "version": 5}, 42201),
    ("POST", "/subjects/s/versions", {"schema": f'"{"x" * 1_100_000}"'}, 42209),
    ("POST", "/subjects/s/versions", ["int"], 422),
    ("GET", "/subjects?limit=x", None, 422),
    ("GET", "/nothing", None, 404),
    ("PATCH", "/subjects", None, 405),
]


async def test_what_is_wrong_is_refused_with_confluents_code() -> None:
    async with registry_of(Place()) as registry:
        for method, path, body, code in WRONG:
            assert await registry.refused(method, path, body) == code, (method, path)
        assert await registry.get("/subjects?deleted=true") == []


async def test_protobuf_and_json_say_their_type_and_come_back_in_the_format_asked_for() -> None:
    async with registry_of(Place()) as registry:
        text = 'syntax = "proto3"; message M { int32 a = 1; }'
        proto = await registry.register("p", text, schemaType="PROTOBUF")
        said = await registry.get(f"/schemas/ids/{proto}")
        assert said["schemaType"] == "PROTOBUF"
        assert said["schema"] == 'syntax = "proto3";\nmessage M {\n  int32 a = 1;\n}\n'
        serialized = (await registry.get(f"/schemas/ids/{proto}?format=serialized"))["schema"]
        again = await registry.register("q", serialized, schemaType="PROTOBUF")
        assert (await registry.get(f"/schemas/ids/{again}"))["schema"] == said["schema"]
        assert again == proto
        json_id = await registry.register("j", '{ "type": "object" }', schemaType="JSON")
        view = await registry.get(f"/schemas/ids/{json_id}")
        assert (view["schemaType"], view["schema"]) == ("JSON", '{"type":"object"}')
        status, body = await registry.ask(
            "POST", "/subjects/j/versions", {"schema": text, "schemaType": "PROTOBUF"}
        )
        assert (status, "SCHEMA_TYPE_CHANGED" in body["message"]) == (409, True)
        assert await registry.get("/schemas/types") == ["AVRO", "JSON", "PROTOBUF"]


async def test_subjects_are_listed_by_prefix_and_in_pages_and_may_have_any_character() -> None:
    async with registry_of(Place()) as registry:
        for subject in ("a-key", "a-value", "b%2Fc-value"):
            await registry.register(subject, RECORD)
        assert await registry.get("/subjects") == ["a-key", "a-value", "b/c-value"]
        assert await registry.get("/subjects?subjectPrefix=a-") == ["a-key", "a-value"]
        assert await registry.get("/subjects?offset=1&limit=1") == ["a-value"]
        assert (await registry.get("/subjects/b%2Fc-value/versions/1"))["subject"] == "b/c-value"
        assert await registry.get("/contexts") == ["."]
        assert (await registry.get("/v1/metadata/id"))["id"] == "frazil"


async def test_whoever_has_no_password_is_turned_away() -> None:
    users = "schema.registry.basic.auth.user.info=ann:s3cret,carl:other"
    async with registry_of(Place(), users) as registry:
        assert await registry.refused("GET", "/subjects") == 401
        for name, password in (("ann", "wrong"), ("bob", "s3cret"), ("", ""), ("ann", "")):
            headers = {"Authorization": aiohttp.encode_basic_auth(name, password)}
            status, _ = await registry.ask("GET", "/subjects", headers=headers)
            assert status == 401
        for header in ("Basic", "Basic ???", "Bearer YW5uOnMzY3JldA=="):
            headers = {"Authorization": header}
            assert (await registry.ask("GET", "/subjects", headers=headers))[0] == 401
        headers = {"Authorization": aiohttp.encode_basic_auth("ann", "s3cret")}
        assert await registry.ask("GET", "/subjects", headers=headers) == (200, [])


async def test_many_registering_at_once_get_one_id_for_one_schema_and_no_version_twice() -> None:
    async with registry_of(Place()) as registry:
        await registry.ask("PUT", "/config", {"compatibility": "NONE"})
        texts = [f'{{"type":"fixed","name":"F","size":{size}}}' for size in (1, 2, 3)]
        ids = await asyncio.gather(*(registry.register("s", text) for text in texts * 4))
        assert ids == ids[:3] * 4
        assert len(set(ids)) == 3
        assert await registry.get("/subjects/s/versions") == [1, 2, 3]


async def test_of_two_that_cannot_both_follow_one_is_refused_however_they_race() -> None:
    async with registry_of(Place()) as registry:
        await registry.register("s", RECORD)
        rival = WIDER.replace('"int","default":0', '"string","default":""')
        bodies = [{"schema": WIDER}, {"schema": rival}]
        answers = await asyncio.gather(
            *(registry.ask("POST", "/subjects/s/versions", body) for body in bodies)
        )
        assert sorted(status for status, _ in answers) == [200, 409]
        assert await registry.get("/subjects/s/versions") == [1, 2]


async def test_another_agent_answers_alike_at_once_and_after_a_restart() -> None:
    place = Place()
    async with registry_of(place) as one, registry_of(place, "node.name=two") as two:
        for number in range(5):
            schema_id = await one.register(f"s{number}", RECORD.replace("R", f"R{number}"))
            latest = await two.get(f"/subjects/s{number}/versions/latest")
            assert latest["id"] == schema_id
            assert len(await two.get("/subjects")) == number + 1
    async with registry_of(place) as again:
        assert len(await again.get("/subjects")) == 5


async def test_known_ids_are_given_out_while_the_log_is_away_and_the_rest_is_not() -> None:
    async with registry_of(Place()) as registry:
        known = await registry.register("s", RECORD)
        registry.running.log.down = True
        registry.running.agent._shells.log_client._barrier._deadline_s = 0.5
        assert (await registry.get(f"/schemas/ids/{known}"))["schema"] == RECORD
        assert await registry.refused("GET", "/subjects") == 50001
        registry.running.log.down = False


async def test_what_a_registration_takes_is_given_back_when_its_fate_is_known(monkeypatch) -> None:
    monkeypatch.setattr(rest_support, "PROPOSAL_SECONDS_MAX", 0.05)
    async with registry_of(Place()) as registry:
        agent = registry.running.agent
        log_client = agent._shells.log_client
        fates: list[asyncio.Future] = []

        def unanswered(_command):
            fates.append(asyncio.get_running_loop().create_future())
            return fates[-1]

        monkeypatch.setattr(log_client, "propose", unanswered)
        begun: list[Ledger] = []
        begin = Ledger.begin

        def noted(ledger, owner, size=1) -> None:
            begun.append(ledger)
            begin(ledger, owner, size)

        monkeypatch.setattr(Ledger, "begin", noted)
        error = await registry.refused("POST", "/subjects/s/versions", {"schema": RECORD})
        assert error == TIMED_OUT
        assert len(begun) == 3
        assert all(ledger._begun for ledger in begun)
        fates[0].set_exception(NotDoneError("it never will"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(ledger._begun for ledger in begun)
        assert not any(len(ledger) for ledger in begun)
