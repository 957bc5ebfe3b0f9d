"""What holds for each topic's records, parsed once per topic. Pure.

A topic's configs cannot be altered yet; when they can, `forget` is the place to say so.
"""

from broker.kafka_settings import KafkaSettings
from broker.topic_configs import TopicSettings, effective
from coordinator.topics import Topic
from protocol.types import TopicId


class TopicRules:
    """Effective settings of topics, by id."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._known: dict[TopicId, TopicSettings] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, topic: Topic) -> TopicSettings:
        known = self._known.get(topic.topic_id)
        if known is None:
            known = self._known[topic.topic_id] = effective(topic.configs, self._kafka)
        return known

    def forget(self, topic_id: TopicId) -> None:
        """The topic was deleted."""
        self._known.pop(topic_id, None)
