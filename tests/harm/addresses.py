"""Loopback addresses for clients that are to be told apart."""

import socket

_ADDRESSES = {"canary": "127.0.0.2", "attacker": "127.0.0.3", "neighbour": "127.0.0.4"}


def address(who: str) -> str:
    """The one of `who`; 127.0.0.1 on systems where loopback has no other (macOS)."""
    with socket.socket() as probe:
        try:
            probe.bind((_ADDRESSES[who], 0))
        except OSError:
            return "127.0.0.1"
    return _ADDRESSES[who]
