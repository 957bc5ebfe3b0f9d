"""From a request to its handler, and where errors end.

A `Hot` handler starts by callback and answers whenever it likes (Produce, Fetch). A `Cold` one is
a coroutine from a neutral request to a neutral response, run as a task of the server's group.
`KafkaError` is caught here and nowhere else; the handler's module says what the refusal looks
like in its own response.

A long request (`AT_ONCE_BYTES_MAX`) is decoded, handled and answered in slices of the loop
(`broker.calls.slices`). One that is over its API's budget of elements is refused where the answer
has an error code of its own, else its connection is closed, as for what is malformed.

Where there is an authorizer it is asked first (`broker.guards`), and a handler sees only what its
requester may do.

Left out: order of answers, back-pressure, bytes (`broker.edge.server`).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from broker import guards
from broker.api import Api, Cold, Encoded, Hot, Reply, tell_throttle
from broker.calls.call import Call
from broker.calls.shares import Flow, owner_of
from broker.calls.slices import AbandonedError
from broker.node import Node
from broker.quotas.steps import counted
from coordinator.log.metadata_log import LogError
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.budgets import AT_ONCE_BYTES_MAX, OverBudgetError, elements_max
from protocol.messages.codec import decode_slices, encode_slices, refusable, shape_of
from protocol.messages.layouts import Meter

logger = logging.getLogger(__name__)

REFUSED_ELEMENTS_MAX: Final = 20_000
"""Each of more is not told that all are refused: that would be as long a slice as the request."""
STALE_REFUSAL: Final = "the agent stood still for a while; send the request again"
LOG_SHARE_REFUSAL: Final = (
    "the metadata log is nearly full until a snapshot is published, of what this address wrote;"
    " send the request again"
)


WITHOUT_QUOTAS: Final = frozenset({apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE})
"""It is not known yet whose they would be, as in Kafka."""


class Dispatcher:
    """Hands calls to the handlers of the table."""

    def __init__(self, node: Node, served: Mapping[int, Api], *, has_quotas: bool = True) -> None:
        assert list(served) == list(apis.APIS), "every API that is advertised has a handler"
        self._node = node
        self._served = served
        self._has_quotas = has_quotas
        log_client = node.log_client
        self._log_shares = Flow(node.settings.log_bytes_max, used=lambda: log_client.log_bytes)

    def dispatch(self, call: Call, tasks: asyncio.TaskGroup) -> None:
        """Start a call; it answers itself sooner or later, or closes its connection.

        Raises ProtocolError for a body that is not what its header says.
        """
        quotas = self._node.quotas
        if self._has_quotas and quotas.table and call.api_key not in WITHOUT_QUOTAS:
            usage = quotas.usage(call.connection.requester.principal, call.client_id)
            if usage is not None:
                call.usage = usage
                usage.begin()
                try:
                    self._hand_over(call, tasks)
                    if call.answered:
                        call.throttle()  # Whether the answer told of it or not.
                finally:
                    usage.end()
                return
        self._hand_over(call, tasks)

    def _hand_over(self, call: Call, tasks: asyncio.TaskGroup) -> None:
        api = self._served[call.api_key]
        handler = api.handler
        authentication = call.connection.authentication
        if authentication is not None and not authentication.admits(call.api_key):
            self._refuse_in_between(handler, call)
        elif isinstance(handler, Cold):
            self._begin(self._answer(api, handler, call), call, tasks)
        elif call.stale and handler.refuse is not None:
            self._count_stale(call)
            handler.refuse(self._node, call, KafkaError(api.unavailable, STALE_REFUSAL))
        elif handler.take is not None and len(call.body) > AT_ONCE_BYTES_MAX:
            self._begin(self._take(api, handler, call), call, tasks)
        elif handler.take is not None and self._node.rights is not None:
            request = messages.decode_request(call.api_key, call.version, call.body)
            self._take_permitted(api, handler, call, request)
        elif (rest := handler.start(self._node, call)) is not None:
            self._begin(rest, call, tasks)

    def _begin(self, work: Coroutine[Any, Any, None], call: Call, tasks: asyncio.TaskGroup) -> None:
        run = self._run(work, call)
        try:
            tasks.create_task(run, name=repr(call))
        except RuntimeError:
            # The server is stopping: its tasks are waited for, and then its connections are cut.
            run.close()
            work.close()
            call.close("the agent has stopped")

    def _refuse_in_between(self, handler: Cold | Hot, call: Call) -> None:
        """What comes in the middle of SASL is answered so, and the connection closed (Kafka's
        SaslServerAuthenticator); it is only closed where the answer has no shape at hand."""
        reason = f"{call!r} while it authenticates itself"
        # ApiVersions gets here in any version.
        is_known = apis.is_served(call.api_key, call.version)
        if handler.refusal is None or len(call.body) > AT_ONCE_BYTES_MAX or not is_known:
            call.close(reason)
            return
        request = messages.decode_request(call.api_key, call.version, call.body)
        error = KafkaError(ErrorCode.ILLEGAL_SASL_STATE, f"Unexpected Kafka request: {reason}")
        response = handler.refusal(call, request, error)
        body = messages.encode_response(call.api_key, call.version, response)
        call.connection.refuse(call, [body], reason)

    async def _run(self, work: Coroutine[Any, Any, None], call: Call) -> None:
        self._node.rest()
        if call.usage is not None and call.usage.is_timed:
            work = counted(work, call.usage)
        # `gather` hands errors over as values. Here, at the border of one connection, an error
        # that nobody foresaw ends that connection, and is counted; it must not end the agent.
        outcomes: list[BaseException | None] = [*await asyncio.gather(work, return_exceptions=True)]
        outcome = outcomes[0]
        if isinstance(outcome, AbandonedError):
            assert call.abandoned
        elif isinstance(outcome, ProtocolError):
            call.close(f"malformed request: {outcome}")
        elif outcome is not None:
            self._node.stats.failed_handlers += 1
            logger.error("%r failed", call, exc_info=outcome)
            call.close("internal error")

    async def _answer(self, api: Api, handler: Cold, call: Call) -> None:
        if not apis.is_served(call.api_key, call.version):
            # Only ApiVersions gets here. Its body, of a layout still to come, is not parsed.
            assert call.api_key == apis.API_VERSIONS
            call.answer([messages.unsupported_api_versions()])
            return
        if len(call.body) <= AT_ONCE_BYTES_MAX:
            request = messages.decode_request(call.api_key, call.version, call.body)
            await self._handle(api, handler, call, request)
            return
        async with self._decoded(call) as (request, refused):
            await self._handle(api, handler, call, request, refused)

    async def _take(self, api: Api, handler: Hot, call: Call) -> None:
        """A long request of a hot handler in shapes."""
        async with self._decoded(call) as (request, refused):
            self._take_permitted(api, handler, call, request, refused)

    def _take_permitted(
        self, api: Api, handler: Hot, call: Call, request: Any, refused: KafkaError | None = None
    ) -> None:
        assert handler.take is not None
        assert handler.refusal is not None
        reply = Reply(call, partial(handler.refusal, call, request))
        try:
            if refused is not None:
                raise refused
            guards.check_whole(self._node, call, api, request)
        except KafkaError as error:
            reply.refuse(error)
        else:
            handler.take(self._node)(call, request, reply)

    @contextlib.asynccontextmanager
    async def _decoded(self, call: Call) -> AsyncIterator[tuple[Any, KafkaError | None]]:
        """A long request, and why it is refused whatever it asks for; then an empty one."""
        most = elements_max(call.api_key, len(call.body))
        slices = self._node.slices
        async with slices.enter(call, most) as entered:
            meter = Meter(call.api_key)
            try:
                request = await slices.of(call).run(
                    decode_slices(call.api_key, call.version, call.body, meter)
                )
            except OverBudgetError as error:
                if not refusable(call.api_key, call.version):
                    raise
                logger.info("%r from %s refused: %s", call, call.connection.peer, error)
                request = shape_of(call.api_key, "Request")()
                yield request, KafkaError(ErrorCode.INVALID_REQUEST, str(error))
                return
            entered.settle(meter.elements)
            call.elements = meter.elements
            yield request, None

    async def _handle(
        self,
        api: Api,
        handler: Cold,
        call: Call,
        request: Any,
        refused: KafkaError | None = None,
    ) -> None:
        node = self._node
        try:
            if refused is not None:
                raise refused
            if node.rights is None:
                response = await self._call_handler(api, handler, call, request)
            else:
                left, complete = await guards.narrow(node, call, api, handler, request)
                response = None
                if left is not None:
                    response = await self._call_handler(api, handler, call, left)
                response = complete(response)
        except KafkaError as error:
            response = self._refusal(handler, call, request, error)
        except LogError as error:
            away = KafkaError(api.unavailable, f"the metadata log: {error}")
            response = self._refusal(handler, call, request, away)
        if api.is_audited:
            guards.tell_change(node, call, api, request, response)
        if isinstance(response, Encoded):
            call.answer(response.parts)
        else:
            if call.usage is not None:
                tell_throttle(call, response)
            turns = self._node.slices.of(call)
            call.answer([await turns.run(encode_slices(call.api_key, call.version, response))])

    async def _call_handler(self, api: Api, handler: Cold, call: Call, request: Any) -> Any:
        """The handler's response. Raises KafkaError, LogError."""
        if call.stale and api.changes:
            self._count_stale(call)
            raise KafkaError(api.unavailable, STALE_REFUSAL)
        if api.changes and not self._log_shares.put(
            owner_of(call.connection.peer), call.frame_bytes
        ):
            raise KafkaError(api.unavailable, LOG_SHARE_REFUSAL)
        return await handler.handle(self._node, call, request)

    def _refusal(self, handler: Cold, call: Call, request: Any, error: KafkaError) -> Any:
        """The response that says so; a connection's end says it of very many elements at once."""
        if call.elements > REFUSED_ELEMENTS_MAX:
            call.close(f"a request of {call.elements} elements was refused: {error}")
            raise AbandonedError
        return handler.refusal(call, request, error)

    def _count_stale(self, call: Call) -> None:
        call.refused_stale = True
        self._node.stats.refused_stale += 1
