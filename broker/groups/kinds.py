"""Which class a group's protocol has. Pure."""

from broker.groups.classic import ClassicGroup
from broker.groups.consumer import ConsumerGroup
from broker.groups.live import Kinds, LiveGroup
from broker.groups.settings import GroupSettings
from coordinator.group_commands import GroupKind
from coordinator.groups import GroupRow


def _new(kind: GroupKind, group_id: str, settings: GroupSettings) -> LiveGroup:
    if kind is GroupKind.CONSUMER:
        return ConsumerGroup.new(group_id, settings)
    return ClassicGroup.new(group_id, settings)


def _loaded(row: GroupRow, settings: GroupSettings, now_ms: int) -> LiveGroup:
    if row.kind is GroupKind.CONSUMER:
        return ConsumerGroup.loaded(row, settings, now_ms)
    return ClassicGroup.loaded(row, settings, now_ms)


KINDS = Kinds(_new, _loaded)
