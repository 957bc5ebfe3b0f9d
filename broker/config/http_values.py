"""Words into values: addresses, names, users and tokens, mostly of HTTP listeners. Pure.

Every function raises ValueError with the end of a sentence; none repeats a secret.
"""

import re
from typing import Final

from broker.config.addresses import Address, NamedAddress

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
