"""What a client says it is made of (KIP-511): name and version of its library, as ApiVersions has them; and
whether it was seen to produce. Pure.

Left out: who it is (`broker.calls.requester`); nobody has a right by this.
"""

import functools
from typing import Final, NamedTuple

CHARACTERS_MAX: Final = 100
"""Of each that are kept; Kafka's clients use twenty."""


class Software(NamedTuple):
    """Of one client."""

    name: str
    version: str
    produces: bool = False
    """A Produce request has come by the connection that this is kept for."""


UNKNOWN: Final = Software("unknown", "unknown")
"""Of a client that did not say, as in Kafka (ClientInformation)."""


@functools.lru_cache(maxsize=1024)
def software_of(name: str, version: str, *, produces: bool = False) -> Software:
    """The same value for all clients alike, since each connection keeps one."""
    return Software(name[:CHARACTERS_MAX], version[:CHARACTERS_MAX], produces)
