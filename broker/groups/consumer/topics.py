"""Which topics a KIP-848 group subscribes to, by name and by regular expression. Pure.

A subscription is names, most of which may not exist, and perhaps a pattern (KIP-848, RE2). What
it means changes with the topics that there are, so it is looked at anew whenever
`Topics.version` has grown (Kafka: every ten minutes, or when a new image of the metadata comes).

Where there is an authorizer, an expression matches only topics that the client may DESCRIBE.

A topic that was deleted and created again under its name is another topic. The *fingerprint* is of
ids and numbers of partitions, so it shows that; whoever computed a target from the same
fingerprint computed it from the same topics.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from broker.groups.consumer.members import Subscription
from broker.groups.consumer.subscriptions import FIELD, resolve
from broker.groups.group.effects import TopicsSeen
from broker.patterns import MATCHES
from coordinator.tables.topics import Topic, Topics
from protocol.errors import ErrorCode, KafkaError
from protocol.slices import finish
from protocol.types import TopicId

FINGERPRINT_BYTES: Final = 8
RESOLVE_EVERY_MS: Final = 1_000
"""However many topics come and go, a group asks what its subscriptions mean once in this time."""
PATTERNS_MAX: Final = 32
"""Different expressions of a group: all have to be looked at when there are other topics."""


class SubscriptionMetadata(NamedTuple):
    """The topics that a group's subscriptions match at one version of the topics."""

    ids: dict[Subscription, frozenset[TopicId]]
    partitions: dict[TopicId, int]
    """Of all topics that somebody subscribes to."""
    fingerprint: bytes
    version: int
    at_ms: int


class SubscribedTopics:
    """Resolves subscriptions; caches the matches of regular expressions at the newest version of the topics."""

    __slots__ = ("_matches", "_matches_version", "_names", "_seen", "_seen_ms", "_version")

    def __init__(self) -> None:
        self._version: int | None = None
        """Of the topics that the group's targets take account of."""
        self._seen_ms = 0
        self._names: frozenset[str] = frozenset()
        self._matches: dict[str, frozenset[str]] = {}
        self._matches_version: int | None = None
        self._seen: TopicsSeen | None = None

    def show(self, seen: TopicsSeen) -> None:
        """Resolve expressions by what this client may see. When rights have changed it is due at
        once; until they change again it is the one who came first that counts, as in Kafka."""
        if self.is_behind(seen):
            self._seen = seen
            self._matches_version = self._version = None

    def is_behind(self, seen: TopicsSeen) -> bool:
        """Whether expressions have to be resolved anew, since rights have changed."""
        return self._seen is None or self._seen.version != seen.version

    def is_due(self, topics: Topics, now_ms: int) -> bool:
        """Whether there are other topics than those seen, and that was long enough ago."""
        if topics.version == self._version:
            return False
        return self._version is None or now_ms - self._seen_ms >= RESOLVE_EVERY_MS

    def acted_on(self, metadata: SubscriptionMetadata) -> None:
        """Note that the group's targets take account of these topics, or need not."""
        self._version = metadata.version
        self._seen_ms = metadata.at_ms

    def has_rested(self, ms: int, now_ms: int) -> bool:
        """Whether the newest topics noted by that were resolved so long ago."""
        return self._version is None or now_ms - self._seen_ms >= ms

    def metadata(
        self, subscriptions: Iterable[Subscription], topics: Topics, now_ms: int
    ) -> SubscriptionMetadata:
        """Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
        ids: dict[Subscription, frozenset[TopicId]] = {}
        partitions: dict[TopicId, int] = {}
        for subscription in subscriptions:
            found = self._found(subscription, topics)
            ids[subscription] = frozenset([topic.topic_id for topic in found])
            partitions.update((topic.topic_id, topic.partition_count) for topic in found)
        return SubscriptionMetadata(
            ids, partitions, _fingerprint(partitions), topics.version, now_ms
        )

    def topics_of(self, subscription: Subscription, topics: Topics) -> frozenset[TopicId]:
        """Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
        return frozenset([topic.topic_id for topic in self._found(subscription, topics)])

    def _found(self, subscription: Subscription, topics: Topics) -> list[Topic]:
        names: Iterable[str] = subscription.names
        if subscription.regex:
            names = subscription.names | self._matching(subscription.regex, topics)
        return [topic for name in names if (topic := topics.by_name(name)) is not None]

    def _matching(self, regex: str, topics: Topics) -> frozenset[str]:
        if topics.version != self._matches_version or len(self._matches) > PATTERNS_MAX:
            self._names = frozenset([topic.name for topic in topics])
            self._matches = {}
            self._matches_version = topics.version
        if regex not in self._matches:
            # Of all names, whatever may be seen: so much is remembered when rights change.
            matching = finish(MATCHES.resolve(regex, self._names, field=FIELD))
            seen = self._seen
            self._matches[regex] = matching if seen is None else seen.of(matching)
        return self._matches[regex]


def refuse_too_many(subscriptions: Iterable[Subscription], come: Subscription) -> None:
    """Raises KafkaError when one more expression than a group may have comes to these."""
    known = {subscription.regex for subscription in subscriptions if subscription.regex}
    if come.regex and come.regex not in known and len(known) >= PATTERNS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The members of a group have at most {PATTERNS_MAX} different expressions.",
        )


def subscribes(subscriptions: Iterable[Subscription], topic_name: str) -> bool:
    """Whether a topic of this name is, or would be, among the topics of one of them."""
    return any(
        topic_name in subscription.names
        or (subscription.regex and resolve(subscription.regex, (topic_name,)))
        for subscription in subscriptions
    )


def _fingerprint(partitions: dict[TopicId, int]) -> bytes:
    digest = blake2b(digest_size=FINGERPRINT_BYTES)
    for topic_id in sorted(partitions):
        digest.update(topic_id)
        digest.update(partitions[topic_id].to_bytes(4, "big"))
    return digest.digest()
