"""What may be gone when the log is lost: what was not archived, as far as it is listed."""

import pytest

from tests.anomalies import check
from tests.anomalies.history import Recorder
from tests.faults.drawn.clients import Readers
from tests.faults.drawn.loss import gone, known_at, not_listed, unread_at_last

LISTED = [{"topic": "t", "partition": 0, "end_offset": 10, "records": 2}]


def test_what_is_not_in_its_place_is_gone() -> None:
    acknowledged = {b"a": (0, 0), b"b": (0, 1), b"c": (1, 0)}
    assert gone(acknowledged, {(0, 0): b"a", (0, 1): b"c"}) == [b"b", b"c"]


@pytest.mark.parametrize(
    ("lost", "missed"),
    [
        ({b"a": (0, 10), b"b": (0, 11)}, []),
        ({b"a": (0, 9), b"b": (0, 11)}, [b"a"]),
        ({b"a": (0, 10), b"b": (0, 11), b"c": (0, 12)}, [b"a", b"b", b"c"]),
        ({b"a": (1, 10)}, [b"a"]),
    ],
    ids=["listed", "archived", "more-than-listed", "of-another-partition"],
)
def test_only_what_is_listed_may_be_lost(
    lost: dict[bytes, tuple[int, int]], missed: list[bytes]
) -> None:
    assert not_listed(lost, "t", LISTED) == missed
    assert not_listed(lost, "another", LISTED) == [*lost]


def of_two() -> Recorder:
    """One transaction was committed and read before the other was, which was lost with the log."""
    recorder = Recorder()
    recorder.invoke(1, "send", [["send", 0, 1]])
    recorder.complete(1, "ok", "send", [["send", 0, [0, 1]]])
    recorder.invoke(1, "send", [["send", 0, 2]])
    recorder.invoke(2, "poll", [["poll"]])
    recorder.complete(2, "ok", "poll", [["poll", {0: [[0, 1]]}]])
    recorder.complete(1, "ok", "send", [["send", 0, [2, 2]]])
    recorder.invoke(2, "poll", [["poll"]])
    recorder.complete(2, "ok", "poll", [["poll", {0: [[2, 2]]}]])
    return recorder


def read_last(recorder: Recorder, *records: list[int]) -> None:
    recorder.invoke(3, "poll", [["poll"]])
    recorder.complete(3, "ok", "poll", [["poll", {0: [*records]}]])


def test_a_transaction_that_was_committed_too_late_to_be_archived_may_be_lost() -> None:
    recorder = of_two()
    recorder.history[:] = known_at(recorder.history, 5)
    read_last(recorder, [0, 1])
    assert check(recorder.history, transactional=True) == []
    assert unread_at_last(recorder.history) == []


def test_it_may_be_there_too() -> None:
    recorder = of_two()
    recorder.history[:] = known_at(recorder.history, 5)
    read_last(recorder, [0, 1], [2, 2])
    assert check(recorder.history, transactional=True) == []


@pytest.mark.parametrize(
    ("count", "there", "lost"), [(5, [2, 2], (0, 1)), (8, [0, 1], (0, 2))], ids=["early", "late"]
)
def test_a_transaction_that_was_archived_may_not_be_lost_even_if_it_was_read_before(
    count: int, there: list[int], lost: tuple[int, int]
) -> None:
    recorder = of_two()
    recorder.history[:] = known_at(recorder.history, count)
    read_last(recorder, there)
    assert unread_at_last(recorder.history) == [lost]


def test_a_transaction_that_was_aborted_late_is_never_seen() -> None:
    recorder = Recorder()
    recorder.invoke(1, "send", [["send", 0, 1]])
    recorder.complete(1, "fail", "send", [["send", 0, [0, 1]]])
    recorder.history[:] = known_at(recorder.history, 0)
    read_last(recorder, [0, 1])
    assert check(recorder.history, transactional=True)


class Message:
    """As librdkafka gives it."""

    def __init__(self, partition: int, offset: int, value: bytes) -> None:
        self.partition, self.offset, self.value = (
            lambda: partition,
            lambda: offset,
            lambda: value,
        )


def test_a_group_is_given_what_is_in_the_log_or_was_lost_with_it() -> None:
    readers = Readers("127.0.0.1:1", "t", 0)
    for message in (Message(0, 0, b"a"), Message(0, 1, b"lost"), Message(0, 1, b"b")):
        readers._take(message)
    log = {(0, 0): b"a", (0, 1): b"b", (0, 2): b"c"}
    assert [*readers.wrong(log, log_was_lost=True)] == []
    assert len([*readers.wrong(log, log_was_lost=False)]) == 1
    readers._take(Message(0, 1, b"c"))
    assert len([*readers.wrong(log, log_was_lost=True)]) == 1
    assert readers.lacks({b"a": (0, 0), b"c": (0, 2)}) == [b"c"]
