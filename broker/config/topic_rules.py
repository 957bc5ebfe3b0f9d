"""What holds for each topic's records, parsed once per topic and set of configs. Pure.

A topic whose configs are altered has a new row in the machine: what was parsed from the old one
holds no longer. Nor does anything when the agent's settings, whose defaults topics have, were changed.
"""

from broker.config.kafka_settings import HasKafka
from broker.config.topic_configs import TopicSettings, effective
from coordinator.tables.topics import Topic
from protocol.types import TopicId


class TopicRules:
    """Effective settings of topics, by id."""

    def __init__(self, settings: HasKafka) -> None:
        self._settings = settings
        self._kafka = settings.kafka
        self._known: dict[TopicId, tuple[Topic, TopicSettings]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, topic: Topic) -> TopicSettings:
        if self._kafka is not self._settings.kafka:
            self._kafka = self._settings.kafka
            self._known.clear()
        known = self._known.get(topic.topic_id)
        if known is None or known[0] is not topic:
            known = self._known[topic.topic_id] = (topic, effective(topic.configs, self._kafka))
        return known[1]

    def forget(self, topic_id: TopicId) -> None:
        """The topic was deleted."""
        self._known.pop(topic_id, None)
