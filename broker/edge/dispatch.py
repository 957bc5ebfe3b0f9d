"""From a request to its handler, and where errors end.

A `Hot` handler starts by callback and answers whenever it likes (Produce, Fetch). A `Cold` one is
a coroutine from a neutral request to a neutral response, run as a task of the server's group.
`KafkaError` is caught here and nowhere else; the handler's module says what the refusal looks
like in its own response.

Left out: order of answers, back-pressure, bytes (`broker.edge.server`); who may call what.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from broker.api import Api, Cold, Encoded
from broker.calls.call import Call
from broker.calls.shares import Flow, owner_of
from broker.node import Node
from coordinator.log.metadata_log import LogError
from protocol import apis, messages
from protocol.errors import KafkaError, ProtocolError

logger = logging.getLogger(__name__)

STALE_REFUSAL: Final = "the agent stood still for a while; send the request again"
LOG_SHARE_REFUSAL: Final = (
    "the metadata log is nearly full until a snapshot is published, of what this address wrote;"
    " send the request again"
)


class Dispatcher:
    """Hands calls to the handlers of the table."""

    def __init__(self, node: Node, served: Mapping[int, Api]) -> None:
        assert list(served) == list(apis.APIS), "every API that is advertised has a handler"
        self._node = node
        self._served = served
        log_client = node.log_client
        self._log_shares = Flow(node.settings.log_bytes_max, used=lambda: log_client.log_bytes)

    def dispatch(self, call: Call, tasks: asyncio.TaskGroup) -> None:
        """Start a call; it answers itself sooner or later, or closes its connection.

        Raises ProtocolError for a body that is not what its header says.
        """
        api = self._served[call.api_key]
        handler = api.handler
        if isinstance(handler, Cold):
            tasks.create_task(self._run(api, handler, call), name=repr(call))
        elif call.stale and handler.refuse is not None:
            self._count_stale(call)
            handler.refuse(self._node, call, KafkaError(api.unavailable, STALE_REFUSAL))
        else:
            handler.start(self._node, call)

    async def _run(self, api: Api, handler: Cold, call: Call) -> None:
        # `gather` hands errors over as values. Here, at the border of one connection, an error
        # that nobody foresaw ends that connection, and is counted; it must not end the agent.
        (outcome,) = await asyncio.gather(self._answer(api, handler, call), return_exceptions=True)
        if isinstance(outcome, ProtocolError):
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
        request = messages.decode_request(call.api_key, call.version, call.body)
        try:
            if call.stale and api.changes:
                self._count_stale(call)
                raise KafkaError(api.unavailable, STALE_REFUSAL)
            if api.changes and not self._log_shares.put(
                owner_of(call.connection.peer), call.frame_bytes
            ):
                raise KafkaError(api.unavailable, LOG_SHARE_REFUSAL)
            response = await handler.handle(self._node, call, request)
        except KafkaError as error:
            response = handler.refusal(call, request, error)
        except LogError as error:
            refused = KafkaError(api.unavailable, f"the metadata log: {error}")
            response = handler.refusal(call, request, refused)
        if isinstance(response, Encoded):
            call.answer(response.parts)
        else:
            call.answer([messages.encode_response(call.api_key, call.version, response)])

    def _count_stale(self, call: Call) -> None:
        call.refused_stale = True
        self._node.stats.refused_stale += 1
