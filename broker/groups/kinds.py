"""Which class a group's protocol has. Pure."""

from broker.groups.live import Kinds
from broker.groups.migration import loaded, new

KINDS = Kinds(new, loaded)
