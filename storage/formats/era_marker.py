"""Which era a cluster is in: an object `eras/<era>` for each one after the first.

Written once, by the recovery that begins the era (docs/design/running.md §7), and as its last step: from then on no
agent takes part in an earlier one. It names the log's life, so that no other log is taken for the era's, and the
snapshot that the era begins with. For people to read, with a checksum for us. Pure.
"""

import json
from dataclasses import asdict, dataclass
from typing import Final

from crc32c import crc32c

from protocol.fault_codes import FaultCode, FaultError
from protocol.types import Buffer, Position, first_position

FOLDER: Final = "eras"
FORMAT_VERSION: Final = 1
MARKER_BYTES_MAX: Final = 64 * 1024
ERA_MAX: Final = (1 << 15) - 1


class EraMarkerError(FaultError):
    """What lies there says of no era, or of one that a newer release has begun; the sentence says which."""


@dataclass(frozen=True, slots=True)
class EraMarker:
    """How an era began."""

    cluster_id: str
    era: int
    life: str
    """Of its log."""
    origin: str
    """The life of the log in the first era: by it tables know the log that they were made from."""
    behind: Position
    """The last one of the era before of which anything is left."""
    digest: str
    """Of the machine with which it begins, in hex."""
    began_ms: int
    """By the wall clock of the machine on which it was begun."""
    format_version: int = FORMAT_VERSION

    @property
    def key(self) -> str:
        return era_key(self.era)

    @property
    def begun(self) -> Position:
        """Of the snapshot that it begins with."""
        return first_position(self.era)


def era_key(era: int) -> str:
    return f"{FOLDER}/{era:04x}"


def era_of_key(key: str) -> int:
    """The inverse of `era_key`. Raises ValueError when `key` is not that of a marker."""
    era = int(key.removeprefix(f"{FOLDER}/"), 16)
    if key != era_key(era):
        raise ValueError(f"{key!r} is not the key of an era's marker")
    return era


def encode_era(marker: EraMarker) -> bytes:
    fields = asdict(marker)
    return json.dumps(fields | {"checksum": _checksum(fields)}, indent=2).encode() + b"\n"


def _checksum(fields: dict[str, str | int]) -> str:
    return f"{crc32c(json.dumps(fields, sort_keys=True).encode()):08x}"


def decode_era(key: str, data: Buffer) -> EraMarker:
    """What is under the key. Raises EraMarkerError for a newer format, and for what is no marker of it."""
    if len(data) > MARKER_BYTES_MAX:
        raise EraMarkerError(f"{key} says of no era: it has {len(data)} bytes")
    try:
        fields = json.loads(bytes(data))
        version = fields["format_version"]
        if version > FORMAT_VERSION:
            raise EraMarkerError(
                f"{key} has format version {version}, newer than {FORMAT_VERSION}, the newest known here:"
                " use a newer release",
                fault=FaultCode.VERSION_MISMATCH,
            )
        checksum = fields.pop("checksum")
        if checksum != _checksum(fields):
            raise EraMarkerError(f"{key} does not match its checksum: it was edited or damaged")
        marker = EraMarker(**fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EraMarkerError(f"{key} is not readable as how an era began: {error!r}") from error
    if not 1 < marker.era <= ERA_MAX or marker.key != key:
        raise EraMarkerError(f"{key} says how era {marker.era} began")
    return marker
