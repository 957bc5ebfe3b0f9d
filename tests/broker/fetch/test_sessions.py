"""Fetch sessions (KIP-227)."""

import itertools

import pytest

from broker.fetch.sessions import INT32_MAX, FetchSessions
from protocol.errors import ErrorCode
from protocol.fetch import FetchPartition, FetchRequest, PartitionAnswer


def _sessions(slots: int = 10, **limits: int) -> FetchSessions:
    numbers = itertools.count(1)
    return FetchSessions(slots=slots, draw_id=lambda: next(numbers), **limits)


def _request(*offsets: int, session_id: int = 0, epoch: int = 0, topic: str = "t", forgotten=()):
    rows = [FetchPartition(index, offset, 1000) for index, offset in enumerate(offsets)]
    request = FetchRequest(0, 1, 1 << 30, 0, [(topic, None, rows)] if rows else [])
    request.session_id, request.session_epoch = session_id, epoch
    request.forgotten = list(forgotten)
    return request


def _answer(place, *, end: int = 10, records: bytes = b"", error: int = 0) -> PartitionAnswer:
    return PartitionAnswer(
        place.wanted.partition, error, end, end, 0, [records] if records else [], len(records)
    )


def _sent(fetched, **of_partition):
    answers = [
        _answer(place, **of_partition.get(f"p{place.wanted.partition}", {}))
        for place in fetched.places
    ]
    return [place.wanted.partition for place, _ in fetched.to_send(answers)]


def test_a_full_request_gets_a_session_and_all_its_partitions() -> None:
    sessions = _sessions()
    fetched = sessions.open(11, _request(0, 0), 0)
    assert fetched.session_id == 1
    assert _sent(fetched) == [0, 1]
    assert len(sessions) == 1


def test_epoch_minus_one_wants_no_session_and_ends_the_one_it_names() -> None:
    sessions = _sessions()
    sessions.open(11, _request(0), 0)
    fetched = sessions.open(11, _request(0, session_id=1, epoch=-1), 0)
    assert fetched.session_id == 0
    assert len(sessions) == 0
    assert sessions.places_count == 0


def test_an_incremental_answer_has_only_partitions_with_news() -> None:
    sessions = _sessions()
    _sent(sessions.open(11, _request(0, 0, 0, 0), 0))
    fetched = sessions.open(11, _request(session_id=1, epoch=1), 0)
    assert _sent(fetched, p1={"end": 11}, p2={"records": b"x"}, p3={"error": 6}) == [1, 2, 3]
    # After an error the next answer is news again; nothing else is.
    fetched = sessions.open(11, _request(session_id=1, epoch=2), 0)
    assert _sent(fetched, p1={"end": 11}) == [3]


def test_partitions_with_records_go_to_the_end_of_the_line() -> None:
    sessions = _sessions()
    _sent(sessions.open(11, _request(0, 0, 0), 0))
    fetched = sessions.open(11, _request(session_id=1, epoch=1), 0)
    _sent(fetched, p0={"records": b"x"})
    fetched = sessions.open(11, _request(session_id=1, epoch=2), 0)
    assert [place.wanted.partition for place in fetched.places] == [1, 2, 0]


def test_an_incremental_request_moves_adds_and_forgets_partitions() -> None:
    sessions = _sessions()
    _sent(sessions.open(11, _request(0, 0), 0))
    request = _request(7, session_id=1, epoch=1, forgotten=[("t", None, [1])])
    request.topics.append(("u", None, [FetchPartition(0, 3, 1000)]))
    fetched = sessions.open(11, request, 0)
    assert [(place.name, place.wanted.fetch_offset) for place in fetched.places] == [
        ("t", 7),
        ("u", 3),
    ]
    assert sessions.places_count == 2


def test_a_session_without_partitions_is_gone() -> None:
    sessions = _sessions()
    sessions.open(11, _request(0), 0)
    fetched = sessions.open(11, _request(session_id=1, epoch=1, forgotten=[("t", None, [0])]), 0)
    assert fetched.session_id == 0
    assert len(sessions) == 0


def test_an_unknown_session_a_wrong_epoch_and_a_change_to_topic_ids_are_refused() -> None:
    sessions = _sessions()
    sessions.open(11, _request(0), 0)
    unknown = sessions.open(11, _request(session_id=5, epoch=1), 0)
    wrong = sessions.open(11, _request(session_id=1, epoch=2), 0)
    by_id = sessions.open(13, _request(session_id=1, epoch=1), 0)
    assert unknown == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert wrong == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert by_id == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_after_the_largest_epoch_comes_one() -> None:
    sessions = _sessions()
    sessions.open(11, _request(0), 0)
    sessions._sessions[1].epoch = INT32_MAX
    sessions.open(11, _request(session_id=1, epoch=INT32_MAX), 0)
    assert not isinstance(sessions.open(11, _request(session_id=1, epoch=1), 0), ErrorCode)


def test_when_all_slots_are_in_use_a_client_gets_no_session() -> None:
    sessions = _sessions(slots=2)
    assert [sessions.open(11, _request(0), 0).session_id for _ in range(3)] == [1, 2, 0]


def test_the_session_unused_for_longest_makes_room_after_two_minutes() -> None:
    sessions = _sessions(slots=2)
    sessions.open(11, _request(0), 0)
    sessions.open(11, _request(0), 1)
    sessions.open(11, _request(session_id=1, epoch=1), 100_000)
    assert sessions.open(11, _request(0), 120_000).session_id == 0
    assert sessions.open(11, _request(0), 120_001).session_id == 3
    refused = sessions.open(11, _request(session_id=2, epoch=1), 120_002)
    assert refused == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_remembered_partitions_are_bounded_over_all_sessions() -> None:
    sessions = _sessions(places_max=3)
    assert sessions.open(11, _request(0, 0), 0).session_id == 1
    assert sessions.open(11, _request(0, 0), 0).session_id == 0
    assert sessions.places_count == 2


def test_a_partition_named_twice_is_fetched_once() -> None:
    sessions = _sessions()
    request = _request(1)
    request.topics.append(("t", None, [FetchPartition(0, 5, 10)]))
    fetched = sessions.open(11, request, 0)
    assert [place.wanted.fetch_offset for place in fetched.places] == [5]


def _opened(sessions: FetchSessions, peer: str, *offsets: int, now_ms: int = 0) -> int:
    fetched = sessions.open(11, _request(*offsets), now_ms, peer)
    assert not isinstance(fetched, ErrorCode)
    return fetched.session_id


def test_one_address_with_nearly_all_sessions_gets_no_more_and_another_does() -> None:
    sessions = _sessions(slots=100)
    made = [_opened(sessions, f"10.0.0.1:{port}", 0) != 0 for port in range(200)]
    assert made == [True] * 90 + [False] * 110
    assert _opened(sessions, "10.0.0.2:1", 0) != 0


def test_one_address_with_nearly_all_partitions_remembered_gets_no_more_and_another_does() -> None:
    sessions = _sessions(slots=1000, places_max=100)
    made = [_opened(sessions, "10.0.0.1:1", *range(9)) != 0 for _ in range(12)]
    assert made == [True] * 10 + [False] * 2
    assert _opened(sessions, "10.0.0.2:1", *range(9)) != 0


def test_a_session_beyond_the_share_takes_the_place_of_one_unused_for_two_minutes() -> None:
    sessions = _sessions(slots=100)
    for port in range(90):
        _opened(sessions, f"10.0.0.1:{port}", 0)
    assert _opened(sessions, "10.0.0.1:1", 0, now_ms=119_999) == 0
    assert _opened(sessions, "10.0.0.1:1", 0, now_ms=120_000) != 0
    assert len(sessions) == 90


@pytest.mark.promise("P15")
def test_a_session_that_grows_beyond_the_bound_on_partitions_ends() -> None:
    sessions = _sessions(places_max=20)
    sessions.open(11, _request(0), 0)
    grown = sessions.open(11, _request(*range(30), session_id=1, epoch=1), 0)
    assert grown == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.places_count) == (0, 0)
