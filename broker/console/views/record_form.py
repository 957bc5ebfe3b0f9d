"""A record that somebody writes into a form: what the fields say, as bytes, and its partition. Pure.

Keys and values are null, text, JSON (which is sent as it was written, if it is any), or hexadecimal; an empty text is no
key, but a value. Headers are lines `name: text`. What browsers make CR LF of, line feeds, are line feeds again.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.schemas.json_readers import refuse_constant

FORMS: Final = ("text", "JSON", "hex", "null")
HEADERS_MAX: Final = 100
PARTITION_DIGITS_MAX: Final = 9
NAME_MAX: Final = 249


class FormError(ValueError):
    """What was written is no record; the sentence says why."""


class RecordForm(NamedTuple):
    """The fields, as they were written."""

    topic: str
    partition: str = ""
    """"": as the key says."""
    key: str = ""
    key_form: str = "text"
    value: str = ""
    value_form: str = "text"
    headers: str = ""


class NewRecord(NamedTuple):
    """What is to be produced."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def form_of(fields: Mapping[str, str]) -> RecordForm:
    """Fields that are not there are as in an empty form."""
    said = {
        name: text.replace("\r\n", "\n")
        for name in RecordForm._fields
        if isinstance(text := fields.get(name), str)
    }
    return RecordForm(**{"topic": ""} | said)


def record_of(form: RecordForm, *, partition_count: int, draw: int) -> NewRecord:
    """`draw`: any number, for a record without a key. Raises FormError."""
    is_none = form.key_form == "text" and not form.key
    key = None if is_none else _bytes("key", form.key, form.key_form)
    value = _bytes("value", form.value, form.value_form)
    return NewRecord(
        _partition(form, key, partition_count, draw), key, value, _headers(form.headers)
    )


def _bytes(part: str, text: str, form: str) -> bytes | None:
    match form:
        case "null":
            if text:
                raise FormError(f"the {part} is null, and has a text: empty it, or say what it is")
            return None
        case "text":
            return _encoded(part, text)
        case "JSON":
            try:
                json.loads(text, parse_constant=refuse_constant)
            except (ValueError, RecursionError) as error:
                raise FormError(f"the {part} is not JSON: {error}") from error
            return _encoded(part, text)
        case "hex":
            try:
                return bytes.fromhex(text)
            except ValueError as error:
                raise FormError(f"the {part} is not hexadecimal: {error}") from error
        case _:
            raise FormError(f"the {part} is none of {', '.join(FORMS)}")


def _encoded(part: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FormError(f"the {part} has half a character") from error


def _headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    found = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        name, colon, said = line.partition(":")
        if not colon or not name.strip():
            raise FormError(f'a header is a line "name: text", not "{line[:40]}"')
        found.append((name.strip(), _encoded("header", said.strip())))
    if len(found) > HEADERS_MAX:
        raise FormError(f"there are {len(found)} headers; {HEADERS_MAX} are allowed here")
    return tuple(found)


def _partition(form: RecordForm, key: bytes | None, count: int, draw: int) -> int:
    said = form.partition.strip()
    if not said:
        return draw % count if key is None else partition_of_key(key, count)
    is_number = said.isascii() and said.isdigit() and len(said) <= PARTITION_DIGITS_MAX
    if not is_number or int(said) >= count:
        raise FormError(f"the partition is a number from 0 to {count - 1}, or nothing")
    return int(said)


def partition_of_key(key: bytes, count: int) -> int:
    """As Kafka's Java client has it (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def murmur2(data: bytes) -> int:
    """Of 32 bits, as Kafka's clients have it (org.apache.kafka.common.utils.Utils.murmur2), without a sign."""
    mixer, mask = 0x5BD1E995, 0xFFFFFFFF
    found = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * mixer & mask
        part = (part ^ part >> 24) * mixer & mask
        found = (found * mixer & mask) ^ part
    if whole < len(data):
        found ^= int.from_bytes(data[whole:], "little")
        found = found * mixer & mask
    found = (found ^ found >> 13) * mixer & mask
    return found ^ found >> 15
