"""Layouts: values come back, and nothing else is written or read."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, NamedTuple

import pytest

from coordinator.commands.encoding import CodecError
from coordinator.commands.layout import (
    Int16,
    Int32,
    Int64,
    Layout,
    UInt16,
    UInt31,
    UInt32,
    UInt63,
    at_most,
    bits_of,
    byte_of,
    converted,
    fields_of,
    fixed,
    layout_of,
    layouts_of,
    number,
)
from protocol.types import Incarnation, Position, TopicId


class Color(IntEnum):
    RED = 1
    BLUE = 5


class Row(NamedTuple):
    name: str
    offset: Int64


@dataclass(frozen=True, slots=True)
class Whole:
    first: UInt31
    rows: Annotated[tuple[Row, ...], at_most(2)]
    last: bool = False


LAYOUTS: dict[str, Layout[Any]] = {
    name: layout_of(hint)
    for name, hint in {
        "UInt16": UInt16,
        "UInt31": UInt31,
        "UInt32": UInt32,
        "UInt63": UInt63,
        "from -1 to 9": Annotated[int, number(9, least=-1)],
        "Int16": Int16,
        "Int32": Int32,
        "Int64": Int64,
        "Position": Position,
        "Incarnation": Incarnation,
        "bool": bool,
        "str": str,
        "bytes": bytes,
        "TopicId": TopicId,
        "enum": Color,
        "enum in a byte": Annotated[Color, byte_of(Color)],
        "bits": Annotated[tuple[Color, ...], bits_of([*Color])],
        "two bytes": Annotated[bytes, fixed(2, "a pair")],
        "str or None": str | None,
        "UInt31 or None": UInt31 | None,
        "strings": tuple[str, ...],
        "pair": tuple[str, bool],
        "row": Row,
        "dataclass": Whole,
    }.items()
}


def written(name: str, value: object) -> bytes:
    out = bytearray()
    LAYOUTS[name].put(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("UInt16", 0xFFFF, "ffff03"),
        ("UInt31", 0, "00"),
        ("UInt31", 2**31 - 1, "ffffffff07"),
        ("UInt32", 2**32 - 1, "ffffffff0f"),
        ("UInt63", 2**63 - 1, "ffffffffffffffff7f"),
        ("from -1 to 9", -1, "00"),
        ("from -1 to 9", 9, "0a"),
        ("Int16", -(2**15), "ffff03"),
        ("Int32", 2**31 - 1, "feffffff0f"),
        ("Int64", -1, "01"),
        ("Int64", -(2**63), "ffffffffffffffffff01"),
        ("Position", Position(5), "05"),
        ("Incarnation", Incarnation(128), "8001"),
        ("bool", True, "01"),
        ("str", "ß", "02c39f"),
        ("bytes", b"ab", "026162"),
        ("TopicId", TopicId(bytes(16)), "00" * 16),
        ("enum", Color.BLUE, "05"),
        ("enum in a byte", Color.RED, "01"),
        ("bits", (Color.RED, Color.BLUE), "22"),
        ("bits", (), "00"),
        ("two bytes", b"ab", "6162"),
        ("str or None", None, "00"),
        ("str or None", "", "0100"),
        ("UInt31 or None", 3, "0103"),
        ("strings", ("a", ""), "02016100"),
        ("pair", ("a", False), "016100"),
        ("row", Row("a", 1), "016102"),
        ("dataclass", Whole(1, (Row("a", 1), Row("", 0)), last=True), "010201610200" + "0001"),
    ],
)
def test_values_have_these_bytes_and_come_back(name: str, value: object, data: str):
    assert written(name, value).hex() == data
    found = LAYOUTS[name].read(b"\xff" + bytes.fromhex(data), 1)
    assert found == (value, 1 + len(data) // 2)
    assert type(found[0]) is type(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UInt31", -1),
        ("UInt31", 2**31),
        ("UInt63", 2**63),
        ("from -1 to 9", -2),
        ("from -1 to 9", 10),
        ("Int16", 2**15),
        ("Int16", -(2**15) - 1),
        ("Int64", 2**63),
        ("str", "\ud800"),
        ("TopicId", TopicId(b"short")),
        ("enum", 2),
        ("enum in a byte", 0),
        ("bits", (Color.BLUE, Color.RED)),
        ("bits", (Color.RED, Color.RED)),
        ("bits", (2,)),
        ("two bytes", b"abc"),
        ("row", Row("a", 2**63)),
        ("dataclass", Whole(0, (Row("", 0),) * 3)),
    ],
)
def test_values_out_of_bounds_are_not_written(name: str, value: object):
    with pytest.raises(CodecError):
        written(name, value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("UInt16", "808004"),
        ("UInt31", "8080808008"),
        ("from -1 to 9", "0b"),
        ("Int16", "808004"),
        ("Int64", "8080808080808080808002"),
        ("Int64", "80808080808080808002"),
        ("bool", "02"),
        ("str or None", "02"),
        ("enum", "02"),
        ("enum in a byte", "8100"),
        ("bits", "04"),
        ("bits", "01"),
        ("bits", "40"),
        ("two bytes", "61"),
        ("strings", "7f00"),
        ("dataclass", "0003000000000000" + "00"),
    ],
)
def test_bytes_out_of_bounds_are_not_read(name: str, data: str):
    with pytest.raises(CodecError):
        LAYOUTS[name].read(bytes.fromhex(data), 0)


@pytest.mark.parametrize("hint", [int, float, list[str], dict[str, int], tuple[int, ...]])
def test_a_type_that_does_not_say_how_it_is_written_has_no_layout(hint: Any):
    with pytest.raises(TypeError, match="name a layout"):
        layout_of(hint)


def test_fields_are_written_in_the_order_asked_for_and_come_back_in_their_own():
    layout = fields_of(Whole, **layouts_of(Whole, ("last", "first", "rows")))
    out = bytearray()
    layout.put(out, Whole(3, (), last=True))
    assert out.hex() == "010300"
    assert layout.read(bytes(out), 0) == (Whole(3, (), last=True), 3)


def test_an_order_that_leaves_a_field_out_is_refused():
    with pytest.raises(AssertionError, match="Whole has"):
        fields_of(Whole, **layouts_of(Whole, ("last", "first")))


def test_a_layout_named_by_a_field_goes_before_its_type():
    backwards = Layout[str](
        lambda out, value: out.extend(value[::-1].encode() + b"\0"),
        lambda data, at: (data[at : data.index(0, at)].decode()[::-1], data.index(0, at) + 1),
    )
    assert layout_of(Annotated[str, backwards]) is backwards
    assert layout_of(tuple[Annotated[str, backwards], bool]).read(b"cba\0\1", 0) == (
        ("abc", True),
        5,
    )


@dataclass(slots=True)
class Named:
    name: str
    offsets: dict[UInt63, UInt63]


def test_a_dict_keeps_its_order():
    out = bytearray()
    layout_of(Named).put(out, Named("a", {7: 1, 3: 2}))
    assert out.hex() == "0161" + "0207010302"
    found, at = layout_of(Named).read(bytes(out), 0)
    assert (found.name, [*found.offsets.items()], at) == ("a", [(7, 1), (3, 2)], len(out))


def test_a_field_that_is_left_out_is_refused():
    with pytest.raises(AssertionError, match="offsets"):
        fields_of(Named, name=layout_of(str))


def test_a_value_may_lie_in_bytes_as_another():
    names = converted(layout_of(tuple[str, ...]), laid=sorted, made=frozenset)
    out = bytearray()
    names.put(out, frozenset({"b", "a"}))
    assert out.hex() == "02" + "0161" + "0162"
    assert names.read(bytes(out), 0) == (frozenset({"a", "b"}), len(out))
