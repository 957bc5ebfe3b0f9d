"""The port by which an agent's own pages ask it what clients ask over Kafka's protocol. Pure.

What is asked so goes the way of every request (`broker.edge.local_calls`): rights, quotas, bounds, errors and the
audit are those of clients, of whoever is behind the page. Of operators who act the role is the right: no ACL is asked
and no quota counts them, and the audit tells of them all the same. Nobody else asks the agent for a page.
"""

from typing import Any, Protocol

from broker.calls.requester import Requester


class LocalCallError(Exception):
    """A call has no answer; the sentence says why."""


class LocalCalls(Protocol):
    """Asks the agent that this is."""

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
        """The response to a request, both as their neutral shapes (`protocol.messages`).

        `by_role`: the requester's role, which was looked at, is the right to it. Raises LocalCallError; after
        `seconds` of what was asked nothing is known.
        """
        ...
