"""Where a $ref of a JSON Schema leads."""

import json

import pytest

from protocol.schemas import SchemaError
from protocol.schemas.json_schema import parse_json

OTHER = {
    "$id": "http://x.org/s/other.json",
    "definitions": {"a b": {"type": "string"}, "list": [True, {"type": "null"}]},
    "properties": {"p": {"$anchor": "here", "type": "number"}},
}
THIS = {
    "$id": "http://x.org/s/this.json",
    "$defs": {"x/y~z": {"type": "integer"}, "inner": {"$id": "#old", "type": "array"}},
}


@pytest.mark.parametrize(
    ("ref", "kind", "document"),
    [
        ("#/$defs/x~1y~0z", "integer", ""),
        ("#/%24defs/x~1y~0z", "integer", ""),
        ("#old", "array", ""),
        ("http://x.org/s/this.json#/$defs/inner", "array", ""),
        ("o.json#/definitions/a%20b", "string", "o.json"),
        ("o.json#/definitions/list/1", "null", "o.json"),
        ("http://x.org/s/other.json#here", "number", "o.json"),
        ("other.json#here", "number", "o.json"),
    ],
)
def test_a_ref_leads_to_a_place_by_pointer_anchor_id_or_name(
    ref: str, kind: str, document: str
) -> None:
    documents = parse_json(json.dumps(THIS), {"o.json": json.dumps(OTHER)})
    found, where = documents.follow(ref, "")
    assert (found["type"], where) == (kind, document)


def test_a_ref_within_another_document_is_of_that_document() -> None:
    documents = parse_json(json.dumps(THIS), {"o.json": json.dumps(OTHER)})
    assert documents.follow("#here", "o.json")[0]["type"] == "number"
    with pytest.raises(SchemaError, match="no such anchor"):
        documents.follow("#here", "")


@pytest.mark.parametrize(
    ("ref", "sentence"),
    [
        ("p.json", "leads nowhere: is it among the references"),
        ("#/$defs/none", "leads nowhere"),
        ("o.json#/definitions/list/2", "leads nowhere"),
    ],
)
def test_a_ref_to_what_is_not_there_is_refused(ref: str, sentence: str) -> None:
    documents = parse_json(json.dumps(THIS), {"o.json": json.dumps(OTHER)})
    with pytest.raises(SchemaError, match=sentence):
        documents.follow(ref, "")


@pytest.mark.parametrize("text", ["", "{", "7", '"x"', "[]", "[" * 5000 + "]" * 5000])
def test_what_is_no_json_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match=r"\w"):
        parse_json(text, {})
