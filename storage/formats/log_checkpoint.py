"""Checkpoints of the metadata log: objects that say how far it had got.

    checkpoints/<incarnation>/<position>    the log had reached the position; written by the agent

An agent writes one when its incarnation has begun, with the incarnation's own position, and others
while it appends; so the object store knows of positions without the log, and a log that ends before
one of them is older than the store. Keys say all; the body is for people.

The first checkpoint of an incarnation stays while that is live: when the store took it in is when,
by the store's clock, the agent began. The newest of all stays for ever. Pure.
"""

import json
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from crc32c import crc32c

from protocol.types import Incarnation, Position, era_of
from storage.stores.object_store import ObjectInfo

FOLDER: Final = "checkpoints/"
FORMAT_VERSION: Final = 1


class LogCheckpoint(NamedTuple):
    """The log had reached `position` when the agent of `incarnation` wrote this."""

    incarnation: Incarnation
    position: Position

    @property
    def key(self) -> str:
        return f"{FOLDER}{self.incarnation:016x}/{self.position:016x}"

    @property
    def is_first(self) -> bool:
        """Whether it is that of the incarnation's beginning."""
        return self.position == Position(self.incarnation)

    @classmethod
    def of_key(cls, key: str) -> Self:
        """The inverse of `key`. Raises ValueError when `key` is not that of a checkpoint."""
        incarnation, _, position = key.removeprefix(FOLDER).partition("/")
        if not key.startswith(FOLDER) or len(incarnation) != 16 or len(position) != 16:
            raise ValueError(f"{key!r} is not the key of a checkpoint")
        return cls(Incarnation(int(incarnation, 16)), Position(int(position, 16)))

    def encode(self, *, cluster_id: str) -> bytes:
        """The object's bytes: always the same for the same checkpoint."""
        fields: dict[str, str | int] = {
            "cluster_id": cluster_id,
            "era": era_of(self.position),
            "format_version": FORMAT_VERSION,
            "incarnation": self.incarnation,
            "position": self.position,
        }
        checksum = f"{crc32c(json.dumps(fields).encode()):08x}"
        return json.dumps(fields | {"checksum": checksum}).encode() + b"\n"


def found_in(page: Iterable[ObjectInfo]) -> dict[LogCheckpoint, int]:
    """The checkpoints in a listing, and when the store took each in, in ms of its clock."""
    found: dict[LogCheckpoint, int] = {}
    for info in page:
        try:
            found[LogCheckpoint.of_key(info.key)] = info.modified_ms
        except ValueError:
            continue  # Somebody else's: not read, not deleted.
    return found
