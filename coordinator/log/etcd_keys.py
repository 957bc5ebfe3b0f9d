"""Where things lie in etcd, and the parts of requests about them.

Lease ids and numbers are fixed-width hex: keys sort as numbers do.
"""

from typing import NamedTuple, Self

from coordinator.log import etcd_pb2 as pb

CELL = 0
"""Of the control log; other cells have room in the keys only (docs/design/bounded.md §9)."""


class Keys(NamedTuple):
    """The keys of one era of one cluster; `coordinator.log.etcd` says what is under them."""

    identity: bytes
    log_prefix: bytes
    last_prefix: bytes
    session_prefix: bytes
    head: bytes
    snapshot: bytes
    cut: bytes
    void_prefix: bytes

    @classmethod
    def of(cls, *, prefix: str, cluster: str, era: int) -> Self:
        assert prefix.startswith("/")
        assert "/" not in cluster
        base = f"{prefix}/{cluster}/{era}"
        return cls(
            identity=f"{prefix}/{cluster}/identity".encode(),
            log_prefix=f"{base}/log/{CELL}/".encode(),
            last_prefix=f"{base}/last/{CELL}/".encode(),
            session_prefix=f"{base}/session/".encode(),
            head=f"{base}/head/{CELL}".encode(),
            snapshot=f"{base}/snapshot".encode(),
            cut=f"{base}/cut/{CELL}".encode(),
            void_prefix=f"{base}/void/{CELL}/".encode(),
        )

    def entry(self, session: int, n: int) -> bytes:
        return b"%b%016x/%010x" % (self.log_prefix, session, n)

    def last(self, session: int) -> bytes:
        return b"%b%016x" % (self.last_prefix, session)

    def session(self, session: int) -> bytes:
        return b"%b%016x" % (self.session_prefix, session)

    def void(self, revision: int) -> bytes:
        return b"%b%016x" % (self.void_prefix, revision)


def created_at(key: bytes, revision: int) -> pb.Compare:
    """True when the key's life began at `revision`; 0: when there is no such key."""
    return pb.Compare(target=pb.Compare.CREATE, key=key, create_revision=revision)


def none_in(prefix: bytes) -> pb.Compare:
    """True when there is no key with the prefix: etcd compares each key of a range, and one that is not
    there has revision 0."""
    return pb.Compare(
        target=pb.Compare.CREATE, key=prefix, range_end=end_of(prefix), create_revision=0
    )


def modified_at(key: bytes, revision: int) -> pb.Compare:
    """True when the key was put last at `revision`; 0: when there is no such key."""
    return pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=revision)


def equals(key: bytes, value: bytes) -> pb.Compare:
    return pb.Compare(target=pb.Compare.VALUE, key=key, value=value)


def put(key: bytes, value: bytes, *, lease: int = 0) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def get(key: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def delete(key: bytes, range_end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=range_end))


def only(response: pb.ResponseOp) -> pb.KeyValue | None:
    pairs = response.response_range.kvs
    return pairs[0] if pairs else None


def number(last: pb.KeyValue | None, *, absent: int = -1) -> int:
    return absent if last is None else int(last.value)


def end_of(prefix: bytes) -> bytes:
    """The end of the range of all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
