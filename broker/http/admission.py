"""Which HTTP requests are let in, by their head alone. Pure.

A browser on a machine that reaches an agent is everybody's client: any page may send requests
through it. What keeps pages out:

* *Host* names the agent. A page whose own name was made to lead to the agent (DNS rebinding) says
  that name. Addresses, `localhost`, names without a dot and Kubernetes' names (`….svc`) cannot be
  somebody's on the internet; others are let in when the agent is known by them (its listeners,
  `http.hosts`).
* *Origin* and *Sec-Fetch-Site*, which pages cannot forge or leave out: a request that changes
  something comes from no page of another site.
* *Content-Type*: bodies are JSON, and pages cannot send JSON elsewhere without asking first (CORS).
  No type at all counts as application/octet-stream, as in Confluent's registry. Forms, which pages can send
  anywhere, are let in where they are taken, and must say that they come from a page of this listener.

Clients that are no browsers send none of it but Host, and the types that Confluent's registry takes.
"""

import ipaddress
import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
"""They change nothing."""
SHOWN_MAX: Final = 100
"""Characters of what a client sent, in an answer."""
_OURS: Final = re.compile(
    r"[a-z0-9_-]+|([a-z0-9_.-]+\.)?localhost|[a-z0-9_.-]+\.svc(\.cluster\.local)?"
)
"""Names that nobody can have on the internet."""
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\[\]:/@\s]*)(:[0-9]{0,5})?")
_JSON: Final = re.compile(r"application/(json|octet-stream|vnd\.schemaregistry(\.v1)?\+json)")
FORM: Final = "application/x-www-form-urlencoded"
_CHARSETS: Final = ("utf-8", "utf8", "us-ascii")


class RequestHead(NamedTuple):
    """What is judged of a request; None: there is no such header."""

    method: str
    host: str | None
    origin: str | None = None
    site: str | None = None
    """Sec-Fetch-Site."""
    has_body: bool = False
    content_type: str | None = None
    """With its parameters."""
    content_encoding: str | None = None
    takes_forms: bool = False
    """What is asked for takes forms of pages that this listener gave out."""


class Refusal(NamedTuple):
    """An answer: the status, and a sentence."""

    status: int
    reason: str


class HostNames:
    """The names by which an agent is known."""

    def __init__(self, names: Iterable[str]) -> None:
        """`names`: as they are, or `*.name` for all below one, or `*` for any."""
        given = {name.strip().lower().rstrip(".") for name in names}
        self._any = "*" in given
        self._names = frozenset(given)
        self._below = tuple(name[1:] for name in given if name.startswith("*."))

    def __contains__(self, host: str) -> bool:
        """Whether a Host header (`name`, `name:port`, `[address]:port`) names the agent."""
        found = _HOST.fullmatch(host.strip().lower())
        if found is None:
            return False
        name = found["name"].rstrip(".")
        return (
            self._any
            or name in self._names
            or _OURS.fullmatch(name) is not None
            or _is_address(name)
            or name.endswith(self._below)
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def refusal(head: RequestHead, names: HostNames) -> Refusal | None:
    """Why a request is not let in; None: it is."""
    if head.host is not None and head.host not in names:
        said = f"{_shown(head.host)} is no name of this agent: list it in http.hosts if it is one"
        return Refusal(421, said)
    if head.method in SAFE_METHODS:
        return None
    elsewhere = (head.site or "").lower() in ("cross-site", "same-site")
    if elsewhere or (head.origin is not None and not _is_same(head.origin, head.host)):
        said = (
            f"a page of another site ({_shown(head.origin or 'unknown')}) may change nothing here"
        )
        return Refusal(403, said)
    return _refused_body(head) if head.has_body else None


def _is_same(origin: str, host: str | None) -> bool:
    """A page that this listener itself gave out, directly or behind a proxy with TLS."""
    scheme, _, where = origin.partition("://")
    return scheme in ("http", "https") and host is not None and where.lower() == host.lower()


def _is_ours(head: RequestHead) -> bool:
    """Whether it says that it comes from a page that this listener gave out; where it says anything else it is
    refused before."""
    return head.origin is not None or (head.site or "").lower() == "same-origin"


def _refused_body(head: RequestHead) -> Refusal | None:
    if head.content_encoding not in (None, "identity"):
        return Refusal(415, f"a body comes as it is, not as {_shown(head.content_encoding)}")
    if head.content_type is None:
        return None
    kind, *parameters = (part.strip().lower() for part in head.content_type.split(";"))
    if kind == FORM and head.takes_forms:
        return None if _is_ours(head) else Refusal(403, "a form is sent by a page of this agent")
    if _JSON.fullmatch(kind) is None:
        return Refusal(415, f"a body is JSON (Content-Type: application/json), not {_shown(kind)}")
    for name, _, value in (each.partition("=") for each in parameters):
        if name.strip() == "charset" and value.strip().strip('"') not in _CHARSETS:
            return Refusal(415, f"JSON is UTF-8, not {_shown(value.strip())}")
    return None


def _shown(text: str | None) -> str:
    """In quotes, and without what a status line could not have."""
    said = text or ""
    return json.dumps(said if len(said) <= SHOWN_MAX else said[:SHOWN_MAX] + "...")
