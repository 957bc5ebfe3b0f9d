"""Client quotas, what agents use up of them, and configs that were set at run time, in a snapshot.

A friend of the tables. They come behind delegation tokens, and only when there ever were any, so that
the snapshot of a cluster without them is one that the release before reads, too.
"""

from typing import Final

from coordinator.commands.config_commands import ConfigKind, Quota, QuotaEntity, UsageRow
from coordinator.commands.layout import Float64, byte_of, layout_of, mapping_of, tuple_of
from coordinator.snapshot.rows import (
    POSITION,
    STRING,
    STRINGS,
    Fields,
    read,
    read_fields,
    write,
    write_fields,
)
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.administration.client_quotas import ClientQuotas
from coordinator.tables.administration.dynamic_configs import DynamicConfigs
from coordinator.tables.administration.quota_usage import QuotaUsage
from protocol.types import POSITION_ZERO, Incarnation

_VERSION: Final[Fields] = {"version": POSITION}
_QUOTAS: Final = tuple_of(
    {"[0]": layout_of(QuotaEntity), "[1]": mapping_of(byte_of(Quota), layout_of(Float64))}
)
_CONFIGS: Final = tuple_of({"[0]": byte_of(ConfigKind), "[1]": STRING, "[2]": STRINGS})

_USAGE: Final = tuple_of({"[0]": layout_of(Incarnation), "[1]": layout_of(tuple[UsageRow, ...])})


def has_configs(quotas: ClientQuotas, configs: DynamicConfigs, usage: QuotaUsage) -> bool:
    """Whether there is anything to be written."""
    return max(quotas.version, configs.version) != POSITION_ZERO or len(usage) > 0


def dump_configs(
    out: BlockWriter,
    quotas: ClientQuotas,
    configs: DynamicConfigs,
    usage: QuotaUsage,
    *,
    more_follows: bool,
) -> None:
    """`more_follows`: something comes behind them, so they cannot be left out."""
    if has_configs(quotas, configs, usage) or more_follows:
        write_fields(out, (quotas, _VERSION), (configs, _VERSION))
        write(out, quotas, len(quotas), _QUOTAS)
        write(out, configs, len(configs), _CONFIGS)
        write(out, usage, len(usage), _USAGE)


def restore_configs(
    parts: BlockReader, quotas: ClientQuotas, configs: DynamicConfigs, usage: QuotaUsage
) -> None:
    for table, empty in (
        (quotas, ClientQuotas()),
        (configs, DynamicConfigs()),
        (usage, QuotaUsage()),
    ):
        for name in vars(empty):
            setattr(table, name, getattr(empty, name))
    if parts.is_at_end:
        return
    read_fields(parts, (quotas, _VERSION), (configs, _VERSION))
    for entity, row in read(parts, _QUOTAS):
        quotas._rows[entity] = row
    for kind, name, row in read(parts, _CONFIGS):
        configs._rows.setdefault(kind, {})[name] = row
    for incarnation, rows in read(parts, _USAGE):
        usage._rows[incarnation] = rows
