"""Addresses that settings name. Pure."""

import ipaddress
from typing import NamedTuple

WILDCARD_HOSTS = ("0.0.0.0", "::", "*")  # noqa: S104 - Compared with, not bound to.


class Address(NamedTuple):
    """Host and port of an HTTP listener; port 0 picks a free one."""

    host: str
    port: int
    secure: bool = False
    """It speaks TLS (`https://`)."""


class NamedAddress(NamedTuple):
    """A Kafka listener: `INTERNAL://10.0.0.1:9092`; the name is PLAINTEXT when not given."""

    name: str
    host: str
    port: int | None
    """None (only when advertised): the port that is listened on."""


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches it. Names other than localhost are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
