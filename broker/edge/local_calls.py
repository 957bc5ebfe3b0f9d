"""Calls of an agent's own pages, handed to its dispatcher as those of clients are, without a socket.

What holds: a call is dispatched as one of its requester's, on a connection of its own that ends with it, so no call
waits for another, and whoever has gone leaves nothing that waits. The answer is copied once, out of what handlers only
lend. What a role is the right to is dispatched at a node whose one super user is the requester, so handlers and the
audit are the same.
"""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

from broker.api import Api
from broker.calls.call import Call
from broker.calls.challenges import Challenge
from broker.calls.local_calls import LocalCallError
from broker.calls.requester import Requester
from broker.calls.software import software_of
from broker.edge.dispatch import Dispatcher
from broker.node import Node
from broker.sasl.authentication import Authentication
from protocol import messages
from protocol.errors import ProtocolError
from protocol.framing import parse_response_header
from protocol.types import Buffer

CLIENT_ID: Final = "frazil-console"
"""By which quotas and figures know these calls."""
FIRST_NUMBER: Final = 1 << 40
"""Connections of sockets are numbered from 1."""
_LENGTH_BYTES: Final = 4


class _LocalConnection:
    """One call's end of it; implements `call.Connection`."""

    def __init__(self, number: int, requester: Requester) -> None:
        self.number = number
        self.listener = "console"
        self.peer = f"{requester.host or 'console'}:0"
        self.requester = requester
        self.software = software_of(CLIENT_ID, "")
        self.authentication: Authentication | None = None
        self.closed = False
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def call_answered(self, call: Call) -> None:
        if not self.answer.done():
            self.answer.set_result(b"".join(call.parts or ()))

    def close(self, reason: str) -> None:
        self.closed = True
        if not self.answer.done():
            self.answer.set_exception(LocalCallError(f"the agent gave no answer: {reason}"))

    def refuse(self, call: Call, body: Sequence[Buffer] | None, reason: str) -> None:
        self.close(reason)

    def replied(self, call: Call, challenge: Challenge) -> bool:
        return False


class DispatchedCalls:
    """`broker.calls.local_calls.LocalCalls` of one agent."""

    def __init__(self, node: Node, served: Mapping[int, Api], tasks: asyncio.TaskGroup) -> None:
        """`tasks` will own what handlers start."""
        self._node = node
        self._served = served
        self._of_clients = Dispatcher(node, served)
        self._tasks = tasks
        self._numbers = count(FIRST_NUMBER)

    async def ask(
        self,
        requester: Requester,
        api_key: int,
        version: int,
        request: Any,
        *,
        seconds: float,
        by_role: bool = False,
    ) -> Any:
        body = memoryview(messages.encode_request(api_key, version, request)).toreadonly()
        connection = _LocalConnection(next(self._numbers), requester)
        call = Call(
            api_key=api_key,
            version=version,
            correlation_id=0,
            client_id=CLIENT_ID,
            body=body,
            connection=connection,
            received_ms=self._node.boot_ms(),
            frame_bytes=len(body),
        )
        dispatcher = self._by_role(requester) if by_role else self._of_clients
        try:
            async with asyncio.timeout(seconds):
                dispatcher.dispatch(call, self._tasks)
                frame = await connection.answer
            return _response(api_key, version, frame)
        except TimeoutError as error:
            raise LocalCallError(f"the agent did not answer within {seconds:.0f} s") from error
        except ProtocolError as error:
            raise LocalCallError(f"the agent refused the request: {error}") from error
        finally:
            connection.closed = True
            call.drop()

    def _by_role(self, requester: Requester) -> Dispatcher:
        """For one call, as the node is now."""
        node = copy.copy(self._node)
        if node.rights is not None:
            node.rights = node.rights.of_super_user(requester.principal)
        return Dispatcher(node, self._served, has_quotas=False)


def _response(api_key: int, version: int, frame: bytes) -> Any:
    _, body = parse_response_header(api_key, version, memoryview(frame)[_LENGTH_BYTES:])
    return messages.decode_response(api_key, version, body)
