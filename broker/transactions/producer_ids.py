"""Producer ids for clients, from blocks that the log gives to this agent.

Ids are unique because each block is (the machine counts them off); what an agent has not given
out when it ends is lost, which costs nothing of 2**62. A new block is asked for early, so that
clients seldom wait; all that wait share one request.

Left out: epochs and transactional ids (they live in the machine).
"""

import asyncio
from typing import Final, Protocol

from coordinator.commands.entries import (
    AllocateProducerIds,
    Command,
    Outcome,
    ProducerIdsAllocated,
    Rejected,
)
from coordinator.proposer import NotDoneError
from protocol.errors import ErrorCode, KafkaError
from protocol.types import Incarnation

BLOCK: Final = 1_000
"""As Kafka's."""
WAIT_SECONDS_MAX: Final = 5.0


class Proposes(Protocol):
    """What is needed of the coordinator."""

    def propose(
        self, command: Command, incarnation: Incarnation | None = None
    ) -> asyncio.Future[Outcome]: ...


class ProducerIds:
    """Gives out producer ids, each one once."""

    def __init__(self, log_client: Proposes, *, block: int = BLOCK) -> None:
        assert block > 0
        self._log_client = log_client
        self._block = block
        self._blocks: list[range] = []
        self._request: asyncio.Future[Outcome] | None = None

    async def take(self) -> int:
        """A new producer id.

        Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS), as Kafka does between blocks, when the
        log gives no block in time: clients ask again.
        """
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not self._blocks:
                    # Several may wait; whoever comes too late for this block asks for the next.
                    request = self._ask()
                    outcome = await asyncio.shield(request)
                    self._answered(request)
                    if isinstance(outcome, Rejected):
                        raise _unavailable(outcome.message)
        except NotDoneError as error:
            raise _unavailable(str(error)) from error
        except TimeoutError:
            raise _unavailable("the metadata log does not answer") from None
        return self._next()

    def _next(self) -> int:
        block = self._blocks[0]
        if len(block) == 1:
            del self._blocks[0]
        else:
            self._blocks[0] = block[1:]
        if sum(map(len, self._blocks)) <= self._block // 4:
            _ = self._ask()
        return block[0]

    def _ask(self) -> asyncio.Future[Outcome]:
        if self._request is None:
            self._request = self._log_client.propose(AllocateProducerIds(self._block))
            self._request.add_done_callback(self._answered)
        return self._request

    def _answered(self, request: asyncio.Future[Outcome]) -> None:
        """Take over the block, once: whoever waits may be woken before this callback is run."""
        if self._request is not request:
            return
        self._request = None
        if request.cancelled() or request.exception() is not None:
            return
        outcome = request.result()
        if isinstance(outcome, ProducerIdsAllocated):
            self._blocks.append(range(outcome.first, outcome.first + outcome.count))


def _unavailable(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no block of producer ids: {reason}")
