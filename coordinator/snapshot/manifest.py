"""Keys and manifests of snapshots, and the list of them in the log. JSON, for people too.

A snapshot lies under `snapshots/<position>/`: numbered parts, and a manifest that is written last,
so whoever finds it finds the parts. Its key names the snapshot in the log (`MetadataLog.publish`).
"""

import json
from collections.abc import Generator, Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from coordinator.snapshot.keeping import SnapshotPin
from coordinator.snapshot.stream import SnapshotError
from coordinator.tables.snapshots import Published
from protocol.types import Buffer, Position

FOLDER: Final = "snapshots"
MANIFEST_VERSION: Final = 1
_LISTED_VERSION: Final = 1
_STEP_BYTES: Final = 1024 * 1024


class LoadableSnapshot(NamedTuple):
    """A snapshot that may be loaded."""

    position: Position
    digest: bytes
    """The machine's, at that position."""
    key: str
    """Of its manifest."""


class PartInfo(NamedTuple):
    length: int
    blake2b: bytes


class Manifest(NamedTuple):
    cluster_id: str
    era: int
    position: Position
    digest: bytes
    time_ms: int
    """The machine's time at that position."""
    parts: tuple[PartInfo, ...]
    pins: tuple[SnapshotPin, ...] = ()
    """What kept snapshots at that position, for who has nothing but the store; the oldest first."""


class StoredSnapshot(NamedTuple):
    """A snapshot that has a manifest in the store."""

    position: Position
    key: str
    """Of its manifest."""
    bytes: int
    """Of all of its objects."""
    modified_ms: int
    """When the manifest was put, by the store's clock."""
    manifest: Manifest | None
    trouble: str = ""
    """Why there is no manifest that can be read."""


def manifest_key(position: Position) -> str:
    return f"{FOLDER}/{position:016x}/manifest"


def part_key(position: Position, number: int) -> str:
    return f"{FOLDER}/{position:016x}/{number:04}"


def position_of(key: str) -> Position:
    """The position in the key of a manifest or a part. Raises ValueError for other keys."""
    folder, position, name = key.split("/")
    if folder != FOLDER or len(position) != 16 or not (name == "manifest" or name.isdecimal()):
        raise ValueError(f"{key!r} is not the key of a snapshot's object")
    return Position(int(position, 16))


def digesting(part: Buffer) -> Generator[None, None, PartInfo]:
    """Computes a part's entry of the manifest, in steps of a ms."""
    digest = blake2b(digest_size=32)
    view = memoryview(part)
    for at in range(0, len(view), _STEP_BYTES):
        digest.update(view[at : at + _STEP_BYTES])
        yield
    return PartInfo(len(view), digest.digest())


def encode_published(published: Iterable[LoadableSnapshot | Published]) -> bytes:
    """For the log: the snapshots that may be loaded, newest first."""
    listed = [
        {"position": each.position, "digest": each.digest.hex(), "key": each.key}
        for each in published
    ]
    return json.dumps({"version": _LISTED_VERSION, "snapshots": listed}).encode()


def decode_published(data: bytes) -> tuple[LoadableSnapshot, ...]:
    """The inverse; nothing is listed in no bytes. Raises SnapshotError."""
    if not data:
        return ()
    what = "the list of snapshots in the log"
    fields = _fields(data, what, _LISTED_VERSION)
    try:
        return tuple(
            LoadableSnapshot(
                Position(int(each["position"])), bytes.fromhex(each["digest"]), str(each["key"])
            )
            for each in fields["snapshots"]
        )
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise SnapshotError(f"{what} cannot be read: {error!r}") from error


def encode_manifest(manifest: Manifest) -> bytes:
    fields: dict[str, Any] = {
        "version": MANIFEST_VERSION,
        "cluster": manifest.cluster_id,
        "era": manifest.era,
        "position": manifest.position,
        "digest": manifest.digest.hex(),
        "time_ms": manifest.time_ms,
        "parts": [
            {"length": part.length, "blake2b": part.blake2b.hex()} for part in manifest.parts
        ],
    }
    if manifest.pins:
        fields["pins"] = [pin._asdict() for pin in manifest.pins]
    return json.dumps(fields, indent=2).encode() + b"\n"


def decode_manifest(data: Buffer) -> Manifest:
    """Raises SnapshotError."""
    what = "the manifest of the snapshot"
    fields = _fields(data, what, MANIFEST_VERSION)
    try:
        return Manifest(
            cluster_id=str(fields["cluster"]),
            era=int(fields["era"]),
            position=Position(int(fields["position"])),
            digest=bytes.fromhex(fields["digest"]),
            time_ms=int(fields["time_ms"]),
            parts=_parts(fields["parts"]),
            pins=_pins(fields.get("pins", ())),
        )
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise SnapshotError(f"{what} cannot be read: {error!r}") from error


def _parts(listed: Sequence[dict[str, str]]) -> tuple[PartInfo, ...]:
    return tuple(PartInfo(int(part["length"]), bytes.fromhex(part["blake2b"])) for part in listed)


def _pins(listed: Sequence[dict[str, int]]) -> tuple[SnapshotPin, ...]:
    return tuple(
        SnapshotPin(
            Position(int(pin["position"])),
            int(pin["set_ms"]),
            int(pin["until_ms"]),
            int(pin["expires_ms"]),
        )
        for pin in listed
    )


def _fields(data: Buffer, what: str, version: int) -> dict[str, Any]:
    try:
        fields = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"{what} is not JSON: {error}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("version"), int):
        raise SnapshotError(f"{what} is not one of ours")
    if fields["version"] != version:
        raise SnapshotError(
            f"{what} is of format {fields['version']}, this version of Frazil reads {version}"
        )
    return fields
