"""Which class a group's protocol has. Pure."""

from broker.groups.live import Kinds, LiveGroup
from broker.groups.settings import GroupSettings
from coordinator.group_commands import GroupKind
from coordinator.groups import GroupRow


def _new(kind: GroupKind, group_id: str, settings: GroupSettings) -> LiveGroup:
    raise ValueError(f"no protocol of kind {kind!r} is served")


def _loaded(row: GroupRow, settings: GroupSettings, now_ms: int) -> LiveGroup:
    raise ValueError(f"no protocol of kind {row.kind!r} is served")


KINDS = Kinds(_new, _loaded)
