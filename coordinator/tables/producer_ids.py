"""Producer ids: every one is given once, to an agent as part of a block, or to a transactional id.

Invariants: `next` grows, and whatever is below it has been given.
"""

from typing import Final

from coordinator.commands.entries import AllocateProducerIds, ProducerIdsAllocated, Rejected
from protocol.errors import ErrorCode
from protocol.types import first_producer_id

PRODUCER_IDS_MAX: Final = 100_000
"""Largest block of producer ids that one command gets."""

_END: Final = 1 << 62


class ProducerIds:
    """The counter of producer ids. `allocate` and `use` are for `apply` alone."""

    def __init__(self) -> None:
        self.next = 0

    def allocate(self, command: AllocateProducerIds) -> ProducerIdsAllocated | Rejected:
        """A block for an agent, whose idempotent producers get one each."""
        if not 0 < command.count <= PRODUCER_IDS_MAX:
            reason = f"a block has 1 to {PRODUCER_IDS_MAX} producer ids"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        first = self._take(command.count)
        return ProducerIdsAllocated(first, command.count)

    def begin_era(self, era: int) -> None:
        """The log may have lost blocks: none of what it could have given is given again."""
        self.next = max(self.next, first_producer_id(era))

    def use(self, producer_id: int) -> None:
        """`producer_id` is in use now. If it was the next, it is not any more."""
        if producer_id == self.next:
            self._take(1)

    def _take(self, count: int) -> int:
        first = self.next
        assert first + count <= _END
        self.next = first + count
        return first
