"""Which partitions of a fetch its requester may read. Pure.

Asked whenever partitions are looked at, so also of sessions that began, and of fetches that were parked,
when the topic could still be read. Each topic is asked for once, not each partition.

Left out: the decision (`broker.rights`).
"""

from collections.abc import Sequence
from typing import Final

from broker.calls.requester import Requester
from broker.fetch.sessions import CachedPartition
from broker.fetch.statuses import FetchPartitionStatus
from broker.rights.rights import Rights
from coordinator.tables.topics import Topics
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.types import TopicId

REFUSED: Final = FetchPartitionStatus(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def permitted(
    rights: Rights,
    requester: Requester,
    topics: Topics,
    places: Sequence[CachedPartition],
    statuses: list[FetchPartitionStatus],
) -> list[FetchPartitionStatus]:
    """What is said of the partitions: of a topic that may not be read nothing but that, whether
    there is one of its name or not. An id that is unknown is unknown, as in Kafka."""
    refused: dict[str | TopicId | None, bool] = {}
    before: str | TopicId | None = None
    for place in places:
        topic = place.topic_id or place.name
        if topic is before or topic in refused:
            continue
        before = topic
        name = place.name
        if place.topic_id is not None:
            found = topics.by_id(place.topic_id)
            name = None if found is None else found.name
        refused[topic] = name is not None and not rights.permits(
            requester, "Fetch", Operation.READ, ResourceType.TOPIC, name
        )
    if True not in refused.values():
        return statuses
    return [
        REFUSED if refused[place.topic_id or place.name] else seen
        for place, seen in zip(places, statuses, strict=True)
    ]
