"""Answers that are not taken yet: what the next fetch is given, and when it begins."""

from hypothesis import given
from hypothesis import strategies as st

from broker.calls.untaken import GIVEN_BYTES_MIN, UntakenAnswers

MiB = 1 << 20


def test_the_more_is_untaken_the_less_the_next_fetch_is_given() -> None:
    untaken = UntakenAnswers(256 * MiB)
    assert untaken.allowance(50 * MiB) == 50 * MiB
    untaken.made(1, 192 * MiB)
    assert untaken.allowance(50 * MiB) == 16 * MiB
    untaken.made(2, 64 * MiB)
    assert untaken.allowance(8 * MiB) == GIVEN_BYTES_MIN
    assert untaken.allowance(10) == 10


def test_at_the_bound_fetches_wait_until_a_quarter_is_free_and_go_on_in_the_order_of_coming() -> (
    None
):
    untaken = UntakenAnswers(100)
    untaken.made(1, 60)
    assert untaken.admits(2)
    untaken.made(2, 60)
    assert [untaken.admits(number) for number in (5, 4, 3)] == [False] * 3
    assert untaken.excess == 45
    assert untaken.left(1, 30) == []
    assert untaken.forget(4) == []
    assert untaken.left(2, 45) == [5, 3]
    assert untaken.admits(5)
    assert not untaken.is_waited_for
    assert untaken.excess == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["made", "left", "forget"]), st.integers(0, 3), st.integers(0, 50)
        )
    )
)
def test_the_total_is_what_all_connections_hold(steps: list[tuple[str, int, int]]) -> None:
    untaken, held = UntakenAnswers(100), dict.fromkeys(range(4), 0)
    for what, number, size in steps:
        untaken.admits(number)
        if what == "made":
            untaken.made(number, size)
            held[number] += size
        elif what == "left":
            untaken.left(number, size)
            held[number] = size
        else:
            untaken.forget(number)
            held[number] = 0
        assert untaken.total == sum(held.values())
