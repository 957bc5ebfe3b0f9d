"""Long polls that wait: counted bytes, deadlines, bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.calls.shares import Owner
from broker.fetch.purgatory import FetchPurgatory
from protocol.types import TopicId

T = TopicId(bytes(16))
U = TopicId(b"u" * 16)


def test_a_poll_is_ready_when_its_partitions_together_got_enough() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    parked.park(
        "p", [(T, 0, 100, 0), (T, 1, 100, 0)], committed=False, bytes_missing=50, deadline_ms=1000
    )
    assert not parked.arrived(T, 0, 20)
    assert not parked.arrived(U, 0, 500)
    assert parked.take_ready() == []
    assert parked.arrived(T, 1, 30)
    assert parked.take_ready() == ["p"]
    assert (len(parked), parked.watches_count) == (0, 0)


def test_a_partition_counts_at_most_for_what_a_fetch_returns_of_it() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    parked.park(
        "p", [(T, 0, 10, 0), (T, 1, 100, 0)], committed=False, bytes_missing=50, deadline_ms=1000
    )
    assert not parked.arrived(T, 0, 1000)
    assert not parked.arrived(T, 0, 1000)
    assert parked.arrived(T, 1, 40)


def test_polls_expire_in_order_and_never_early() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    parked.park("late", [], committed=False, bytes_missing=1, deadline_ms=2001)
    parked.park("early", [], committed=False, bytes_missing=1, deadline_ms=995)
    assert parked.next_deadline_ms() == 1000
    assert parked.take_expired(999) == []
    assert parked.take_expired(1000) == ["early"]
    assert parked.next_deadline_ms() == 2010
    assert parked.take_expired(5000) == ["late"]
    assert parked.next_deadline_ms() is None


def test_a_poll_that_is_ready_does_not_expire_as_well() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    parked.park("p", [(T, 0, 100, 0)], committed=False, bytes_missing=1, deadline_ms=1000)
    parked.arrived(T, 0, 5)
    assert parked.take_expired(2000) == ["p"]
    assert parked.take_ready() == []


@pytest.mark.parametrize("committed", [True, False])
def test_whoever_waits_for_a_disturbed_topic_is_ready(committed: bool) -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    for name, topics in (("t", (T, U)), ("u", (U,))):
        watches = [(topic, 0, 100, 0) for topic in topics]
        parked.park(name, watches, committed=committed, bytes_missing=1, deadline_ms=1000)
    assert parked.disturbed({T})
    assert parked.take_ready() == ["t"]
    assert len(parked) == 1


@pytest.mark.promise("P15")
def test_at_the_bound_of_watched_partitions_a_poll_waits_for_its_time_alone() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory(watches_max=1)
    parked.park(
        "p", [(T, 0, 100, 0), (T, 1, 100, 0)], committed=False, bytes_missing=1, deadline_ms=1000
    )
    assert parked.watches_count == 0
    assert not parked.arrived(T, 1, 5)
    assert parked.take_expired(1000) == ["p"]
    assert parked.watches_count == 0


def test_bytes_that_are_not_stable_wake_nobody_who_reads_committed_records_only() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    parked.park("c", [(T, 0, 100, 40)], committed=True, bytes_missing=10, deadline_ms=1000)
    parked.park("u", [(T, 0, 100, 40)], committed=False, bytes_missing=10, deadline_ms=1000)
    assert parked.arrived(T, 0, 50)
    assert parked.take_ready() == ["u"]
    assert parked.counted(T, 0) == 40
    assert not parked.advanced(T, 0, 9, 45)
    assert parked.counted(T, 0) == 45
    assert parked.advanced(T, 0, 1, 46)
    assert parked.take_ready() == ["c"]
    assert parked.counted(T, 0) is None
    assert not parked.is_watched(T, 0)


def test_a_poll_that_reads_everything_counts_nothing_as_stable() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    parked.park("u", [(T, 0, 100, 40)], committed=False, bytes_missing=10, deadline_ms=1000)
    assert parked.is_watched(T, 0)
    assert parked.counted(T, 0) is None


def test_a_poll_that_comes_later_counts_only_what_becomes_stable_from_then_on() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    parked.park("first", [(T, 0, 100, 0)], committed=True, bytes_missing=10, deadline_ms=1000)
    assert not parked.advanced(T, 0, 6, 3)
    parked.park("second", [(T, 0, 100, 3)], committed=True, bytes_missing=10, deadline_ms=1000)
    assert parked.advanced(T, 0, 6, 7)
    assert parked.take_ready() == ["first"]
    assert parked.advanced(T, 0, 6, 9)
    assert parked.take_ready() == ["second"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("park"), st.integers(0, 3), st.integers(1, 60)),
            st.tuples(st.just("park committed"), st.integers(0, 3), st.integers(1, 60)),
            st.tuples(st.just("arrive"), st.integers(0, 3), st.integers(1, 60)),
            st.tuples(st.just("advance"), st.integers(0, 3), st.integers(1, 60)),
            st.tuples(st.just("ready"), st.just(0), st.just(0)),
            st.tuples(st.just("change"), st.integers(0, 3), st.just(0)),
            st.tuples(st.just("unsettled"), st.just(0), st.just(0)),
            st.tuples(st.just("time"), st.just(0), st.integers(1, 100)),
        )
    )
)
def test_every_poll_comes_out_exactly_once(steps) -> None:
    parked: FetchPurgatory[int] = FetchPurgatory()
    waiting: dict[int, tuple[int, int]] = {}
    now_ms = 0
    out: list[int] = []
    stable = 0
    for number, (what, partition, amount) in enumerate(steps):
        if what.startswith("park"):
            parked.park(
                number,
                [(T, partition, 1000, stable)],
                committed=what == "park committed",
                bytes_missing=amount,
                deadline_ms=now_ms + amount,
            )
            waiting[number] = (partition, amount)
        elif what == "arrive":
            parked.arrived(T, partition, amount)
        elif what == "advance":
            stable += amount
            if parked.counted(T, partition) is not None:
                parked.advanced(T, partition, amount, stable)
        elif what == "ready":
            out += parked.take_ready()
        elif what == "change":
            parked.unsettled(T, partition)
        elif what == "unsettled":
            out += parked.take_unsettled()
        else:
            now_ms += amount
            out += parked.take_expired(now_ms)
    out += parked.take_ready()
    out += parked.take_unsettled()
    out += parked.take_expired(now_ms + 10_000)
    assert sorted(out) == sorted(waiting)
    assert (len(parked), parked.watches_count) == (0, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_who_waits_for_a_partition_that_changed_looks_again(committed: bool) -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    for name, partition in (("here", 0), ("elsewhere", 1)):
        parked.park(
            name, [(T, partition, 100, 0)], committed=committed, bytes_missing=1, deadline_ms=1000
        )
    assert parked.unsettled(T, 0)
    assert not parked.unsettled(U, 0)
    assert parked.take_ready() == []
    assert parked.take_unsettled() == ["here"]
    assert len(parked) == 1


def test_a_poll_that_is_ready_does_not_look_again_as_well() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    parked.park("p", [(T, 0, 100, 0)], committed=False, bytes_missing=1, deadline_ms=1000)
    assert parked.unsettled(T, 0)
    assert parked.arrived(T, 0, 5)
    assert parked.take_unsettled() == []
    assert parked.take_ready() == ["p"]


def test_who_must_look_again_when_its_time_is_up_comes_out_once() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory()
    parked.park("p", [(T, 0, 100, 0)], committed=False, bytes_missing=1, deadline_ms=1000)
    parked.unsettled(T, 0)
    assert parked.take_expired(2000) == ["p"]
    assert parked.take_unsettled() == []


def test_one_who_watches_nearly_all_is_woken_by_time_alone_and_another_by_bytes() -> None:
    parked: FetchPurgatory[str] = FetchPurgatory(
        owner_of=lambda poll: Owner(poll[:1]), watches_max=100
    )
    for at in range(10):
        watches = [(T, 10 * at + each, 100, 0) for each in range(10)]
        parked.park(f"a{at}", watches, committed=False, bytes_missing=1, deadline_ms=1000)
    parked.park("b", [(T, 200, 100, 0)], committed=False, bytes_missing=1, deadline_ms=1000)
    assert parked.watches_count == 91
    assert not parked.arrived(T, 95, 5)
    assert parked.arrived(T, 200, 5)
    assert parked.take_ready() == ["b"]
