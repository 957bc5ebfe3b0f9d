"""Topics and agents by the names that a story gives them, both ways."""

from dataclasses import dataclass, field

from protocol.types import Incarnation, TopicId

Place = tuple[TopicId, int]
"""A topic and a partition of it, TOPIC/PARTITION in text."""


@dataclass
class Names:
    topics: dict[str, TopicId] = field(default_factory=dict)
    agents: dict[str, Incarnation] = field(default_factory=dict)

    def place(self, text: str) -> Place:
        name, _, number = text.rpartition("/")
        return self.topics[name], int(number)

    def of_place(self, topic_id: TopicId, partition: int) -> str:
        names = {topic_id: name for name, topic_id in self.topics.items()}
        return f"{names.get(topic_id, '(deleted)')}/{partition}"

    def of_agent(self, incarnation: Incarnation) -> str:
        return {number: name for name, number in self.agents.items()}[incarnation]
