"""The port to object storage: immutable objects by key.

A key is a path of ASCII segments joined by "/"; a name never has two contents. Five calls, no
streams, no metadata. Every adapter passes `tests/contracts/test_object_store.py`; the memory
adapter is stricter than any real store.

Left out on purpose: renames, appends, conditional overwrites, listings with delimiters.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from protocol.fault_codes import FaultCode, FaultError
from protocol.types import Buffer


class StoreError(FaultError):
    """A call on the object store did not succeed. Always one of the subclasses."""


class StoreUnavailableError(StoreError):
    """No answer, or one that says "later" (5xx, time-out, refused connection).

    The call may or may not have taken effect; the same call may be made again.
    """

    fault = FaultCode.STORE_UNREACHABLE


class StoreRefusedError(StoreError):
    """A definite no that repeating will not change: credentials, missing bucket, full disk.

    The call had no effect. The message names what was refused and what to do.
    """


class ObjectNotFoundError(StoreError):
    """There is no object of that key."""


class ObjectExistsError(StoreError):
    """`put_new` found other bytes under that key."""


class ObjectInfo(NamedTuple):
    key: str
    length: int
    """Bytes."""
    modified_ms: int
    """Wall clock of the store, ms since the epoch."""


class DeleteRefusal(NamedTuple):
    """A key that the store does not let us delete; its object, if there is one, stays."""

    key: str
    reason: str
    """In the store's words, one line; it may change another time."""


class ObjectStore(Protocol):
    """Immutable objects by key. Keys are relative to the store's own prefix."""

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        """Create `key` with the joined `parts`; on return it exists with just these bytes.

        Idempotent: the same bytes under the same key succeed again, so it may be repeated after
        an unknown outcome. The parts must not change until the call has ended: adapters do not
        copy. Integrity is checked by the store where it can (checksum sent along).

        Raises ObjectExistsError (other bytes are there), StoreUnavailableError,
        StoreRefusedError.
        """
        ...

    async def get(self, key: str) -> Buffer:
        """The whole object. Raises ObjectNotFoundError and both store errors.

        A writable buffer is the caller's own, nobody else has it.
        """
        ...

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        """Bytes [start, start + length), never fewer; a writable buffer as of `get`.

        An object too short for the range raises StoreRefusedError: the caller's idea of the
        object is wrong, and a short read must not pass for data (P7).
        """
        ...

    async def list_after(self, prefix: str, start_after: str) -> Sequence[ObjectInfo]:
        """One page (at most 1,000) of the objects under `prefix`, in key order, after a key.

        An empty page is the end. `start_after` "" begins at the beginning.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> Sequence[DeleteRefusal]:
        """Delete; keys that do not exist are no error.

        Answers with the keys that the store refused (a missing right, a hold, a file that was
        made immutable), each once; all others are gone. Raises StoreUnavailableError (some may be
        gone) and StoreRefusedError for what is wrong with the whole call, and not with objects.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and file handles. Idempotent."""
        ...


@runtime_checkable
class LocalStore(ObjectStore, Protocol):
    """A store on this machine."""

    def put_now(self, key: str, parts: Sequence[Buffer]) -> None:
        """As `put_new`, in the thread of the caller, which may be any: it blocks."""
        ...
