"""The table of configs that were set at run time: of agents, and of subscriptions to clients' metrics.

KIP-226, KIP-714. Names and values are texts here; `broker.config` says what they mean.

Invariant: a resource that is here has a config. `version` is the position of the newest change.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from coordinator.commands.config_commands import (
    CONFIG_RESOURCES_MAX,
    CONFIG_VALUE_MAX,
    RESOURCE_NAME_MAX,
    ChangeConfigs,
    ConfigKind,
)
from coordinator.commands.encoding import CONFIGS_MAX
from coordinator.commands.entries import DONE, Done, Rejected
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position

_NONE: Final[Mapping[str, str]] = {}


class DynamicConfigs:
    """Configs by kind and name of the resource. To be read only, but by `apply`."""

    def __init__(self) -> None:
        self.version: Position = POSITION_ZERO
        self._rows: dict[ConfigKind, dict[str, dict[str, str]]] = {}

    def __iter__(self) -> Iterator[tuple[ConfigKind, str, Mapping[str, str]]]:
        for kind, resources in self._rows.items():
            for name, configs in resources.items():
                yield kind, name, configs

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def names(self, kind: ConfigKind) -> list[str]:
        return [*self._rows.get(kind, ())]

    def of(self, kind: ConfigKind, name: str) -> Mapping[str, str]:
        """What was set for this resource."""
        return self._rows.get(kind, {}).get(name, _NONE)

    # For `apply`.

    def apply(self, command: ChangeConfigs, position: Position) -> Done | Rejected:
        """Codes of a refusal: INVALID_REQUEST it cannot be a config, POLICY_VIOLATION there is no room."""
        if (reason := misfit(command)) is not None:
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        resources = self._rows.get(command.kind, {})
        configs = dict(resources.get(command.name, _NONE))
        for name, value in command.changes:
            if value is None:
                configs.pop(name, None)
            else:
                configs[name] = value
        if len(configs) > CONFIGS_MAX:
            reason = f"a resource has {CONFIGS_MAX} configs at most"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        is_new = bool(configs) and command.name not in resources
        if is_new and len(resources) >= CONFIG_RESOURCES_MAX:
            reason = f"there are {CONFIG_RESOURCES_MAX} resources of this kind with configs"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        if configs:
            self._rows.setdefault(command.kind, {})[command.name] = configs
        elif command.name in resources:
            del resources[command.name]
            if not resources:
                del self._rows[command.kind]
        self.version = position
        return DONE


def misfit(command: ChangeConfigs) -> str | None:
    """Why these cannot be configs, as a sentence; None when they can."""
    if len(command.name) > RESOURCE_NAME_MAX:
        return f"the name of a resource has at most {RESOURCE_NAME_MAX} characters"
    names = [name for name, _ in command.changes]
    if names != sorted({*names}):
        return "configs are named once each, in order"
    for name, value in command.changes:
        if not 0 < len(name) <= RESOURCE_NAME_MAX:
            return f"the name of a config has 1 to {RESOURCE_NAME_MAX} characters"
        if value is not None and len(value) > CONFIG_VALUE_MAX:
            return f"{name} has more than {CONFIG_VALUE_MAX} characters"
    return None
