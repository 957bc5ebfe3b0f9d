"""Client quotas and configs that were set at run time, in a snapshot.

A friend of both tables. They come behind delegation tokens, and only when there ever were any, so that
the snapshot of a cluster without them is one that the release before reads, too.
"""

from typing import Final

from coordinator.commands.config_commands import ConfigKind, Quota, QuotaEntity
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
from protocol.types import POSITION_ZERO

_VERSION: Final[Fields] = {"version": POSITION}
_QUOTAS: Final = tuple_of(
    {"[0]": layout_of(QuotaEntity), "[1]": mapping_of(byte_of(Quota), layout_of(Float64))}
)
_CONFIGS: Final = tuple_of({"[0]": byte_of(ConfigKind), "[1]": STRING, "[2]": STRINGS})


def has_configs(quotas: ClientQuotas, configs: DynamicConfigs) -> bool:
    """Whether there is anything to be written."""
    return quotas.version != POSITION_ZERO or configs.version != POSITION_ZERO


def dump_configs(out: BlockWriter, quotas: ClientQuotas, configs: DynamicConfigs) -> None:
    if has_configs(quotas, configs):
        write_fields(out, (quotas, _VERSION), (configs, _VERSION))
        write(out, quotas, len(quotas), _QUOTAS)
        write(out, configs, len(configs), _CONFIGS)


def restore_configs(parts: BlockReader, quotas: ClientQuotas, configs: DynamicConfigs) -> None:
    for table, empty in ((quotas, ClientQuotas()), (configs, DynamicConfigs())):
        for name in vars(empty):
            setattr(table, name, getattr(empty, name))
    if parts.is_at_end:
        return
    read_fields(parts, (quotas, _VERSION), (configs, _VERSION))
    for entity, row in read(parts, _QUOTAS):
        quotas._rows[entity] = row
    for kind, name, row in read(parts, _CONFIGS):
        configs._rows.setdefault(kind, {})[name] = row
