"""The command by which an operator gives up what the store has lost.

An agent whose operator has seen that objects are gone or damaged writes a segment without records in the place of
their rows, and proposes this. `apply` judges it as it does a job's proposal: the rows must be those that were seen.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from coordinator.commands.declaration import command
from coordinator.commands.layout import UInt31, UInt32, UInt63, fixed
from protocol.types import TopicId
from storage.formats.page import DIGEST_BYTES

LOSS_LEVEL: Final = 6
"""`feature_level_max` of an agent that can decode this. While one that cannot is live, it is not proposed: that one
would stop (P13)."""


@command(84, bounds_log=True)
@dataclass(frozen=True, slots=True)
class DeclareLost:
    """What these rows of a partition hold is lost: offsets without records take their place.

    Any agent may write it. Consumers go on behind the offsets, as they do where compaction has left nothing.
    """

    topic_id: TopicId
    partition: UInt31
    base_offset: UInt63
    next_offset: UInt63
    rows: UInt31
    """How many: spans, or pages that are lost themselves."""
    digest: Annotated[bytes, fixed(DIGEST_BYTES, "a digest")]
    """Of the rows (`storage.formats.page.digest_of_rows`)."""
    page: bytes
    """Where the rows lie in a page that can be read: its body, which comes back first; else nothing."""
    number: UInt32
    """Of the segment, an object of the writer's that is durable."""
    length: UInt32
    """Bytes of the segment."""
    start: UInt32
    """First byte there of the span without records."""
    span_length: UInt32
    """Bytes of that span."""
