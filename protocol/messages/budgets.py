"""How many elements a request may have, by API: of all its arrays together, one inside another too.

Kafka has no such limits, so these lie beyond what a cluster can have: 100,000 partitions, each of a
topic of its own, are 200,000 elements. What is counted is what costs: an element of two bytes may cost hundreds in
memory, and each is handled. The codec counts while it reads, before an array is made; a request of
at most `AT_ONCE_BYTES_MAX` cannot have too many, and is not counted.

What becomes of a request over its budget: `protocol.messages.codec.refusable`.
"""

from typing import Final

from protocol import apis
from protocol.errors import ProtocolError

REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of APIs that carry no records; 100,000 topics with long names still fit."""

RESPONSE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of answers without records. Clients take no more at once (librdkafka's receive.message.max.bytes is
100 MB)."""

AT_ONCE_BYTES_MAX: Final = 4 * 1024
"""Requests up to this are read and handled at once, longer ones in slices of the loop's time."""

PARTITIONS_MAX: Final = 250_000
"""Of what names topics with their partitions: all that a cluster can have, each of a topic of its own,
and more."""
NAMES_MAX: Final = 100_000
"""Of what names topics to be deleted or described, groups, ids, resources."""
CHANGED_MAX: Final = 50_000
"""Of what makes topics or partitions, or sets configs. Kafka takes 10,000 partitions or configs in one
request; assignments of three replicas, or three configs for each topic, come on top."""
PRODUCED_MAX: Final = 20_000
"""Of a Produce, whose partitions are written in one go: 10,000, each of a topic of its own."""
FEW_MAX: Final = 10_000
"""Of everything else: filters, features, protocols of a member, members of a group (5,000)."""

_OF_PARTITIONS: Final = (
    apis.FETCH,
    apis.LIST_OFFSETS,
    apis.METADATA,
    apis.OFFSET_COMMIT,
    apis.OFFSET_FETCH,
    apis.DELETE_RECORDS,
    apis.OFFSET_FOR_LEADER_EPOCH,
    apis.ADD_PARTITIONS_TO_TXN,
    apis.WRITE_TXN_MARKERS,
    apis.TXN_OFFSET_COMMIT,
    apis.ALTER_REPLICA_LOG_DIRS,
    apis.DESCRIBE_LOG_DIRS,
    apis.ELECT_LEADERS,
    apis.ALTER_PARTITION_REASSIGNMENTS,
    apis.LIST_PARTITION_REASSIGNMENTS,
    apis.OFFSET_DELETE,
    apis.DESCRIBE_PRODUCERS,
    apis.CONSUMER_GROUP_HEARTBEAT,
)
_OF_NAMES: Final = (
    apis.FIND_COORDINATOR,
    apis.DESCRIBE_GROUPS,
    apis.DELETE_TOPICS,
    apis.DESCRIBE_CONFIGS,
    apis.DELETE_GROUPS,
    apis.DESCRIBE_TRANSACTIONS,
    apis.CONSUMER_GROUP_DESCRIBE,
    apis.DESCRIBE_TOPIC_PARTITIONS,
)

_OF_CHANGES: Final = (
    apis.CREATE_TOPICS,
    apis.CREATE_PARTITIONS,
    apis.ALTER_CONFIGS,
    apis.INCREMENTAL_ALTER_CONFIGS,
    apis.CREATE_ACLS,
    apis.ALTER_CLIENT_QUOTAS,
)

ELEMENTS_MAX: Final = {
    **dict.fromkeys(apis.APIS, FEW_MAX),
    **dict.fromkeys(_OF_CHANGES, CHANGED_MAX),
    **dict.fromkeys(_OF_NAMES, NAMES_MAX),
    **dict.fromkeys(_OF_PARTITIONS, PARTITIONS_MAX),
    apis.PRODUCE: PRODUCED_MAX,
}
"""By API key."""


class OverBudgetError(ProtocolError):
    """A request has more elements than its API's budget."""

    def __init__(self, key: int) -> None:
        most = ELEMENTS_MAX[key]
        super().__init__(
            f"a request of {apis.APIS[key].name} with more than {most} elements;"
            " ask for fewer at a time"
        )


def elements_max(key: int, body_bytes: int) -> int:
    """How many elements a request of so many bytes may come to; an empty string takes one."""
    return min(ELEMENTS_MAX[key], body_bytes)
