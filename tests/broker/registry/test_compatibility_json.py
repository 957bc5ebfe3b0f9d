"""Which changes of a JSON Schema are harmless: a table; and that no harmless one lies.

The rows say of what Confluent's registry answers to changes of each keyword.
"""

import json

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker.registry.canonical import canonical_json
from broker.registry.compatibility_json import HARMLESS, json_changes, json_differences
from broker.registry.json_nodes import read_json
from protocol.schemas import SchemaError

NUMBER, TEXT = {"type": "number"}, {"type": "string"}
OPEN = {"type": "object", "properties": {"a": TEXT}}
CLOSED = OPEN | {"additionalProperties": False}
PARTLY = OPEN | {"additionalProperties": TEXT}
TUPLE = {"type": "array", "items": [TEXT]}


def object_of(**properties: object) -> dict:
    return {"type": "object", "properties": properties}


def closed(schema: dict) -> dict:
    return schema | {"additionalProperties": False}


AB = object_of(a=TEXT, b=NUMBER)
REF = {"$ref": "#/definitions/d"}

# What | before | after | the changes; those after "!" are the harmful ones.
TABLE = [
    ("nothing", OPEN, OPEN, ""),
    ("a title and more", TEXT, TEXT | {"title": "t", "description": "d", "default": ""},
     "TITLE_CHANGED # DESCRIPTION_CHANGED # DEFAULT_CHANGED #"),
    ("anything to something", {}, TEXT, "! TYPE_CHANGED #"),
    ("something to anything", TEXT, {}, ""),
    ("something to true", TEXT, True, ""),
    ("nothing at all to something", False, TEXT, ""),
    ("text to number", TEXT, NUMBER, "! TYPE_CHANGED #"),
    ("integer to number", {"type": "integer"}, NUMBER, "TYPE_EXTENDED #"),
    ("number to integer", NUMBER, {"type": "integer"}, "! TYPE_NARROWED #"),
    ("bytes by Connect", TEXT | {"connect.type": "bytes"}, NUMBER | {"connect.type": "bytes"}, ""),
    ("a bound comes", TEXT, TEXT | {"maxLength": 3}, "! MAX_LENGTH_ADDED #/maxLength"),
    ("a bound goes", TEXT | {"maxLength": 3}, TEXT, "MAX_LENGTH_REMOVED #/maxLength"),
    ("a bound widens", TEXT | {"maxLength": 3, "minLength": 2}, TEXT | {"maxLength": 4, "minLength": 1},
     "MAX_LENGTH_INCREASED #/maxLength MIN_LENGTH_DECREASED #/minLength"),
    ("a bound narrows", NUMBER | {"maximum": 3}, NUMBER | {"maximum": 2.5},
     "! MAXIMUM_DECREASED #/maximum"),
    ("an exclusive bound narrows", NUMBER | {"exclusiveMinimum": 1}, NUMBER | {"exclusiveMinimum": 2},
     "! EXCLUSIVE_MINIMUM_INCREASED #/exclusiveMinimum"),
    ("multiples of less", NUMBER | {"multipleOf": 0.3}, NUMBER | {"multipleOf": 0.1},
     "MULTIPLE_OF_REDUCED #/multipleOf"),
    ("multiples of more", NUMBER | {"multipleOf": 2}, NUMBER | {"multipleOf": 4},
     "! MULTIPLE_OF_EXPANDED #/multipleOf"),
    ("multiples of another", NUMBER | {"multipleOf": 2}, NUMBER | {"multipleOf": 3},
     "! MULTIPLE_OF_CHANGED #/multipleOf"),
    ("a pattern comes", TEXT, TEXT | {"pattern": "a"}, "! PATTERN_ADDED #/pattern"),
    ("a pattern goes", TEXT | {"pattern": "a"}, TEXT, "PATTERN_REMOVED #/pattern"),
    ("an enum gets a value", {"enum": ["a"]}, {"enum": ["a", "b"]}, "ENUM_ARRAY_EXTENDED #/enum"),
    ("an enum loses a value", {"enum": ["a", "b"]}, {"enum": ["a"]}, "! ENUM_ARRAY_NARROWED #/enum"),
    ("an enum changes", {"enum": ["a"]}, {"enum": ["b"]}, "! ENUM_ARRAY_CHANGED #/enum"),
    ("a constant changes", {"const": 1}, {"const": 2}, "! ENUM_ARRAY_CHANGED #/const"),
    # Objects.
    ("an optional property of an open object", OPEN, AB,
     "! OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"),
    ("one that allows anything", OPEN, object_of(a=TEXT, b={}),
     "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"),
    ("a required property of an open object", OPEN, AB | {"required": ["b"]},
     "! REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"),
    ("an optional property of a closed object", CLOSED, closed(AB),
     "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b"),
    ("a required property of a closed object", CLOSED, closed(AB) | {"required": ["b"]},
     "! REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b"),
    ("such a one with a default", CLOSED,
     closed(object_of(a=TEXT, b=NUMBER | {"default": 0})) | {"required": ["b"]},
     "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b"),
    ("a property of an open object goes", AB, OPEN,
     "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/b"),
    ("a property of a closed object goes", closed(AB), CLOSED,
     "! PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b"),
    ("one that could never be", closed(object_of(a=TEXT, b=False)), CLOSED,
     "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b"),
    ("one that other properties look like", PARTLY, PARTLY | {"properties": {"a": TEXT, "b": TEXT}},
     ("PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/b"
     " OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b")),
    ("one that they do not", PARTLY, PARTLY | {"properties": {"a": TEXT, "b": NUMBER}},
     ("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b"
     " ! TYPE_CHANGED #/properties/b"
     " PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/b")),
    ("an object opens", CLOSED, OPEN, "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties"),
    ("an object closes", OPEN, CLOSED, "! ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    ("an object closes partly", OPEN, PARTLY,
     "! ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"),
    ("a property becomes required", OPEN, OPEN | {"required": ["a"]},
     "! REQUIRED_ATTRIBUTE_ADDED #/required/a"),
    ("a property becomes optional", OPEN | {"required": ["a"]}, OPEN,
     "REQUIRED_ATTRIBUTE_REMOVED #/required/a"),
    ("a property changes its type", object_of(a=object_of(b=TEXT)), object_of(a=object_of(b=NUMBER)),
     "! TYPE_CHANGED #/properties/a/properties/b"),
    ("a dependency comes", OPEN, OPEN | {"dependencies": {"a": ["b"]}},
     "! DEPENDENCY_ARRAY_ADDED #/dependencies/a"),
    ("a dependency shrinks", OPEN | {"dependentRequired": {"a": ["b", "c"]}},
     OPEN | {"dependentRequired": {"a": ["b"]}}, "DEPENDENCY_ARRAY_NARROWED #/dependencies/a"),
    ("a dependency on a schema goes", OPEN | {"dependentSchemas": {"a": AB}}, OPEN,
     "DEPENDENCY_SCHEMA_REMOVED #/dependencies/a"),
    # Arrays.
    ("items change", {"type": "array", "items": TEXT}, {"type": "array", "items": NUMBER},
     "! TYPE_CHANGED #/items"),
    ("an item more in an open tuple", TUPLE, {"type": "array", "items": [TEXT, NUMBER]},
     "! ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"),
    ("an item more in a closed tuple", TUPLE | {"additionalItems": False},
     {"type": "array", "items": [TEXT, NUMBER], "additionalItems": False},
     "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1"),
    ("an item less in a tuple of 2020", {"type": "array", "prefixItems": [TEXT, NUMBER], "items": False},
     {"type": "array", "prefixItems": [TEXT], "items": False},
     "! ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"),
    ("items must differ", TUPLE, TUPLE | {"uniqueItems": True}, "! UNIQUE_ITEMS_ADDED #/uniqueItems"),
    # Combinations.
    ("a type becomes nullable", TEXT, {"type": ["null", "string"]}, "SUM_TYPE_EXTENDED #"),
    ("a type becomes obligatory", {"type": ["null", "string"]}, TEXT, "! TYPE_CHANGED #"),
    ("one of more", {"oneOf": [TEXT, NUMBER]}, {"oneOf": [NUMBER, {"type": "null"}, TEXT]},
     "SUM_TYPE_EXTENDED #"),
    ("one of less", {"oneOf": [TEXT, NUMBER]}, {"oneOf": [TEXT]}, "! SUM_TYPE_NARROWED #"),
    ("all of more", {"allOf": [OPEN]}, {"allOf": [OPEN, NUMBER]}, "! PRODUCT_TYPE_EXTENDED #"),
    ("all becomes any", {"allOf": [TEXT, NUMBER]}, {"anyOf": [TEXT, NUMBER]},
     "COMBINED_TYPE_EXTENDED #"),
    ("any becomes all", {"anyOf": [TEXT, NUMBER]}, {"allOf": [TEXT, NUMBER]},
     "! COMBINED_TYPE_CHANGED #"),
    ("a part changes", {"oneOf": [TEXT, NUMBER]}, {"oneOf": [TEXT, {"type": "null"}]},
     "! COMBINED_TYPE_SUBSCHEMAS_CHANGED #"),
    ("not: less is forbidden", {"not": NUMBER}, {"not": {"type": "integer"}},
     "NOT_TYPE_NARROWED #/not"),
    ("not: more is forbidden", {"not": {"type": "integer"}}, {"not": NUMBER},
     "! NOT_TYPE_EXTENDED #/not"),
    # References.
    ("a definition changes", object_of(a=REF) | {"definitions": {"d": TEXT}},
     object_of(a=REF) | {"definitions": {"d": NUMBER}}, "! TYPE_CHANGED #/properties/a"),
    ("a definition that nobody uses", TEXT | {"definitions": {"d": TEXT}}, TEXT, ""),
    ("a list of itself", object_of(v=TEXT, next={"$ref": "#"}),
     object_of(v=NUMBER, next={"$ref": "#"}), "! TYPE_CHANGED #/properties/v"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "wanted"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
def test_changes_are_found_and_judged(before: object, after: object, wanted: str) -> None:
    old, new = read_json(json.dumps(before)), read_json(json.dumps(after))
    harmless, _, harmful = wanted.partition("!") if "!" in wanted else (wanted, "", "")
    found = {f"{each.kind} #{each.path}" for each in json_changes(original=old, update=new)}
    words = (harmless + harmful).split()
    assert found == {" ".join(pair) for pair in zip(words[::2], words[1::2], strict=True)}
    reasons = json_differences(reader=new, writer=old)
    said = [f"{each.kind} {each.path}" for each in reasons]
    assert " ".join(said) == harmful.strip()
    assert all("{" not in each.message(reader="new", writer="old")[1:-1] for each in reasons)


def test_references_are_other_documents_by_name_by_id_or_beside_this_one() -> None:
    other = json.dumps(
        {"$id": "http://x.org/s/other.json", "definitions": {"d": {"type": "string"}}}
    )
    for ref in ("other.json#/definitions/d", "http://x.org/s/other.json#/definitions/d"):
        text = json.dumps({"$id": "http://x.org/s/this.json", "properties": {"a": {"$ref": ref}}})
        old = read_json(text, {"other.json": other})
        new = read_json(text, {"other.json": other.replace('"string"', '"number"')})
        (found,) = json_differences(reader=new, writer=old)
        assert (found.kind, found.path) == ("TYPE_CHANGED", "#/properties/a")
        with pytest.raises(SchemaError, match="leads nowhere"):
            read_json(text)


@pytest.mark.parametrize(
    "schema",
    [
        "[]", "7", "{", '"x"', '{"type": "text"}', '{"type": []}', '{"type": 7}',
        '{"enum": 1}', '{"oneOf": []}', '{"anyOf": {}}', '{"allOf": [7]}', '{"not": 7}',
        '{"properties": []}', '{"properties": {"a": 7}}', '{"type":"object","required": "a"}',
        '{"patternProperties": {"(": {}}}', '{"items": 7}', '{"prefixItems": {}}',
        '{"type":"string","maxLength": "3"}', '{"type":"string","pattern": 7}',
        '{"$ref": "#/definitions/none"}', '{"$ref": "http://x.org/none.json"}', '{"$ref": "#a"}',
        '{"dependencies": []}', '{"additionalProperties": 7}', "[" * 5000 + "]" * 5000,
        '{"not":' * 300 + "{}" + "}" * 300,
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused_in_a_sentence(schema: str) -> None:
    with pytest.raises(SchemaError, match=r"\w"):
        read_json(schema)


def test_references_that_only_lead_to_themselves_are_refused() -> None:
    ring = read_json('{"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#"}}}')
    with pytest.raises(SchemaError, match="itself"):
        json_differences(reader=ring, writer=ring)


@pytest.mark.parametrize("kind", ["parts", "patterns"])
def test_schemas_that_multiply_are_refused_not_pondered(kind: str) -> None:
    if kind == "parts":
        before = after = {"oneOf": [{"const": number} for number in range(300)]}
    else:
        after = {
            "type": "object",
            "patternProperties": {f"(a|b)*x{number}": {} for number in range(300)},
        }
        before = after | {"properties": {f"{'a' * 30}{number}": {} for number in range(300)}}
    old, new = read_json(json.dumps(before)), read_json(json.dumps(after))
    with pytest.raises(SchemaError, match="involved"):
        json_differences(reader=new, writer=old)


def test_patterns_of_properties_cover_those_that_they_mean() -> None:
    def patterned(*names: str) -> dict:
        return {
            "type": "object",
            "properties": dict.fromkeys(names, TEXT),
            "patternProperties": {"^x_": TEXT, "^(?=y)": TEXT},
            "additionalProperties": NUMBER,
        }

    # RE2 has no look-ahead, so y_a is taken for an additional property: refused, to be safe.
    for name, kinds in (("x_a", []), ("y_a", ["TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED"])):
        old, new = read_json(json.dumps(patterned())), read_json(json.dumps(patterned(name)))
        found = [each.kind for each in json_differences(reader=new, writer=old)]
        assert [kind.removesuffix("_BY_PARTIALLY_OPEN_CONTENT_MODEL") for kind in found] == kinds


def test_canonical_text_keeps_the_order_unless_it_is_normalized() -> None:
    text = '{ "type" : "object",\n "properties" : {"b" : {}, "a": {"title": "é"}} }'
    kept = '{"type":"object","properties":{"b":{},"a":{"title":"é"}}}'
    assert canonical_json(text) == kept
    assert canonical_json(text, normalize=True) == (
        '{"properties":{"a":{"title":"é"},"b":{}},"type":"object"}'
    )


# Soundness: what was valid stays valid under a schema that counts as compatible.

_LEAVES = st.sampled_from(
    [{}, True, {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "null"},
     {"type": ["null", "string"]}, {"type": "string", "maxLength": 1}, {"minimum": 1, "type": "number"},
     {"enum": ["a", 1]}, {"const": "a"}, {"type": "boolean"}]
)  # fmt: skip
_SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda properties, required, extra: {
                "type": "object",
                "properties": properties,
                "required": sorted(required),
            }
            | extra,
            st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            st.sets(st.sampled_from("ab"), max_size=1),
            st.one_of(st.just({}), st.builds(lambda more: {"additionalProperties": more},
                                             st.one_of(st.just(False), inner))),
        ),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda criterion, parts: {criterion: parts},
            st.sampled_from(["anyOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=2),
        ),
    ),
    max_leaves=4,
)  # fmt: skip
_VALUES = st.recursive(
    st.sampled_from([None, True, "a", "bb", 0, 1, 1.5]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=1), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=150)
@given(before=_SCHEMAS, after=_SCHEMAS, values=st.lists(_VALUES, min_size=10, max_size=20))
def test_what_was_valid_stays_valid_under_a_schema_that_counts_as_compatible(
    before: object, after: object, values: list
) -> None:
    old, new = read_json(json.dumps(before)), read_json(json.dumps(after))
    changes = json_changes(original=old, update=new)
    assume(all(change.kind in HARMLESS for change in changes))
    # What is required and no property is not looked at, as in Confluent's.
    assume('"required": ["' not in json.dumps(after))
    was, now = jsonschema.Draft7Validator(before), jsonschema.Draft7Validator(after)
    for value in values:
        assert not was.is_valid(value) or now.is_valid(value), (before, after, value)


@settings(deadline=None, max_examples=60)
@given(schema=_SCHEMAS)
def test_a_schema_is_compatible_with_itself(schema: object) -> None:
    text = json.dumps(schema)
    assert json_differences(writer=read_json(text), reader=read_json(text)) == []
