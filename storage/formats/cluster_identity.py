"""The identity of the cluster that a bucket belongs to: the object `cluster.json` at the store's root.

Written once, by whoever comes first, and compared by everybody after. It keeps two clusters, or
one cluster and its restored twin of another era, from writing among each other's chunks. What
is there and not understood is never overwritten. See docs/design/running.md §2.
"""

import json
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from protocol.fault_codes import FaultCode
from protocol.types import Buffer
from storage.formats.chunk import CLUSTER_ID_BYTES_MAX
from storage.stores.object_store import (
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    StoreRefusedError,
    StoreUnavailableError,
)

KEY: Final = "cluster.json"
FORMAT_VERSION: Final = 1
ERA_MAX: Final = (1 << 15) - 1
MARKER_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """Which cluster, and which life of its log, objects and entries belong to."""

    cluster_id: str
    era: int
    format_version: int = FORMAT_VERSION
    """Of everything in the store: an agent that knows only older ones must not touch it."""

    def __post_init__(self) -> None:
        length = len(self.cluster_id.encode())
        if not 0 < length <= CLUSTER_ID_BYTES_MAX or not self.cluster_id.isprintable():
            raise ValueError(
                f"{self.cluster_id!r} cannot be a cluster id: 1 to {CLUSTER_ID_BYTES_MAX} "
                "printable bytes"
            )
        if not 0 < self.era <= ERA_MAX:
            raise ValueError(f"{self.era} is not an era: 1 to {ERA_MAX}")

    def describe(self) -> str:
        return f"cluster {self.cluster_id!r}, era {self.era}"


def encode_identity(identity: ClusterIdentity) -> bytes:
    """The bytes of `cluster.json`: for people to read, with a checksum for us."""
    fields: dict[str, str | int] = {
        "cluster_id": identity.cluster_id,
        "era": identity.era,
        "format_version": identity.format_version,
    }
    return json.dumps(fields | {"checksum": _checksum(fields)}, indent=2).encode() + b"\n"


def _checksum(fields: dict[str, str | int]) -> str:
    return f"{crc32c(json.dumps(fields, sort_keys=True).encode()):08x}"


def decode_identity(data: Buffer) -> ClusterIdentity:
    """The identity in the bytes of `cluster.json`.

    Raises StoreRefusedError for a newer format, and for what is no marker at all.
    """
    if len(data) > MARKER_BYTES_MAX:
        raise StoreRefusedError(f"{KEY} is no cluster marker: it has {len(data)} bytes")
    try:
        match json.loads(bytes(data)):
            case {
                "cluster_id": str(cluster_id),
                "era": int(era),
                "format_version": int(version),
                **others,
            }:
                pass
            case _:
                raise StoreRefusedError(f"{KEY} in the object store is not a cluster marker")
        # A newer version may say more, and sum it up otherwise: look at the version first.
        if version > FORMAT_VERSION:
            raise StoreRefusedError(
                f"{KEY} has format version {version} (cluster {cluster_id!r}, era {era}), newer "
                f"than {FORMAT_VERSION}, the newest known here: use a newer release",
                fault=FaultCode.VERSION_MISMATCH,
            )
        fields: dict[str, str | int] = {
            "cluster_id": cluster_id,
            "era": era,
            "format_version": version,
        }
        if others != {"checksum": _checksum(fields)}:
            raise StoreRefusedError(f"{KEY} does not match its checksum: it was edited or damaged")
        return ClusterIdentity(cluster_id, era, version)
    except (ValueError, RecursionError) as error:
        raise StoreRefusedError(f"{KEY} is not readable as a cluster marker: {error}") from error


async def read_identity(store: ObjectStore) -> ClusterIdentity | None:
    """Returns the identity in the store; None when there is none yet. Raises StoreError."""
    try:
        return decode_identity(await store.get(KEY))
    except ObjectNotFoundError:
        return None


async def claim_store(store: ObjectStore, identity: ClusterIdentity) -> ClusterIdentity:
    """Writes our identity unless the store has one; returns the identity that is there.

    May be repeated, also after an unknown outcome. Raises StoreRefusedError, naming both, when
    the store belongs to another cluster or era, and StoreUnavailableError.
    """
    present = await read_identity(store)
    if present is None:
        try:
            await store.put_new(KEY, [encode_identity(identity)])
        except ObjectExistsError:
            present = await read_identity(store)
            if present is None:
                raise StoreUnavailableError(f"{KEY} came and went: somebody removes it") from None
        else:
            return identity
    if (present.cluster_id, present.era) != (identity.cluster_id, identity.era):
        raise StoreRefusedError(
            f"the object store belongs to {present.describe()}, but this agent to "
            f"{identity.describe()}: "
            "point it to another bucket or prefix, or set the right cluster id",
            fault=FaultCode.OTHER_CLUSTER,
        )
    return present
