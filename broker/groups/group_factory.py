"""The factory of groups that can change their protocol. Pure."""

from broker.groups.group.live import GroupFactory
from broker.groups.migration.protocol_change import loaded, new

GROUP_FACTORY = GroupFactory(new, loaded)
