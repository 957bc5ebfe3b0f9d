"""Configs of agents and of telemetry in the log: set, unset, refused; and what snapshots keep of them."""

import pytest

from coordinator.commands.config_commands import ChangeConfigs, ConfigKind
from coordinator.commands.entries import DONE, Rejected
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from coordinator.tables.administration import dynamic_configs as table_module
from protocol.errors import ErrorCode
from tests.coordinator.machine.story import with_agents
from tests.coordinator.snapshot.compare import differences

BROKER, METRICS = ConfigKind.BROKER, ConfigKind.CLIENT_METRICS


def change(kind: ConfigKind, name: str, **configs: str | None) -> ChangeConfigs:
    return ChangeConfigs(kind, name, tuple(sorted(configs.items())))


def error(outcome) -> ErrorCode:
    return outcome.error if isinstance(outcome, Rejected) else ErrorCode.NONE


def test_configs_are_of_the_resource_of_this_kind_and_name():
    story, agent = with_agents()
    assert story.do(agent, change(BROKER, "1", a="x")) == DONE
    configs = story.machine.dynamic_configs
    assert configs.of(BROKER, "1") == {"a": "x"}
    assert configs.of(BROKER, "") == configs.of(METRICS, "1") == {}
    assert configs.version == story.machine.position


def test_what_is_not_named_stays_as_it_was():
    story, agent = with_agents()
    story.do(agent, change(BROKER, "", a="x", b="y"))
    story.do(agent, change(BROKER, "", a="z"))
    assert story.machine.dynamic_configs.of(BROKER, "") == {"a": "z", "b": "y"}


def test_a_resource_without_configs_is_there_no_more():
    story, agent = with_agents()
    story.do(agent, change(METRICS, "slow", metrics="*"))
    assert story.machine.dynamic_configs.names(METRICS) == ["slow"]
    story.do(agent, change(METRICS, "slow", metrics=None))
    assert story.machine.dynamic_configs.names(METRICS) == []


@pytest.mark.parametrize(
    "command",
    [
        ChangeConfigs(BROKER, "x" * 257, ()),
        ChangeConfigs(BROKER, "", (("b", "1"), ("a", "1"))),
        ChangeConfigs(BROKER, "", (("a", "1"), ("a", "2"))),
        ChangeConfigs(BROKER, "", (("", "1"),)),
        ChangeConfigs(BROKER, "", (("a", "x" * 8_001),)),
    ],
)
def test_what_cannot_be_a_config_is_refused(command):
    story, agent = with_agents()
    assert error(story.do(agent, command)) == ErrorCode.INVALID_REQUEST
    assert len(story.machine.dynamic_configs) == 0


def test_resources_beyond_what_there_is_room_for_are_refused(monkeypatch):
    monkeypatch.setattr(table_module, "CONFIG_RESOURCES_MAX", 1)
    story, agent = with_agents()
    story.do(agent, change(METRICS, "slow", metrics="*"))
    assert error(story.do(agent, change(METRICS, "other", a="x"))) == ErrorCode.POLICY_VIOLATION
    assert story.do(agent, change(METRICS, "slow", metrics="")) == DONE


def test_a_resource_has_no_more_configs_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(table_module, "CONFIGS_MAX", 1)
    story, agent = with_agents()
    outcome = story.do(agent, change(BROKER, "", a="x", b="y"))
    assert error(outcome) == ErrorCode.POLICY_VIOLATION


def test_a_snapshot_has_the_configs():
    story, agent = with_agents()
    story.do(agent, change(BROKER, "", a="x", b=""))
    story.do(agent, change(METRICS, "slow", metrics="*"))
    other = Machine()
    restore(other, dump(story.machine))
    assert not differences(story.machine, other)


def test_a_snapshot_restored_over_configs_has_none_of_them():
    story, agent = with_agents()
    story.do(agent, change(BROKER, "", a="x"))
    restore(story.machine, dump(Machine()))
    assert len(story.machine.dynamic_configs) == 0
