"""Fetch sessions (KIP-227): what a client fetches, remembered, so that it need not repeat it.

A session is this agent's own; on another one the client is told 70 and starts over, which is
always legal. Likewise an agent may decline to make one (session id 0 in the answer).

Invariants: the epoch of a session grows by one with each request, from 1, and after 2^31 - 1 comes
1; sessions and partitions remembered are bounded, of each session and of all, and each client
address has a share of all (`broker.calls.shares`); a session whose last partition is forgotten is
gone. A session is used by one version range, names (until v12) or topic ids (from v13).

Left out: reading, and what the partitions' errors are (`broker.fetch.fetch_path`).
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final, NamedTuple

from broker.calls.shares import Owner, is_nearly_full, may_take, owner_of
from protocol.errors import ErrorCode
from protocol.fetch import TOPIC_IDS_FROM, FetchPartition, FetchRequest, PartitionAnswer
from protocol.types import TopicId

SESSION_NONE: Final = 0
EPOCH_INITIAL: Final = 0
"""A full request that asks for a session."""
EPOCH_FINAL: Final = -1
"""A full request that wants none, and ends the one it names."""
INT32_MAX: Final = (1 << 31) - 1
NEVER_SENT: Final = -1
EVICTABLE_AFTER_MS: Final = 120_000
PLACES_MAX: Final = 1_000_000
"""Partitions of all sessions together."""
PLACES_PER_PAUSE: Final = 1_000
SESSION_PLACES_MAX: Final = 200_000
"""Of one: what a full request may name."""
CHANGES_MAX: Final = 20_000
"""Partitions that one incremental request names. Who has more to say starts over."""

PlaceKey = tuple[str | TopicId, int]
"""Topic as the client names it, and partition."""


class CachedPartition:
    """A partition that is fetched, and what was last said about it."""

    __slots__ = ("end_sent", "log_start_sent", "name", "topic_id", "wanted")

    def __init__(self, name: str | None, topic_id: TopicId | None, wanted: FetchPartition) -> None:
        self.name = name
        self.topic_id = topic_id
        self.wanted = wanted
        self.end_sent = NEVER_SENT
        """High watermark; NEVER_SENT also after an error, so that the next one is sent."""
        self.log_start_sent = NEVER_SENT

    @property
    def key(self) -> PlaceKey:
        topic = self.name if self.topic_id is None else self.topic_id
        assert topic is not None
        return topic, self.wanted.partition


class _Session:
    __slots__ = ("by_id", "epoch", "owner", "places", "session_id", "used_ms")

    def __init__(
        self,
        session_id: int,
        places: dict[PlaceKey, CachedPartition],
        *,
        owner: Owner,
        by_id: bool,
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.owner = owner
        self.places = places
        self.by_id = by_id
        self.epoch = 1
        """The one that the next request must have."""
        self.used_ms = now_ms


class FetchContext(NamedTuple):
    """The partitions that one request is about, and the session to keep account in."""

    places: list[CachedPartition]
    session: _Session | None
    incremental: bool

    @property
    def session_id(self) -> int:
        return SESSION_NONE if self.session is None else self.session.session_id

    def to_send(
        self, answers: Iterable[PartitionAnswer]
    ) -> Iterator[tuple[CachedPartition, PartitionAnswer]]:
        """What of `answers` (one for each place) the client is to be sent; remembers it as sent.

        An incremental answer holds what has records, an error, a bound that moved, or another
        agent to go to.
        """
        for place, answer in zip(self.places, answers, strict=True):
            if self.session is None:
                yield place, answer
                continue
            news = _is_news(place, answer)
            if answer.error:
                place.end_sent = NEVER_SENT
            else:
                place.end_sent = answer.high_watermark
            place.log_start_sent = answer.log_start_offset
            if not news and self.incremental:
                continue
            if answer.records_bytes:
                _move_to_end(self.session.places, place)
            yield place, answer


def _is_news(place: CachedPartition, answer: PartitionAnswer) -> bool:
    return bool(
        answer.records_bytes
        or answer.error
        or answer.high_watermark != place.end_sent
        or answer.log_start_offset != place.log_start_sent
        or answer.diverging_epoch is not None
        or answer.preferred_read_replica >= 0
    )


def _move_to_end(places: dict[PlaceKey, CachedPartition], place: CachedPartition) -> None:
    # Fairness: under a limit of bytes, those that had nothing this time come first next time.
    key = place.key
    if places.get(key) is place:
        del places[key]
        places[key] = place


class FetchSessions:
    """All sessions of an agent."""

    def __init__(
        self, *, slots: int, draw_id: Callable[[], int], places_max: int = PLACES_MAX
    ) -> None:
        self._slots = slots
        self._draw_id = draw_id
        """A random number from 1 to 2^31 - 1."""
        self._places_max = places_max
        self._places_count = 0
        # Least recently used first: a session that is used is inserted anew.
        self._sessions: dict[int, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def places_count(self) -> int:
        """Partitions remembered in all sessions."""
        return self._places_count

    def open(
        self,
        version: int,
        request: FetchRequest,
        now_ms: int,
        peer: str = "",
        *,
        asked: dict[PlaceKey, CachedPartition] | None = None,
    ) -> FetchContext | ErrorCode:
        """What `request` is about; makes, goes on with or ends a session. An error is of the whole.

        `asked`: the partitions that it names, if they were gathered already (`places_slices`).
        `peer`: the client's address and port. On an error the client starts over with a full
        request.
        """
        by_id = version >= TOPIC_IDS_FROM
        if asked is None:
            asked = _places_of(request)
        if request.session_epoch in {EPOCH_INITIAL, EPOCH_FINAL}:
            self._drop(request.session_id)
            session = None
            if request.session_epoch == EPOCH_INITIAL and asked:
                session = self._make(asked, owner_of(peer), by_id=by_id, now_ms=now_ms)
            return FetchContext(list(asked.values()), session, incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if (asked or request.forgotten) and not self._has_room(session, request, asked):
            self._drop(session.session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return self._go_on(session, request, asked, now_ms)

    def decline(self, fetched: FetchContext) -> int:
        """The session id for an answer that says of no partition anything. A session that would begin
        by it does not: its client has to be told of all partitions first."""
        if fetched.incremental:
            return fetched.session_id
        self._drop(fetched.session_id)
        return SESSION_NONE

    def _has_room(
        self, session: _Session, request: FetchRequest, asked: dict[PlaceKey, CachedPartition]
    ) -> bool:
        """Whether the session may grow by what is asked; and that is no more than a little."""
        changes = len(asked) + sum(len(partitions) for _, _, partitions in request.forgotten)
        growth = sum(key not in session.places for key in asked)
        return (
            changes <= CHANGES_MAX
            and len(session.places) + growth <= SESSION_PLACES_MAX
            and (growth == 0 or self._has_places(session.owner, growth))
        )

    def _go_on(
        self,
        session: _Session,
        request: FetchRequest,
        asked: dict[PlaceKey, CachedPartition],
        now_ms: int,
    ) -> FetchContext:
        places = session.places
        count_before = len(places)
        for place in asked.values():
            known = places.get(place.key)
            if known is None:
                places[place.key] = place
            else:
                known.wanted = place.wanted
        for name, topic_id, partitions in request.forgotten:
            topic = name if topic_id is None else topic_id
            assert topic is not None
            for partition in partitions:
                places.pop((topic, partition), None)
        self._places_count += len(places) - count_before
        session.epoch = session.epoch + 1 if session.epoch < INT32_MAX else 1
        session.used_ms = now_ms
        del self._sessions[session.session_id]
        if not places:
            return FetchContext([], None, incremental=True)
        self._sessions[session.session_id] = session
        return FetchContext(list(places.values()), session, incremental=True)

    def _make(
        self, places: dict[PlaceKey, CachedPartition], owner: Owner, *, by_id: bool, now_ms: int
    ) -> _Session | None:
        if len(places) > SESSION_PLACES_MAX:
            return None
        oldest = next(iter(self._sessions.values()), None)
        if (
            oldest is not None
            and now_ms - oldest.used_ms >= EVICTABLE_AFTER_MS
            and not self._has_slot(owner)
        ):
            self._drop(oldest.session_id)
        if not (self._has_slot(owner) and self._has_places(owner, len(places))):
            return None
        session_id = self._draw_id()
        if session_id in self._sessions:
            return None
        assert SESSION_NONE < session_id <= INT32_MAX
        session = _Session(session_id, places, owner=owner, by_id=by_id, now_ms=now_ms)
        self._sessions[session_id] = session
        self._places_count += len(places)
        return session

    def _has_slot(self, owner: Owner) -> bool:
        used, most = len(self._sessions), self._slots
        if not is_nearly_full(used, most):
            return True
        held = sum(session.owner == owner for session in self._sessions.values())
        return may_take(held, used=used, most=most)

    def _has_places(self, owner: Owner, wanted: int) -> bool:
        used, most = self._places_count, self._places_max
        if not is_nearly_full(used + wanted - 1, most):
            return True
        sessions = self._sessions.values()
        held = sum(len(session.places) for session in sessions if session.owner == owner)
        return may_take(held, wanted, used=used, most=most)

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._places_count -= len(session.places)


def _places_of(request: FetchRequest) -> dict[PlaceKey, CachedPartition]:
    """By key, in the order of the request; of a partition named twice the later one counts."""
    places: dict[PlaceKey, CachedPartition] = {}
    for name, topic_id, partitions in request.topics:
        for wanted in partitions:
            place = CachedPartition(name, topic_id, wanted)
            places[place.key] = place
    return places


def places_slices(
    request: FetchRequest,
) -> Generator[None, None, dict[PlaceKey, CachedPartition]]:
    """The partitions that `request` names, gathered with pauses."""
    places: dict[PlaceKey, CachedPartition] = {}
    left = PLACES_PER_PAUSE
    for name, topic_id, partitions in request.topics:
        left -= 1
        for wanted in partitions:
            place = CachedPartition(name, topic_id, wanted)
            places[place.key] = place
            left -= 1
            if left <= 0:
                yield
                left = PLACES_PER_PAUSE
        if left <= 0:
            yield
            left = PLACES_PER_PAUSE
    return places
