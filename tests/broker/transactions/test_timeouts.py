"""Which open transactions are ended, when, and by whom: the pure part, on a clock of numbers."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from broker.transactions.timeouts import STALE_MIN, OpenTransactions


def row(transactional_id: str, instance: int = 1, timeout_ms: int = 1_000, producer_id: int = 1):
    return SimpleNamespace(
        transactional_id=transactional_id,
        timeout_ms=timeout_ms,
        txn_metadata=SimpleNamespace(producer_id=producer_id, instance=instance),
    )


def ongoing(*rows):
    return {each.transactional_id: each for each in rows}


def due(watch, rows, now_ms, turn=0):
    return [each.transactional_id for each in watch.overdue(rows, now_ms, lambda _: turn)]


def test_a_transaction_is_due_after_its_timeout_since_it_was_first_seen():
    watch, rows = OpenTransactions(), ongoing(row("a"))
    watch.observe(rows, 500)
    assert due(watch, rows, 1_499) == []
    assert due(watch, rows, 1_500) == ["a"]


def test_seeing_it_again_does_not_begin_its_time_anew():
    watch, rows = OpenTransactions(), ongoing(row("a"))
    for now_ms in range(0, 1_000, 100):
        watch.observe(rows, now_ms)
    assert due(watch, rows, 1_000) == ["a"]


def test_the_next_transaction_of_the_id_has_its_whole_time():
    watch = OpenTransactions()
    watch.observe(ongoing(row("a", 1)), 0)
    rows = ongoing(row("a", 2))
    watch.observe(rows, 900)
    assert due(watch, rows, 1_000) == []
    assert due(watch, rows, 1_900) == ["a"]


def test_an_id_that_was_forgotten_and_is_used_again_has_its_whole_time_and_hides_nobody():
    watch = OpenTransactions()
    watch.observe(ongoing(row("a", 1, timeout_ms=5_000)), 0)
    rows = ongoing(row("b"), row("a", 1, timeout_ms=1_000, producer_id=2))
    watch.observe(rows, 4_500)
    assert due(watch, rows, 5_000) == []
    assert due(watch, rows, 5_500) == ["a", "b"]


def test_one_that_has_ended_is_not_due():
    watch, rows = OpenTransactions(), ongoing(row("a"))
    watch.observe(rows, 0)
    assert due(watch, {}, 5_000) == []


def test_several_of_one_id_have_ended_the_later_one_with_the_shorter_timeout():
    watch = OpenTransactions()
    watch.observe(ongoing(row("a", 1, timeout_ms=5_000)), 0)
    watch.observe(ongoing(row("a", 2, timeout_ms=1_000)), 100)
    assert due(watch, {}, 2_000) == []
    assert due(watch, {}, 6_000) == []
    rows = ongoing(row("a", 3))
    watch.observe(rows, 7_000)
    assert due(watch, rows, 8_000) == ["a"]


def test_it_is_due_again_while_it_stays_open():
    watch, rows = OpenTransactions(), ongoing(row("a"))
    watch.observe(rows, 0)
    assert due(watch, rows, 1_000) == due(watch, rows, 2_000) == ["a"]


def test_each_agent_leaves_it_to_those_before_for_a_while():
    watch, rows = OpenTransactions(takeover_ms=300), ongoing(row("a"))
    watch.observe(rows, 0)
    assert due(watch, rows, 1_299, turn=1) == []
    assert due(watch, rows, 1_300, turn=1) == ["a"]
    assert due(watch, rows, 1_599, turn=2) == []
    assert due(watch, rows, 1_600, turn=2) == ["a"]


def test_those_that_began_since_the_last_look_are_noted_whatever_was_before():
    watch, old = OpenTransactions(), ongoing(row("a"), row("b"))
    watch.observe(old, 0)
    rows = old | ongoing(row("c"), row("d"))
    watch.observe(rows, 500)
    assert due(watch, rows, 1_499) == ["a", "b"]
    assert sorted(due(watch, rows, 1_500)) == ["a", "b", "c", "d"]


def test_the_age_of_the_oldest():
    watch, rows = OpenTransactions(), ongoing(row("a"))
    assert watch.oldest_ms({}, 10) == 0
    assert watch.oldest_ms(rows, 10) == 0
    watch.observe(rows, 10)
    rows |= ongoing(row("b"))
    watch.observe(rows, 20)
    assert watch.oldest_ms(rows, 50) == 40


def test_memory_follows_the_open_transactions():
    watch = OpenTransactions()
    stays = row("stays", timeout_ms=10**9)
    for number in range(10 * STALE_MIN):
        rows = ongoing(stays, row(f"t{number}", timeout_ms=10**9))
        watch.observe(rows, number)
    assert len(watch._heap) <= STALE_MIN + 4
    assert len(watch._seen) <= STALE_MIN + 4
    assert due(watch, ongoing(stays), 10**9) == ["stays"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "end", "wait"]), st.integers(0, 4), st.integers(0, 900))
)


@given(STEPS)
def test_what_is_due_is_what_a_plain_table_says(steps):
    """A model: the time at which each open transaction was first looked at."""
    watch, rows, seen, now_ms = OpenTransactions(), {}, {}, 0
    instances = dict.fromkeys(range(5), 0)
    for what, number, value in steps:
        name = f"id{number}"
        if what == "begin" and name not in rows:
            instances[number] += 1
            rows[name] = row(name, instances[number], timeout_ms=500 + value)
        elif what == "end":
            rows.pop(name, None)
            seen.pop(name, None)
        else:
            now_ms += value
        watch.observe(rows, now_ms)
        for each in rows:
            seen.setdefault(each, now_ms)
        expected = [each for each in rows if now_ms - seen[each] >= rows[each].timeout_ms]
        assert sorted(due(watch, rows, now_ms)) == sorted(expected)
