"""The settings of an agent as they are by now."""

from broker.config.kafka_settings import KafkaSettings
from broker.config.topic_rules import TopicRules
from broker.dynamic.in_force import SettingsInForce
from coordinator.commands.config_commands import ChangeConfigs, ConfigKind
from coordinator.tables.administration.dynamic_configs import DynamicConfigs
from coordinator.tables.topics import Topic
from protocol.types import Position, TopicId


class Story:
    def __init__(self) -> None:
        self.configs = DynamicConfigs()
        self.settings = SettingsInForce(KafkaSettings(), self.configs)
        self.changes = 0
        self.settings.on_change(self._changed)
        self._position = 0

    def _changed(self) -> None:
        self.changes += 1

    def set(self, who: str, name: str, value: str | None) -> None:
        self._position += 1
        command = ChangeConfigs(ConfigKind.BROKER, who, ((name, value),))
        self.configs.apply(command, Position(self._position))


def test_settings_follow_the_log_and_whoever_keeps_some_is_called() -> None:
    story = Story()
    story.set("", "max.connections", "9")
    assert story.settings.refresh(None) == []
    assert (story.settings.kafka.max_connections, story.changes) == (9, 1)
    story.set("", "max.connections", None)
    story.settings.refresh(None)
    assert (story.settings.kafka, story.changes) == (KafkaSettings(), 2)


def test_an_agents_own_settings_hold_as_soon_as_it_has_a_number() -> None:
    story = Story()
    story.set("7", "max.connections", "9")
    story.set("8", "max.connections", "10")
    story.settings.refresh(None)
    assert story.settings.kafka.max_connections == 2147483647
    story.settings.refresh(7)
    assert story.settings.kafka.max_connections == 9
    story.set("7", "max.connections", "11")
    story.settings.refresh(None)
    assert story.settings.kafka.max_connections == 11


def test_what_others_have_set_for_themselves_changes_nothing_here() -> None:
    story = Story()
    story.settings.refresh(7)
    before = story.settings.kafka
    story.set("8", "max.connections", "10")
    story.settings.refresh(7)
    assert story.settings.kafka is before
    assert story.changes == 0


def test_what_is_ignored_is_told_once_and_again_when_it_has_been_away() -> None:
    story = Story()
    story.set("", "of.the.next.release", "1")
    (told,) = story.settings.refresh(7)
    assert told.startswith("of.the.next.release, which was set for all agents while they run")
    story.set("", "max.connections", "9")
    assert story.settings.refresh(7) == []
    story.set("", "of.the.next.release", None)
    assert story.settings.refresh(7) == []
    story.set("", "of.the.next.release", "1")
    assert len(story.settings.refresh(7)) == 1


def test_what_holds_for_a_topic_follows_the_settings() -> None:
    story = Story()
    rules = TopicRules(story.settings)
    topic = Topic(TopicId(bytes(16)), "t", 1, {"retention.bytes": "5"}, Position(1))
    assert rules.of(topic).retention_ms == 604_800_000
    story.set("", "log.retention.ms", "1000")
    story.set("", "log.retention.bytes", "1000")
    story.settings.refresh(None)
    assert rules.of(topic).retention_ms == 1000
    assert rules.of(topic).retention_bytes == 5
