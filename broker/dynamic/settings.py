"""Which of an agent's settings change while it runs, who may set them, and whose value holds (KIP-226). Pure.

As in Kafka: for one agent, or for all; what is for one agent holds before what is for all, and both
before what the agent was started with. `broker.config.kafka_table` says which settings these are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from broker.config.changes import ConfigRules
from broker.config.config_row import Kind, refusal
from broker.config.kafka_settings import KafkaSettings, parse, row_of
from broker.config.kafka_table import DYNAMIC, FIXED, PER_AGENT
from protocol.errors import ErrorCode, KafkaError


class InForce(NamedTuple):
    settings: KafkaSettings
    ignored: list[str]
    """A sentence for each setting in the log that this agent does not take."""


def in_force(
    given: KafkaSettings, *, of_all: Mapping[str, str], of_agent: Mapping[str, str]
) -> InForce:
    """What holds: `given` when the agent was started, and then set for all agents and for this one.

    What cannot hold was set by, or through, another agent: of another release, or that was started
    with other settings. It is ignored, and the layer below holds.
    """
    settings, below = _layered(given, _Layer.OF_ALL, of_all)
    settings, own = _layered(settings, _Layer.OF_AGENT, of_agent)
    return InForce(settings, below + own)


class _Layer(Enum):
    """For whom something was set; as it is told."""

    OF_ALL = "all agents"
    OF_AGENT = "this agent"


def _layered(
    below: KafkaSettings, layer: _Layer, configs: Mapping[str, str]
) -> tuple[KafkaSettings, list[str]]:
    """The settings with all of one layer that can hold, and sentences about the rest."""
    allowed = DYNAMIC - PER_AGENT if layer is _Layer.OF_ALL else DYNAMIC
    taken = {name: text for name, text in configs.items() if name in allowed}
    reasons = dict.fromkeys(configs.keys() - allowed, "it does not change while agents run")
    settings, mistakes = _with(below, layer, taken)
    if mistakes:
        wanted, settings, taken = taken, below, {}
        for name, text in sorted(wanted.items()):
            tried, mistakes = _with(below, layer, taken | {name: text})
            if mistakes:
                reasons[name] = mistakes[0]
            else:
                settings, taken = tried, taken | {name: text}
    return settings, [
        f"{name}, which was set for {layer.value} while they run, is ignored: {reasons[name]}"
        for name in sorted(reasons)
    ]


def _with(
    below: KafkaSettings, layer: _Layer, configs: Mapping[str, str]
) -> tuple[KafkaSettings, list[str]]:
    """The settings with one layer more, and what is wrong with them."""
    if not configs:
        return below, []
    parsed = parse({**below.given, **below.of_all, **configs})
    of_all, of_agent = below.of_all, below.of_agent
    if layer is _Layer.OF_ALL:
        of_all = dict(configs)
    else:
        of_agent = dict(configs)
    found = replace(parsed.settings, given=below.given, of_all=of_all, of_agent=of_agent)
    return found, parsed.mistakes


def rules(
    given: KafkaSettings, before: Mapping[str, str], *, of_all: Mapping[str, str] | None
) -> ConfigRules:
    """How the settings of one agent may be altered, that was started with `given` and has `before`;
    or with `of_all` None, those of all agents. What is refused has Kafka's codes and sentences."""
    layer = _Layer.OF_ALL if of_all is None else _Layer.OF_AGENT
    below = given if of_all is None else in_force(given, of_all=of_all, of_agent={}).settings

    def check_together(after: Mapping[str, str]) -> str | None:
        changed = {name: text for name, text in after.items() if before.get(name) != text}
        if fixed := sorted(name for name in changed if name not in DYNAMIC):
            raise _refused("Cannot update these configs dynamically", fixed, _reasons(fixed))
        for name, text in changed.items():
            row = row_of(name)
            assert row is not None
            if (reason := refusal(row, text)) is not None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        of_agents = sorted(changed.keys() & PER_AGENT)
        if of_all is None and of_agents:
            raise _refused(
                "Cannot update these configs at default cluster level, broker id must be specified",
                of_agents,
            )
        settings, mistakes = _with(below, layer, _known(after))
        # What is wrong already is nobody's fault who sets something else.
        _, old_mistakes = _with(below, layer, _known(before))
        mistakes = [each for each in mistakes if each not in old_mistakes]
        if settings.max_connections == 0:
            mistakes.append("max.connections of 0 would let nobody in who could undo it")
        if mistakes:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "; ".join(mistakes))
        return None

    return ConfigRules(
        check=lambda name, text: None,
        check_together=check_together,
        is_list=_is_list,
        inherited=lambda name: below.text(name) or "",
    )


def _known(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in configs.items() if name in DYNAMIC}


def _is_list(name: str) -> bool:
    row = row_of(name)
    return row is not None and row.kind is Kind.LIST


def _reasons(names: Iterable[str]) -> str:
    """Why Frazil fixes what Kafka does not; also of single listeners (`listener.name.x.…`)."""
    found = []
    for name in names:
        words = name.split(".")
        of_listener = words[:2] == ["listener", "name"]
        # A SASL mechanism may stand between the listener and the setting.
        bases = [".".join(words[at:]) for at in ((3, 4) if of_listener else (0,))]
        found += [FIXED[base] for base in bases if base in FIXED]
    return "; ".join(dict.fromkeys(found))


def _refused(sentence: str, names: list[str], reasons: str = "") -> KafkaError:
    told = f"{sentence}: [{', '.join(names)}]"
    return KafkaError(ErrorCode.INVALID_REQUEST, f"{told}: {reasons}" if reasons else told)
