"""Requests of Kafka's protocol from within the agent, by an operator of its HTTP listener.

A handler gets the request as if a client had sent it: it makes the same checks, proposes the same commands and answers
with the same codes, and the audit tells of it likewise. What differs: the operator's role is the right to it, so no ACL
is asked, and quotas are those of Kafka's clients alone.

Left out: what somebody asks for, and what is said of the answer (`broker.console.actions.topics` and the others).
"""

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

from broker import guards
from broker.api import Api, Cold
from broker.calls.call import Call
from broker.calls.challenges import Challenge
from broker.calls.requester import Requester
from broker.calls.software import UNKNOWN, Software
from broker.handlers import SERVED
from broker.node import Node
from broker.sasl.authentication import Authentication
from coordinator.log.metadata_log import LogError
from coordinator.machine.machine import Machine
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.types import Buffer

CLIENT_ID: Final = "frazil-console"
VERSIONS: Final = {apis.OFFSET_COMMIT: 9}
"""That are asked for; of other APIs the newest. Later ones of these name topics by id."""
ANSWER_S_MAX: Final = 30.0
"""A group answers when its write is settled; no operator waits longer for that."""


class _Inside:
    """The connection that such a request has instead of one."""

    number = 0
    listener = ""
    software: Software = UNKNOWN
    authentication: Authentication | None = None
    closed = False

    def __init__(self, requester: Requester) -> None:
        self.requester = requester
        self.peer = f"{requester.host}:0"

    def call_answered(self, call: Call) -> None:
        """Whoever asked has the response."""

    def close(self, reason: str) -> None:
        """There is nothing to close."""

    def refuse(self, call: Call, body: Sequence[Buffer] | None, reason: str) -> None:
        """Only logins are refused so, and nobody logs in here."""

    def replied(self, call: Call, challenge: Challenge) -> bool:
        return False


class Answered:
    """Where a group's answer goes (`broker.groups.coordinator.Responder`)."""

    def __init__(self) -> None:
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def respond(self, response: Any) -> None:
        if not self._future.done():
            self._future.set_result(response)

    def refuse(self, error: KafkaError) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    async def response(self) -> Any:
        """Raises KafkaError."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await self._future
        except TimeoutError as error:
            reason = "the group has not answered yet; it may still be done"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason) from error


class Operator:
    """Somebody whose role lets them change the cluster, at one agent."""

    def __init__(self, node: Node, requester: Requester) -> None:
        self.node = node
        self.requester = requester

    @property
    def machine(self) -> Machine:
        return self.node.log_client.machine

    async def ask(self, api_key: int, request: Any) -> Any:
        """The response of an API. Raises KafkaError for a refusal of it all."""
        api, call = SERVED[api_key], self._call(api_key)
        handler = api.handler
        assert isinstance(handler, Cold)
        # The role is the right: a handler that looks for another one finds no authorizer.
        unasked = copy.copy(self.node)
        unasked.rights = None
        try:
            response = await handler.handle(unasked, call, request)
        except (KafkaError, LogError) as error:
            refused = _refused(api, error)
            self._tell(api, call, request, handler.refusal(call, request, refused))
            raise refused from error
        self._tell(api, call, request, response)
        return response

    async def ask_group(
        self, api_key: int, request: Any, take: Callable[[Call, Any, Answered], None]
    ) -> Any:
        """The response of a group's coordinator. Raises KafkaError. `take`: a method of GroupCoordinator."""
        answered = Answered()
        take(self._call(api_key), request, answered)
        return await answered.response()

    def _call(self, api_key: int) -> Call:
        return Call(
            api_key=api_key,
            version=VERSIONS.get(api_key, apis.APIS[api_key].max_version),
            correlation_id=0,
            client_id=CLIENT_ID,
            body=memoryview(b""),
            connection=_Inside(self.requester),
            received_ms=self.node.boot_ms(),
        )

    def _tell(self, api: Api, call: Call, request: Any, response: Any) -> None:
        guards.tell_change(self.node, call, api, request, response)


def _refused(api: Api, error: KafkaError | LogError) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    return KafkaError(api.unavailable, f"the metadata log: {error}")
