"""Which class a group's protocol has. Pure."""

from broker.groups.group.live import Kinds
from broker.groups.migration.protocol_change import loaded, new

KINDS = Kinds(new, loaded)
