"""An API of Kafka as one declaration, beside its handler: `API` in `broker.handlers.<api>`.

It says all that the rest of the agent has to know of an API: its key (which gives name, versions
and shapes, `protocol.apis` and `protocol.messages`), who handles it, what says "nothing happened"
to its clients, whether carrying it out late would do harm (P17), and which rights it asks for.
The dispatcher, ApiVersions, the page `docs/apis.md` and the tests of what every API must do read
the declarations; an API is added by writing one and listing it in `broker.handlers`.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from broker.calls.call import Call
from broker.node import Node
from protocol import apis, messages
from protocol.acls import Operation
from protocol.acls import ResourceType as Resource
from protocol.errors import ErrorCode, KafkaError
from protocol.types import Buffer

__all__ = [
    "Api",
    "Cold",
    "Encoded",
    "ErrorResponse",
    "Hot",
    "Narrow",
    "Narrowed",
    "Operation",
    "Reply",
    "Resource",
    "Right",
    "error_alone",
    "tell_throttle",
]


@dataclass(frozen=True, slots=True)
class Right:
    """One right that a request asks for, as Kafka's authorizer has it."""

    operation: Operation
    resource: Resource
    paths: tuple[str, ...] = ()
    """Where the request names the resources, from its fields: "topics[].name". Every one there is
    when the path is empty (a listing); the cluster has no name."""
    instead: "Right | None" = None
    """This right will do as well."""


ErrorResponse = Callable[[Call, Any, KafkaError], Any]
"""From a call, its request and an error to the response that says so."""


def error_alone(response: Callable[..., Any]) -> ErrorResponse:
    """Returns the refusal of an API whose response has one error code and nothing else to say."""
    return lambda call, request, error: response(error_code=error.code)


def tell_throttle(call: Call, response: Any) -> None:
    """Have the response to a call that has a usage say for how long its client is to wait."""
    wait_ms = call.throttle()
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = max(wait_ms, response.throttle_time_ms)


class Reply(NamedTuple):
    """Where the answer to a hot request in neutral shapes goes."""

    call: Call
    refusal: Callable[[KafkaError], Any]
    """The response that says so."""

    def respond(self, response: Any) -> None:
        call = self.call
        if call.usage is not None:
            tell_throttle(call, response)
        call.answer([messages.encode_response(call.api_key, call.version, response)])

    def refuse(self, error: KafkaError) -> None:
        self.respond(self.refusal(error))


class Hot(NamedTuple):
    """A handler that is called, not awaited; it answers the call from callbacks."""

    start: Callable[[Node, Call], Coroutine[Any, Any, None] | None]
    """Raises ProtocolError for a malformed body. Returns what is to be done by a task, if anything."""
    refuse: Callable[[Node, Call, KafkaError], None] | None = None
    """Answers the call with this error everywhere. Given for what changes something."""
    take: "Callable[[Node], Callable[[Call, Any, Reply], None]] | None" = None
    """Of a handler of requests in neutral shapes: who takes one that was decoded in slices."""
    refusal: ErrorResponse | None = None
    """Likewise."""

    @classmethod
    def in_shapes(
        cls, take: Callable[[Node], Callable[[Call, Any, Reply], None]], refusal: ErrorResponse
    ) -> "Hot":
        """Returns the handler of requests in neutral shapes; `take` names who answers them."""

        def opened(call: Call) -> tuple[Any, Reply]:
            request = messages.decode_request(call.api_key, call.version, call.body)
            return request, Reply(call, partial(refusal, call, request))

        def start(node: Node, call: Call) -> None:
            take(node)(call, *opened(call))

        def refuse(node: Node, call: Call, error: KafkaError) -> None:
            opened(call)[1].refuse(error)

        return cls(start, refuse, take, refusal)


class Narrowed(NamedTuple):
    """A request without what its requester has no right to."""

    request: Any | None
    """None: nothing is left, and the handler is not asked."""
    complete: Callable[[Any], Any] = lambda response: response
    """Adds to the handler's response what was refused, and takes out of it what must not be seen.
    Given None, it makes the whole response."""


Narrow = Callable[[Node, Call, Any], Awaitable[Narrowed]]
"""Raises KafkaError for a refusal of all; LogError when the metadata log had to be asked."""


class Cold(NamedTuple):
    """A handler in neutral shapes."""

    handle: Callable[[Node, Call, Any], Awaitable[Any]]
    """From the decoded request to the response; raises KafkaError for a refusal of it all."""
    refusal: ErrorResponse
    narrow: Narrow | None = None
    """Where rights are about parts of a request: called before `handle`, if there is an authorizer.
    Without it each right is about the whole (`broker.guards`)."""


class Encoded(NamedTuple):
    """A response body that a cold handler put together itself."""

    parts: list[Buffer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API of Kafka, as this agent serves it."""

    key: int
    """One of `protocol.apis.APIS`."""
    handler: Hot | Cold
    unavailable: ErrorCode
    """Says "nothing happened; ask again, or another agent" to the clients of this API."""
    changes: bool
    """Carrying it out late would do harm (P17)."""
    rights: tuple[Right, ...]
    """All of them are asked for, in this order; empty: anybody may."""
    is_audited: bool = False
    """A change by an administrator, of which the audit tells."""

    def __post_init__(self) -> None:
        if isinstance(self.handler, Hot):
            refusable = self.handler.refuse is not None
            assert refusable == self.changes, f"{self.name}: what changes something can be refused"

    @property
    def name(self) -> str:
        return apis.APIS[self.key].name
