"""What a setting of ours may be: words into values, from numbers to addresses, users and tokens. Pure.

Every function that reads a text raises ValueError with the end of a sentence; none repeats a secret.
"""

import re
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from broker.config import listeners, values
from broker.config.addresses import Address, NamedAddress
from broker.config.first_users import first_users

T = TypeVar("T")

_LISTENER: Final = re.compile(
    r"(?:(?P<name>[A-Za-z][A-Za-z0-9_-]*)://)?"
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.*-]*)(?::(?P<port>[0-9]{1,5}))?"
)
_HTTP_LISTENER: Final = re.compile(
    r"(https?)://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.*-]*):([0-9]{1,5})/?"
)
_ENDPOINT: Final = re.compile(
    r"https?://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?(/[!-~]*)?"
)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HOST_NAME: Final = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")


def addresses(text: str) -> tuple[NamedAddress, ...]:
    """`host:port` or `NAME://host:port`, several with commas."""
    found: list[NamedAddress] = []
    for item in _items(text):
        match = _LISTENER.fullmatch(item)
        port = int(match["port"]) if match is not None and match["port"] else None
        if match is None or (port is not None and port > 65535):
            raise ValueError(f'"{item}" is not an address (examples: host:9092, NAME://host:9092)')
        name = (match["name"] or "PLAINTEXT").upper()
        if any(address.name == name for address in found):
            raise ValueError(f"two listeners are called {name}; put names before: NAME://host:9092")
        found.append(NamedAddress(name, match["host"].strip("[]"), port))
    return tuple(found)


def http_address(text: str) -> Address | None:
    """`host:port`, or `https://host:port` with TLS; None is `off`."""
    if text.strip().lower() in ("", "off"):
        return None
    scheme, separator, rest = text.strip().partition("://")
    secure = bool(separator) and scheme.lower() == "https"
    if not separator or scheme.lower() not in ("http", "https"):
        rest = text
    (address,) = addresses(rest) or (NamedAddress("", "", None),)
    if address.port is None:
        raise ValueError(f'"{text}" has no port (example: 127.0.0.1:9094)')
    return Address(address.host, address.port, secure)


def http_endpoint(text: str) -> str | None:
    """`http://host:port` or `https://…`, with a path or without."""
    if not text.strip():
        return None
    if not _ENDPOINT.fullmatch(text.strip()):
        raise ValueError(f'"{text}" is not an address (example: http://collector:4318)')
    return text.strip()


def http_headers(text: str) -> tuple[tuple[str, str], ...]:
    """`name=value`, several with commas, as OTEL_EXPORTER_OTLP_HEADERS has them."""
    found = []
    for item in _items(text):
        name, equals, value = item.partition("=")
        if not (equals and _HEADER_NAME.fullmatch(name.strip())) or not value.isprintable():
            raise ValueError("is not name=value, several with commas")
        found.append((name.strip(), value.strip()))
    return tuple(found)


def http_listeners(text: str) -> tuple[Address, ...]:
    """Confluent's `listeners`: `http://0.0.0.0:8081`, several with commas."""
    if text.strip().lower() in ("", "off"):
        return ()
    found = []
    for item in text.split(","):
        match = _HTTP_LISTENER.fullmatch(item.strip())
        if match is None or int(match[3]) > 65535:
            raise ValueError(f'"{item.strip()}" is not an address (example: http://0.0.0.0:8081)')
        found.append(Address(match[2].strip("[]"), int(match[3]), match[1] == "https"))
    return tuple(found)


def host_names(text: str) -> tuple[str, ...]:
    """Names as Host headers have them, `*.name` and `*`."""
    names = tuple(item.lower() for item in _items(text))
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(
                f'"{name}" is not a name (examples: frazil.example.com, *.example.com)'
            )
    return names


def users(text: str) -> tuple[tuple[str, str], ...]:
    """Names and passwords."""
    found: dict[str, str] = {}
    for item in _items(text):
        name, colon, password = item.partition(":")
        if not (name and colon and password) or name in found:
            raise ValueError("write it as name:password, several with commas")
        found[name] = password
    return tuple(found.items())


def token_files(text: str) -> tuple[tuple[str, str], ...]:
    """Names of users, and the files that have their tokens."""
    found: dict[str, str] = {}
    for item in _items(text):
        name, colon, file = item.partition(":")
        if not (name and colon and file) or name in found:
            raise ValueError(f'"{item}" is not name:file, each name once')
        found[name] = file
    return tuple(found.items())


def token(text: str) -> str | None:
    """A secret that nobody guesses; None where there is none."""
    said = text.strip()
    if said and not re.fullmatch(r"[!-~]{16,1024}", said):
        raise ValueError("it must be 16 to 1024 visible ASCII characters, without spaces")
    return said or None


def tokens_in(text: str) -> tuple[str, ...]:
    """The tokens of a file, a line each: while one replaces another, both count. At least one."""
    found = tuple(said for line in text.splitlines() if (said := token(line)) is not None)
    if not found:
        raise ValueError("there is no token in it")
    return found


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


class ValueType(NamedTuple, Generic[T]):
    """What a setting may be."""

    kind: str
    """For the reference."""
    parse: Callable[[str], T]
    """Raises ValueError with the end of a sentence."""


def _optional(text: str) -> str | None:
    return text.strip() or None


def one_of(*words: str) -> ValueType[str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError(f'"{text}" is none of {", ".join(words)}')
        return text.strip().lower()

    return ValueType(" / ".join(words), parse)


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text.strip()):
        raise ValueError(f'"{text}" is not a name: 1 to 100 of the characters a-z A-Z 0-9 . _ -')
    return text.strip()


def _optional_name(text: str) -> str:
    return _name(text) if text.strip() else ""


def _bounded(kind: str, read: Callable[[str], int], minimum: int, maximum: int) -> ValueType[int]:
    return ValueType(kind, lambda text: values.within(read(text), minimum=minimum, maximum=maximum))


def number(minimum: int, maximum: int) -> ValueType[int]:
    return _bounded("number", values.whole_number, minimum, maximum)


def number_or_auto(minimum: int, maximum: int) -> ValueType[int | None]:
    whole = number(minimum, maximum)

    def parse(text: str) -> int | None:
        return None if text.strip().lower() in ("", "auto") else whole.parse(text)

    return ValueType("number or auto", parse)


def byte_count(minimum: int, maximum: int) -> ValueType[int]:
    return _bounded("bytes", values.byte_count, minimum, maximum)


def milliseconds(minimum: int, maximum: int) -> ValueType[int]:
    return _bounded("ms", values.milliseconds, minimum, maximum)


def _optional_boolean(text: str) -> bool | None:
    return None if text.strip().lower() in ("", "auto") else values.boolean(text)


def _workers(text: str) -> int | None:
    return (
        None if text.strip().lower() == "auto" else values.whole_number(text, minimum=1, maximum=64)
    )


def url(*schemes: str) -> ValueType[str]:
    def parse(text: str) -> str:
        scheme, colon, _ = text.strip().partition("://")
        if text.strip() and (not colon or scheme not in schemes):
            examples = ", ".join(f"{scheme}://…" for scheme in schemes)
            raise ValueError(f'"{text}" is not one of {examples}')
        return text.strip()

    return ValueType("URL", parse)


def _http_url(text: str) -> str | None:
    if text.strip() and not re.fullmatch(r"https?://[^\s/]+/?", text.strip()):
        raise ValueError(f'"{text}" is not an address like http://host:9000')
    return text.strip() or None


def kafka_listeners(text: str) -> tuple[NamedAddress, ...]:
    found = addresses(text)
    if not found:
        raise ValueError("is empty (example: 0.0.0.0:9092)")
    for address in found:
        if address.port is None:
            raise ValueError(f'"{address.host}" has no port (example: 0.0.0.0:9092)')
    return found


TEXT = ValueType("text", _optional)
FILE = ValueType("file", _optional)
NAME = ValueType("name", _name)
OPTIONAL_NAME = ValueType("name", _optional_name)
BOOLEAN = ValueType("true or false", values.boolean)
BOOLEAN_OR_AUTO = ValueType("true, false or auto", _optional_boolean)
WORKERS = ValueType("number or `auto`", _workers)
HTTP_URL = ValueType("URL", _http_url)
ADDRESSES = ValueType("addresses", addresses)
LISTENERS = ValueType("addresses", kafka_listeners)
ADDRESS_OR_OFF = ValueType("address or `off`", http_address)
HTTP_LISTENERS = ValueType("addresses", http_listeners)
HTTP_ENDPOINT = ValueType("URL", http_endpoint)
HTTP_HEADERS = ValueType("name=value", http_headers)
HOST_NAMES = ValueType("names", host_names)
USERS = ValueType("name:password", users)
FIRST_USERS = ValueType("users", first_users)
TOKEN = ValueType("16 to 1024 visible ASCII characters", token)
TOKEN_FILES = ValueType("name:file", token_files)
NODE_COUNT = ValueType("number", listeners.node_count)
PRINCIPALS = ValueType("principals", values.principals)
