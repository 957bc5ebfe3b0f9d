"""Fetch (1), v4 to v18: read record batches.

Whole batches only, as stored, never a part of one and never a gap; the first batch comes whatever
its size (KIP-74). Sessions KIP-227, leader epochs KIP-320 (the epoch is the era's), topic ids
KIP-516, diverging epochs KIP-595, racks KIP-392 (v11). read_committed ends at the last stable
offset. Waiting, barriers and what happens without the log or the store: `broker.fetch.fetch_path`.

Not served: followers (who tells a replica id is served as a consumer without a rack).
"""

from typing import Final

from broker.api import Api, Hot, Operation, Resource, Right
from broker.calls.call import Call
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode


def start(node: Node, call: Call) -> None:
    """Take a request; its answer comes now or by callback. Raises ProtocolError when malformed."""
    node.fetching.start(call)


API: Final = Api(
    key=apis.FETCH,
    handler=Hot(start),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.READ, Resource.TOPIC, ("topics[].topic", "topics[].topic_id")),),
)
