"""Requests of Kafka's protocol by an operator of the HTTP listener, to the agent that this is.

They go the way of every request (`broker.calls.local_calls`): a handler makes the same checks, proposes the same commands
and answers with the same codes, and the audit tells of it likewise. The operator's role is the right to it.

Left out: what somebody asks for, and what is said of the answer (`broker.console.actions.topics` and the others).
"""

from typing import Any, Final

from broker.calls.local_calls import LocalCallError, LocalCalls
from broker.calls.requester import Requester
from broker.node import Node
from coordinator.machine.machine import Machine
from protocol import apis
from protocol.errors import ErrorCode, KafkaError

VERSIONS: Final = {apis.OFFSET_COMMIT: 9}
"""That are asked for; of other APIs the newest. Later ones of these name topics by id."""
ANSWER_S_MAX: Final = 35.0
"""No operator waits longer; of what is proposed, handlers say before that they do not know."""


class Operator:
    """Somebody whose role lets them change the cluster, at one agent."""

    def __init__(self, node: Node, calls: LocalCalls, requester: Requester) -> None:
        self.node = node
        self._calls = calls
        self._requester = requester

    @property
    def machine(self) -> Machine:
        return self.node.log_client.machine

    async def ask(self, api_key: int, request: Any) -> Any:
        """The response of an API. Raises KafkaError where there is none, and it may be done or not."""
        version = VERSIONS.get(api_key, apis.APIS[api_key].max_version)
        try:
            return await self._calls.ask(
                self._requester, api_key, version, request, seconds=ANSWER_S_MAX, by_role=True
            )
        except LocalCallError as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
