"""The table of snapshots: the one that was begun, and the two newest that are in the store.

Invariant: positions and digests are those of one replica like another's, so a snapshot that says
something else is of a replica gone astray, and is refused (P13).
"""

from typing import NamedTuple

from coordinator.commands.entries import DONE, Done, Rejected
from coordinator.commands.job_commands import SNAPSHOT_KEY_MAX, PublishSnapshot
from coordinator.tables.objects import Moment
from protocol.errors import ErrorCode
from protocol.types import Position

PUBLISHED_MAX = 2


class Begun(NamedTuple):
    """The state at `position` is to be written down."""

    position: Position
    digest: bytes
    """`Machine.digest()` there."""


class Published(NamedTuple):
    """A snapshot that was read back and verified."""

    position: Position
    digest: bytes
    key: str
    """Of its manifest in the object store."""
    published_at: Position


class Snapshots:
    """The snapshot that was begun and those that are published. Only `apply` writes."""

    def __init__(self) -> None:
        self.begun: Begun | None = None
        """The newest that was begun; also when it is published already."""
        self.published: tuple[Published, ...] = ()
        """Newest first, at most two."""
        self.is_beginning = False
        """Within `apply`: the entry's digest is to be noted when it is known."""

    @property
    def older(self) -> Published | None:
        """The second newest; None until there are two. Behind it nobody needs the log (P14)."""
        return self.published[1] if len(self.published) == PUBLISHED_MAX else None

    # For `apply`.

    def begin(self) -> Done:
        self.begun = None
        self.is_beginning = True
        return DONE

    def begin_era(self, position: Position, digest: bytes, key: str) -> None:
        """An era begins with this one snapshot, of its first position."""
        self.begun = Begun(position, digest)
        self.published = (Published(position, digest, key, position),)

    def note(self, position: Position, digest: bytes) -> None:
        self.begun = Begun(position, digest)
        self.is_beginning = False

    def publish(self, command: PublishSnapshot, moment: Moment) -> Done | Rejected:
        begun = self.begun
        if begun is None or begun.position != command.position:
            reason = f"no snapshot was begun at {command.position}, or another one since"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if begun.digest != command.digest:
            reason = f"the digest at {command.position} is {begun.digest.hex()}"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if not 0 < len(command.key) <= SNAPSHOT_KEY_MAX:
            reason = f"the key of a snapshot has 1 to {SNAPSHOT_KEY_MAX} characters"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if self.published and self.published[0].position == command.position:
            return DONE
        published = Published(command.position, command.digest, command.key, moment.position)
        self.published = (published, *self.published[: PUBLISHED_MAX - 1])
        return DONE
