"""Addresses of schema registries, as settings and flags say them. Pure."""

import re
from typing import Final

_ADDRESS: Final = re.compile(
    r"(?P<scheme>(?i:https?)://)((?P<user>[^\s/@]+)@)?(?P<place>[^\s/@?#]+(/[^\s@?#]*[^\s@?#/])?)/*"
)


def is_url(text: str) -> bool:
    """Tells whether a text is the address of a registry, without a user in it."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and match["user"] is None


def parted(url: str) -> tuple[str, str | None]:
    """A URL without its user, and `user:password`."""
    match = _ADDRESS.fullmatch(url)
    return (url, None) if match is None else (f"{match['scheme']}{match['place']}", match["user"])
