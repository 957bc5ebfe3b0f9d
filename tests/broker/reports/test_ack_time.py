"""What the doctor says of the time that producers wait."""

from broker.reports.ack_time import ack_time
from broker.reports.prices import Prices
from storage.accumulator import Limits

PAID = Limits(puts_per_second=10, linger_ms=0)


def test_where_puts_cost_money_it_says_what_the_budget_saves_and_what_it_costs_to_wait_less() -> (
    None
):
    told = ack_time(PAID, put_ms=31, is_paid=True, prices=Prices(put_1000=0.005))
    assert "waits for a PUT (31 ms here) and an entry of the log" in told
    assert "more than 10 chunks a second" in told
    assert "50 ms more in the mean, and PUTs cost 4.32 USD a day" in told
    assert "with 20: 25 ms, 8.64 USD" in told


def test_where_puts_are_free_it_speaks_of_no_price() -> None:
    told = ack_time(Limits(puts_per_second=250), put_ms=1, is_paid=False, prices=Prices())
    assert "with more than 250 chunks a second, 2 ms more" in told
    assert "USD" not in told


def test_a_linger_of_chunks_is_named_where_there_is_one() -> None:
    told = ack_time(
        Limits(puts_per_second=10, linger_ms=100), put_ms=31, is_paid=True, prices=Prices()
    )
    assert "waits for chunk.linger.ms (100 ms), a PUT" in told
