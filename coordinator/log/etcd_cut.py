"""Cutting the log on etcd: which snapshots there are, and deleting what they make superfluous.

    snapshot       revision of the older snapshot, a line feed, what was published
    cut/<cell>     {"through", "done", "compact", "forgotten"}: see `CutState`

Every write compares the holder's session, and what it replaces with what was read: a late one, or
one of somebody who held the job before, fails or says nothing new. A delete names numbers of
entries whose revisions were found to be at or before `through`; whenever it arrives, nothing else
can lie there. `cut` is written before anything is deleted, so whoever reads it at some revision
knows what is whole at that revision.

A cut ends by compacting etcd's history up to where the cut before it ended. Whoever has been
reading at one revision for longer than the time between two cuts reads on at a newer one.
`last` of a session goes only when the session is gone, which is for good, when all its entries are
cut, and when many newer ones are gone as well; that one did go is said in `cut` before.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import NamedTuple, Self

from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd_client import CompactedError, EtcdClient
from coordinator.log.etcd_keys import (
    Keys,
    created_at,
    delete,
    end_of,
    get,
    modified_at,
    number,
    only,
    put,
)
from coordinator.log.metadata_log import (
    LAST_UNKNOWN,
    LogRefusedError,
    LogUnavailableError,
    Session,
    SessionLostError,
)
from protocol.types import Position, revision_of

logger = logging.getLogger(__name__)

CUT_ENTRIES_MAX = 1000
"""Entries that one transaction deletes; etcd applies it in a few milliseconds."""

SESSIONS_PER_PAGE = 1000
FORGOTTEN_PER_TXN = 40
"""etcd takes at most 128 operations in a transaction."""


class Written(NamedTuple):
    """How far a session has written, at some revision."""

    session: int
    last: int
    revision: int
    """Of its newest entry."""


class CutState(NamedTuple):
    """Revisions; 0 for none."""

    through: int = 0
    """Entries at or before it may be missing."""
    done: int = 0
    """Those at or before it are."""
    compact: int = 0
    """Where the newest cut that is done had ended when this one began."""
    forgotten: bool = False
    """Of some sessions no `last` is kept any more."""

    @classmethod
    def of(cls, pair: pb.KeyValue | None) -> Self:
        """Fields that a newer version has added are not our concern."""
        if pair is None:
            return cls()
        values = json.loads(pair.value)
        return cls(**{name: values[name] for name in cls._fields})

    def encoded(self) -> bytes:
        return json.dumps(self._asdict(), sort_keys=True).encode()


async def read_written(client: EtcdClient, keys: Keys) -> tuple[int, int, list[Written]]:
    """A revision, how far the log was cut then, and how far all sessions had written.

    Raises CompactedError when the revision was compacted meanwhile.
    """
    page = pb.RangeRequest(
        key=keys.last_prefix, range_end=end_of(keys.last_prefix), limit=SESSIONS_PER_PAGE
    )
    response = await client.txn(
        pb.TxnRequest(success=[get(keys.cut), pb.RequestOp(request_range=page)])
    )
    revision = response.header.revision
    through = CutState.of(only(response.responses[0])).through
    answer = response.responses[1].response_range
    found: list[Written] = []
    while True:
        for each in answer.kvs:
            session = int(each.key[len(keys.last_prefix) :], 16)
            found.append(Written(session, number(each), each.mod_revision))
        if not answer.more:
            return revision, through, found
        page.key = answer.kvs[-1].key + b"\0"
        page.revision = revision
        answer = await client.range(page)


async def first_after(
    client: EtcdClient, keys: Keys, session: int, after: int, *, numbers: range, revision: int = 0
) -> int:
    """Returns the number of the session's first entry after a revision, by bisection.

    It is among `numbers`, or the one behind them. `revision`: as of that; 0: now.
    """
    low, high = numbers.start, numbers.stop
    while low < high:
        middle = (low + high) // 2
        key = keys.entry(session, middle)
        response = await client.range(pb.RangeRequest(key=key, revision=revision, keys_only=True))
        # One that is missing was cut: it lies before what anyone reads.
        if response.kvs and response.kvs[0].mod_revision > after:
            high = middle
        else:
            low = middle + 1
    return low


class EtcdCutter:
    """`MetadataLog.snapshots`, `publish` and `cut`, in revisions."""

    def __init__(
        self, client: EtcdClient, keys: Keys, *, compact: bool, sessions_kept: int
    ) -> None:
        self._client = client
        self._keys = keys
        self._compact = compact
        self._sessions_kept = sessions_kept

    async def snapshots(self) -> bytes:
        response = await self._client.range(pb.RangeRequest(key=self._keys.snapshot))
        return published_of(response.kvs[0])[1] if response.kvs else b""

    async def publish(self, session: Session, snapshots: bytes, *, older: int) -> None:
        value = b"%d\n%b" % (older, snapshots)
        while True:
            (found,) = await self._fenced(session, [get(self._keys.snapshot)])
            pair = only(found)
            if pair is not None and (published_of(pair)[0] > older or pair.value == value):
                return
            if await self._replace(session, self._keys.snapshot, pair, value):
                return

    async def cut(self, session: Session, through: int) -> int:
        state = await self._begin(session, through)
        if state is None:
            return 0
        try:
            _, _, written = await read_written(self._client, self._keys)
        except CompactedError:
            raise LogUnavailableError("etcd was compacted while the log was being cut") from None
        deleted = 0
        for each in written:
            if each.revision > state.done:
                deleted += await self._cut_session(session, each, state.through)
        if await self._forget(session, written, state.through) and await self._finish(
            session, state.through
        ):
            await self._compact_history(state.compact)
        return deleted

    async def _begin(self, session: Session, through: int) -> CutState | None:
        """What is to be done, after it was announced; None when nothing is."""
        while True:
            found = await self._fenced(session, [get(self._keys.cut), get(self._keys.snapshot)])
            pair, published = only(found[0]), only(found[1])
            older = 0 if published is None else published_of(published)[0]
            if through > older:
                raise LogRefusedError(
                    f"a cut at revision {through}: the older snapshot is at {older}"
                )
            state = CutState.of(pair)
            if state.through >= through:
                return state if state.done < state.through else None
            # If the cut before was finished, it ended where it said so.
            if pair is not None and state.done == state.through:
                state = state._replace(compact=pair.mod_revision)
            state = state._replace(through=through)
            if await self._replace(session, self._keys.cut, pair, state.encoded()):
                return state

    async def _cut_session(self, session: Session, written: Written, through: int) -> int:
        """Delete the entries of one session that are at or before `through`."""
        first = await self._first(written)
        if first is None:
            return 0
        end = written.last + 1
        if written.revision > through:
            end = await first_after(
                self._client,
                self._keys,
                written.session,
                through,
                numbers=range(first, written.last),
            )
        deleted = 0
        for n in range(first, end, CUT_ENTRIES_MAX):
            started_s = asyncio.get_running_loop().time()
            entry = self._keys.entry
            (response,) = await self._fenced(
                session,
                [
                    delete(
                        entry(written.session, n),
                        entry(written.session, min(end, n + CUT_ENTRIES_MAX)),
                    )
                ],
            )
            deleted += response.response_delete_range.deleted
            # As much time for others as for this.
            await asyncio.sleep(asyncio.get_running_loop().time() - started_s)
        return deleted

    async def _first(self, written: Written) -> int | None:
        """The number of the session's first entry that is still there."""
        response = await self._client.range(
            pb.RangeRequest(
                key=self._keys.entry(written.session, 0),
                range_end=self._keys.entry(written.session, written.last) + b"\0",
                limit=1,
                keys_only=True,
            )
        )
        if not response.kvs:
            return None
        return int(response.kvs[0].key.rpartition(b"/")[2], 16)

    async def _forget(self, session: Session, written: Sequence[Written], through: int) -> bool:
        """Let `last` of sessions go that have been gone for long; False: others cut as well."""
        prefix = self._keys.session_prefix
        response = await self._client.range(
            pb.RangeRequest(key=prefix, range_end=end_of(prefix), keys_only=True)
        )
        alive = {int(each.key[len(prefix) :], 16) for each in response.kvs}
        gone = [each for each in written if each.session not in alive and each.revision <= through]
        gone.sort(key=lambda each: each.revision, reverse=True)
        forgotten = gone[self._sessions_kept :]
        if not forgotten:
            return True
        (found,) = await self._fenced(session, [get(self._keys.cut)])
        state = CutState.of(only(found))._replace(forgotten=True)
        if not await self._replace(session, self._keys.cut, only(found), state.encoded()):
            return False
        for at in range(0, len(forgotten), FORGOTTEN_PER_TXN):
            some = forgotten[at : at + FORGOTTEN_PER_TXN]
            keys = [self._keys.last(each.session) for each in some]
            compare = [created_at(self._keys.session(each.session), 0) for each in some]
            compare += [
                modified_at(key, each.revision) for key, each in zip(keys, some, strict=True)
            ]
            # Where one of them is not as it was, another cut was there, or comes later.
            await self._client.txn(
                pb.TxnRequest(compare=compare, success=[delete(key) for key in keys])
            )
        return True

    async def _finish(self, session: Session, through: int) -> bool:
        (found,) = await self._fenced(session, [get(self._keys.cut)])
        pair = only(found)
        state = CutState.of(pair)
        if state.through != through:
            return False
        prefix = self._keys.void_prefix
        forget_voids = delete(prefix, self._keys.void(through + 1))
        done = state._replace(done=through).encoded()
        return await self._replace(session, self._keys.cut, pair, done, forget_voids)

    async def _compact_history(self, revision: int) -> None:
        if not self._compact or not revision:
            return
        try:
            await self._client.compact(revision)
        except CompactedError:
            logger.info("etcd's history was compacted beyond revision %d by somebody", revision)
        except LogRefusedError as error:
            logger.warning("etcd's history was not compacted and grows: %s", error)

    async def _replace(
        self,
        session: Session,
        key: bytes,
        pair: pb.KeyValue | None,
        value: bytes,
        *besides: pb.RequestOp,
    ) -> bool:
        """Put `value` where `pair` was read, if that is still there, and do what is to be done `besides`."""
        compare = modified_at(key, 0 if pair is None else pair.mod_revision)
        success = [put(key, value), *besides]
        response = await self._client.txn(
            pb.TxnRequest(compare=[self._lives(session), compare], success=success)
        )
        # If it was the session that did not compare, the caller's next step says so.
        return response.succeeded

    async def _fenced(
        self, session: Session, operations: Sequence[pb.RequestOp]
    ) -> Sequence[pb.ResponseOp]:
        """The answers, if the session lives. Raises SessionLostError."""
        response = await self._client.txn(
            pb.TxnRequest(
                compare=[self._lives(session)],
                success=operations,
                failure=[get(self._keys.last(session.id))],
            )
        )
        if not response.succeeded:
            raise SessionLostError(number(only(response.responses[0]), absent=LAST_UNKNOWN))
        return response.responses

    def _lives(self, session: Session) -> pb.Compare:
        revision = revision_of(Position(session.incarnation))
        return created_at(self._keys.session(session.id), revision)


def published_of(pair: pb.KeyValue) -> tuple[int, bytes]:
    """The revision of the older snapshot, and what was published."""
    older, _, snapshots = pair.value.partition(b"\n")
    return int(older), snapshots
