"""From a request to its handler: calls, the two kinds of handlers, and where errors end.

A `Call` is one request on one connection; it is answered, or its connection closed, exactly once.
A `Hot` handler starts by callback and answers whenever it likes (Produce, Fetch). A `Cold` one is
a coroutine from a neutral request to a neutral response, run as a task of the server's group.
`KafkaError` is caught here and nowhere else; the handler's module says what the refusal looks
like in its own response.

Left out: order of answers, back-pressure, bytes (`broker.edge.server`); who may call what.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from typing_extensions import override

from broker.calls.challenges import Challenge
from broker.node import Node
from coordinator.log.metadata_log import LogError
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.framing import response_head
from protocol.types import POSITION_ZERO, Buffer, Position

logger = logging.getLogger(__name__)

_RELEASED: Final = memoryview(b"")


class Connection(Protocol):
    """What handlers know of a connection; `broker.edge.server` implements it."""

    number: int
    """Unique in this process, from 1."""
    listener: str
    """Name of the listener it came in by: which addresses the client is told."""
    peer: str
    """The client's address, for logs."""
    closed: bool
    """Gone: nothing that is answered now reaches anybody."""

    def call_answered(self, call: "Call") -> None:
        """Called by `Call.answer`, once."""
        ...

    def close(self, reason: str) -> None:
        """Close without answering what is open. `reason` is for the log."""
        ...

    def replied(self, call: "Call", challenge: Challenge) -> bool:
        """Whether the call was read in reply to this challenge (`broker.calls.challenges`)."""
        ...


class Call:
    """One request: header, body and where the answer goes."""

    __slots__ = (
        "answered",
        "api_key",
        "body",
        "challenge",
        "client_id",
        "clock",
        "connection",
        "correlation_id",
        "first_byte",
        "frame_bytes",
        "parts",
        "received_ms",
        "refused_stale",
        "stale",
        "version",
    )

    def __init__(
        self,
        *,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: memoryview,
        connection: Connection,
        received_ms: int,
        frame_bytes: int = 0,
        stale: bool = False,
        clock: Position = POSITION_ZERO,
        first_byte: int = 0,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        """What follows the request header; owns its memory, read-only. Empty once answered."""
        self.connection = connection
        self.received_ms = received_ms
        """Boot-time clock when the frame was complete."""
        self.frame_bytes = frame_bytes
        self.stale = stale
        """Its client may have given up during a stall: it must not change anything (P17)."""
        self.refused_stale = False
        """The answer is a refusal because of `stale`; once written, it is a challenge."""
        self.clock = clock
        """The position applied when the first byte of its frame was read."""
        self.first_byte = first_byte
        """Number of that byte among all that came on the connection."""
        self.challenge: Challenge | None = None
        """The answer asks the client to confirm that it means this transaction."""
        self.answered = False
        self.parts: list[Buffer] | None = None
        """The framed answer, for the connection; None before, and when there is none to send."""

    def answer(self, body: Sequence[Buffer] | None) -> None:
        """Answer with the parts of a response body, without header (which is added here).

        None: there is no response (Produce with acks=0). The parts are not copied and must not
        change until they are sent. Answers leave in the order of requests, whenever they come.
        """
        assert not self.answered
        self.answered = True
        self.body = _RELEASED
        if body is not None:
            size = sum(map(len, body))
            head = response_head(self.api_key, self.version, self.correlation_id, size)
            self.parts = [head, *body]
        self.connection.call_answered(self)

    def close(self, reason: str) -> None:
        """Close the connection: the answer to what Kafka does not answer, or cannot (P4)."""
        self.connection.close(reason)

    @property
    def abandoned(self) -> bool:
        """Nobody waits for the answer any more; long polls may look and give up."""
        return self.connection.closed

    @override
    def __repr__(self) -> str:
        return f"<{api_name(self.api_key)} v{self.version} #{self.correlation_id}>"


class Hot(NamedTuple):
    """A handler that is called, not awaited; it answers the call from callbacks."""

    start: Callable[[Node, Call], None]
    """Raises ProtocolError for a malformed body."""
    refuse: Callable[[Node, Call, KafkaError], None] | None = None
    """Answers the call with this error everywhere. Given for what changes something."""


class Cold(NamedTuple):
    """A handler in neutral shapes."""

    handle: Callable[[Node, Call, Any], Awaitable[Any]]
    """From the decoded request to the response; raises KafkaError for a refusal of it all."""
    refusal: Callable[[Call, Any, KafkaError], Any]
    """The response that says so."""
    changes: bool = False
    """Carrying it out late would do harm (P17)."""


class Encoded(NamedTuple):
    """A response body that a cold handler put together itself."""

    parts: list[Buffer]


Handler = Hot | Cold
Handlers = dict[int, Handler]

STALE_REFUSAL: Final = "the agent stood still for a while; send the request again"


def api_name(api_key: int) -> str:
    api = apis.APIS.get(api_key)
    return f"API {api_key}" if api is None else api.name


class Dispatcher:
    """Hands calls to the handlers of the table."""

    def __init__(self, node: Node, handlers: Handlers) -> None:
        assert list(handlers) == list(apis.APIS), "every API that is advertised has a handler"
        self._node = node
        self._handlers = handlers

    def dispatch(self, call: Call, tasks: asyncio.TaskGroup) -> None:
        """Start a call; it answers itself sooner or later, or closes its connection.

        Raises ProtocolError for a body that is not what its header says.
        """
        handler = self._handlers[call.api_key]
        if isinstance(handler, Cold):
            tasks.create_task(self._run(handler, call), name=repr(call))
        elif call.stale and handler.refuse is not None:
            self._count_stale(call)
            handler.refuse(
                self._node, call, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, STALE_REFUSAL)
            )
        else:
            handler.start(self._node, call)

    async def _run(self, handler: Cold, call: Call) -> None:
        # `gather` hands errors over as values. Here, at the border of one connection, an error
        # that nobody foresaw ends that connection, and is counted; it must not end the agent.
        (outcome,) = await asyncio.gather(self._answer(handler, call), return_exceptions=True)
        if isinstance(outcome, ProtocolError):
            call.close(f"malformed request: {outcome}")
        elif outcome is not None:
            self._node.stats.failed_handlers += 1
            logger.error("%r failed", call, exc_info=outcome)
            call.close("internal error")

    async def _answer(self, handler: Cold, call: Call) -> None:
        if not apis.is_served(call.api_key, call.version):
            # Only ApiVersions gets here. Its body, of a layout still to come, is not parsed.
            assert call.api_key == apis.API_VERSIONS
            call.answer([messages.unsupported_api_versions()])
            return
        request = messages.decode_request(call.api_key, call.version, call.body)
        try:
            if call.stale and handler.changes:
                self._count_stale(call)
                raise KafkaError(unavailable_code(call.api_key), STALE_REFUSAL)
            response = await handler.handle(self._node, call, request)
        except KafkaError as error:
            response = handler.refusal(call, request, error)
        except LogError as error:
            refused = KafkaError(unavailable_code(call.api_key), f"the metadata log: {error}")
            response = handler.refusal(call, request, refused)
        if isinstance(response, Encoded):
            call.answer(response.parts)
        else:
            call.answer([messages.encode_response(call.api_key, call.version, response)])

    def _count_stale(self, call: Call) -> None:
        call.refused_stale = True
        self._node.stats.refused_stale += 1


_UNAVAILABLE: Final = {
    apis.OFFSET_COMMIT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.OFFSET_FETCH: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.JOIN_GROUP: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.LEAVE_GROUP: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.SYNC_GROUP: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.DESCRIBE_GROUPS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.LIST_GROUPS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.DELETE_GROUPS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.OFFSET_DELETE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.CONSUMER_GROUP_HEARTBEAT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.CONSUMER_GROUP_DESCRIBE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.ALTER_CONFIGS: ErrorCode.NOT_CONTROLLER,
    apis.INCREMENTAL_ALTER_CONFIGS: ErrorCode.NOT_CONTROLLER,
    apis.CREATE_TOPICS: ErrorCode.NOT_CONTROLLER,
    apis.DELETE_TOPICS: ErrorCode.NOT_CONTROLLER,
    apis.CREATE_PARTITIONS: ErrorCode.NOT_CONTROLLER,
    apis.DELETE_RECORDS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    apis.INIT_PRODUCER_ID: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.ADD_PARTITIONS_TO_TXN: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.ADD_OFFSETS_TO_TXN: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.END_TXN: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.TXN_OFFSET_COMMIT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.DESCRIBE_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.LIST_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    apis.WRITE_TXN_MARKERS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    apis.DESCRIBE_PRODUCERS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    apis.UPDATE_FEATURES: ErrorCode.NOT_CONTROLLER,
    apis.FIND_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    apis.LIST_OFFSETS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    apis.OFFSET_FOR_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    apis.METADATA: ErrorCode.LEADER_NOT_AVAILABLE,
    apis.DESCRIBE_TOPIC_PARTITIONS: ErrorCode.LEADER_NOT_AVAILABLE,
}


def unavailable_code(api_key: int) -> ErrorCode:
    """What says "nothing happened, ask again, or another agent" to the clients of an API."""
    return _UNAVAILABLE.get(api_key, ErrorCode.REQUEST_TIMED_OUT)
