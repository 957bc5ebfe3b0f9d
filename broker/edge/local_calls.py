"""Calls of an agent's own pages, handed to its dispatcher as those of clients are, without a socket.

What holds: a call is dispatched as one of its requester's, on a connection of its own that ends with it, so no call
waits for another, and whoever has gone leaves nothing that waits. The answer is copied once, out of what handlers only
lend.
"""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

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
        self.peer = requester.host or "console"
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

    def __init__(self, node: Node, dispatcher: Dispatcher, tasks: asyncio.TaskGroup) -> None:
        """`tasks` will own what handlers start."""
        self._node = node
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._numbers = count(FIRST_NUMBER)

    async def ask(
        self, requester: Requester, api_key: int, version: int, request: Any, *, seconds: float
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
        try:
            async with asyncio.timeout(seconds):
                self._dispatcher.dispatch(call, self._tasks)
                frame = await connection.answer
            return _response(api_key, version, frame)
        except TimeoutError as error:
            raise LocalCallError(f"the agent did not answer within {seconds:.0f} s") from error
        except ProtocolError as error:
            raise LocalCallError(f"the agent refused the request: {error}") from error
        finally:
            connection.closed = True
            call.drop()


def _response(api_key: int, version: int, frame: bytes) -> Any:
    _, body = parse_response_header(api_key, version, memoryview(frame)[_LENGTH_BYTES:])
    return messages.decode_response(api_key, version, body)
