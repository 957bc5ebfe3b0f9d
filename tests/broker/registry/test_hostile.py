"""What no honest client sends: refused with a code that clients know, never an error of the agent."""

import io
import json
from typing import Any

import aiohttp
import pytest

from tests.broker.registry.client import RECORD, registry_of
from tests.kit.sockets import Place

pytestmark = pytest.mark.real_loop

DIGITS = "9" * 5000
REGISTER = "/subjects/s/versions"


def avro(default: str, kind: str = "int") -> str:
    """A body whose schema has a field with this default."""
    field = f'{{"name":"a","type":"{kind}","default":{default}}}'
    return json.dumps({"schema": f'{{"type":"record","name":"R","fields":[{field}]}}'})


def schema(text: str, kind: str) -> str:
    return json.dumps({"schema": text, "schemaType": kind})


def json_schema(text: str) -> str:
    return schema(text, "JSON")


def proto(text: str) -> str:
    return schema(text, "PROTOBUF")


INVALID = {
    "a default of Infinity": avro("Infinity"),
    "a default of minus Infinity": avro("-Infinity", "long"),
    "a default of NaN": avro("NaN", "long"),
    "a double that is NaN": avro("NaN", "double"),
    "a double without end": avro("1e999", "double"),
    "a number of 5,000 digits": avro(DIGITS),
    "a deep default": avro("[" * 5000 + "]" * 5000),
    "deep types": schema('{"type":"array","items":' * 3000 + '"int"' + "}" * 3000, "AVRO"),
    "a kind that is a list": json.dumps({"schema": RECORD, "schemaType": []}),
    "a kind that is an object": json.dumps({"schema": RECORD, "schemaType": {"a": 1}}),
    "a kind that is a number": json.dumps({"schema": RECORD, "schemaType": 1}),
    "half a character": json.dumps({"schema": '{"type":"int","a":"\\ud800"}'}),
    "half a character in a reference": json.dumps(
        {"schema": RECORD, "references": [{"name": "\ud800", "subject": "a", "version": 1}]}
    ),
    "references that are none": json.dumps({"schema": RECORD, "references": {"a": 1}}),
    "a reference to a list": json.dumps({"schema": RECORD, "references": [[]]}),
    "repeated too often": json_schema(f'{{"patternProperties":{{"a{{{DIGITS[:9]}{DIGITS}}}":{{}}}}}}'),
    "repeated much too often": json_schema('{"patternProperties":{"a{99999999999}":{}}}'),
    "an expression that is none": json_schema('{"patternProperties":{"(":{}}}'),
    "NaN as a bound": json_schema('{"maximum":NaN}'),
    "a pointer of many digits": json_schema(f'{{"$ref":"#/anyOf/{DIGITS}","anyOf":[{{}}]}}'),
    "deep JSON": json_schema('{"not":' * 3000 + "{}" + "}" * 3000),
    "enum and nothing in it": json_schema('{"enum":1}'),
    "more alternatives than anybody has": json_schema(f'{{"anyOf":[{",".join(["{}"] * 1001)}]}}'),
    "extensions beyond all numbers": proto(f"message M {{ extensions {1 << 40} to max; }}"),
    "a field of 5,000 digits": proto(f"message M {{ optional int32 a = {DIGITS}; }}"),
    "a deep message": proto("message M { " * 3000 + "}" * 3000),
    "a file that ends in a comment": proto("message M { /* "),
}  # fmt: skip


@pytest.mark.parametrize("body", INVALID.values(), ids=INVALID)
async def test_what_is_no_schema_is_an_invalid_schema(body: str) -> None:
    async with registry_of(Place()) as registry:
        for path in (REGISTER, "/compatibility" + REGISTER):
            answer = await raw(registry, "POST", path, body.encode())
            if path == REGISTER or answer[0] != 200:
                assert (answer[0], answer[1]["error_code"]) == (422, 42201)
        assert await registry.get("/subjects") == []


NO_OBJECT = {
    "nothing": b"",
    "an array": b"[]",
    "half an object": b'{"schema": "a"',
    "something behind it": b"{} {}",
    "bytes that are no text": b'{"schema": "\xff"}',
    "a deep array": b'{"references": ' + b"[" * 200_000,
    "a number of 5,000 digits": b'{"id": ' + DIGITS.encode() + b"}",
    "a megabyte of empty arrays": b'{"references": [' + b"[]," * 400_000 + b"[]]}",
    "many members": b"{" + b",".join(b'"%d": 1' % each for each in range(100)) + b"}",
    "another encoding": '{"schema": "a"}'.encode("utf-16"),
}


@pytest.mark.parametrize("body", NO_OBJECT.values(), ids=NO_OBJECT)
async def test_a_body_that_is_no_object_is_unprocessable(body: bytes) -> None:
    async with registry_of(Place()) as registry:
        for method, path in (("POST", REGISTER), ("PUT", "/config"), ("PUT", "/mode/s")):
            status, answer = await raw(registry, method, path, body)
            assert (status, answer["error_code"]) == (422, 422)


HEADERS = [
    ("GET", f"/schemas/ids/{DIGITS}", {}, 404),
    ("GET", f"/subjects/s/versions/{DIGITS}", {}, 42202),
    ("GET", f"/subjects?limit={DIGITS}", {}, 422),
    ("GET", "/schemas/guids/%00", {}, 40403),
    ("GET", "/schemas/guids/" + "f" * 5000, {}, 40403),
    ("GET", "/subjects/%ff%fe/versions", {}, 40401),
    ("GET", "/subjects/%ED%A0%80/versions", {}, 40401),
    ("GET", "/subjects/%00/versions", {}, 42208),
    ("DELETE", "/config/%ff", {}, 40401),
    ("PUT", "/config", {"Content-Type": "application/json; charset=none"}, 415),
    ("PUT", "/config", {"Content-Type": "application/json; charset="}, 415),
]


@pytest.mark.parametrize(("method", "path", "headers", "code"), HEADERS, ids=range(len(HEADERS)))
async def test_an_address_or_a_header_that_makes_no_sense_is_refused(
    method: str, path: str, headers: dict[str, str], code: int
) -> None:
    async with registry_of(Place()) as registry:
        body = b'{"compatibility": "FULL"}' if method == "PUT" else None
        status, answer = await raw(registry, method, path, body, headers)
        assert (status, answer["error_code"]) == (int(str(code)[:3]), code)


async def test_half_a_character_in_a_message_does_not_spoil_the_answer() -> None:
    async with registry_of(Place()) as registry:
        body = b'{"compatibility": "FULL", "\\ud800": 1}'
        status, answer = await raw(registry, "PUT", "/config", body)
        assert (status, answer["error_code"]) == (422, 42203)


async def test_a_password_that_is_no_text_is_no_password() -> None:
    users = "schema.registry.basic.auth.user.info=ann:s3cret"
    async with registry_of(Place(), users) as registry:
        for said in ("Basic é", "Basic /w==", "Basic YW5uOu2ggA=="):
            told = await raw(registry, "GET", "/subjects", None, {"Authorization": said})
            assert told[0] == 401


HARMLESS = [
    ('{"multipleOf":1e300}', '{"multipleOf":1e-300}'),
    ('{"multipleOf":%s}' % ("9" * 4000), '{"multipleOf":3}'),
    ('{"type":"object","dependentRequired":"a"}', '{"type":"object","dependentRequired":[1]}'),
    ('{"type":"object","dependencies":{"a":[[]]}}', '{"type":"object","dependencies":{"a":[]}}'),
    ('{"maximum":1%s}' % ("0" * 400), '{"maximum":1e300}'),
]


@pytest.mark.parametrize("texts", HARMLESS, ids=range(len(HARMLESS)))
async def test_schemas_with_strange_numbers_and_names_are_compared(texts: tuple[str, str]) -> None:
    async with registry_of(Place()) as registry:
        for text in (*texts, texts[0]):
            status, _ = await raw(registry, "POST", REGISTER, json_schema(text).encode())
            assert status in (200, 409)


async def raw(
    registry: Any,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Status and JSON of the answer to a request whose bytes are these."""
    typed = {"Content-Type": "application/json"} if body is not None else {}
    data = None if body is None else io.BytesIO(body)
    url = aiohttp.client.URL(registry.url + path, encoded=True)
    async with registry.session.request(
        method, url, data=data, headers=typed | (headers or {})
    ) as response:
        return response.status, json.loads(await response.read())
