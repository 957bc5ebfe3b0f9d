"""The factory of groups that can change their protocol. Pure."""

from broker.groups.group.live import Kinds
from broker.groups.migration.protocol_change import loaded, new

KINDS = Kinds(new, loaded)
