"""What an acknowledgement waits for, and what it would cost to wait less. Pure.

A record waits for its chunk to close, for the chunk's PUT, and for an entry of the log. `puts.per.second`
lets chunks close no more often than that (`storage.accumulator`): where clients would fill more of them, a
record waits for half of the time between two in the mean. Where a store charges for PUTs, twice as many halve
that wait, at most for twice the price.

Left out: what a load really costs (`broker.reports.cost_report`).
"""

from broker.config.settings import Settings
from broker.produce.chunk_limits import chunk_limits
from broker.reports.prices import Prices
from storage.accumulator import Limits
from storage.stores.adapter_rules import charges_for_puts

DAY_S = 86_400


def of_settings(settings: Settings, put_ms: int) -> str:
    """The sentence for an agent with these settings, by list prices."""
    is_paid = charges_for_puts(settings.store_url)
    return ack_time(chunk_limits(settings), put_ms=put_ms, is_paid=is_paid, prices=Prices())


def ack_time(limits: Limits, *, put_ms: int, is_paid: bool, prices: Prices) -> str:
    """One sentence for whoever asks why a producer waits. `put_ms`: of one small object."""
    puts = limits.puts_per_second
    linger = f"chunk.linger.ms ({limits.linger_ms} ms), " if limits.linger_ms else ""
    alone = f"a record that comes alone waits for {linger}a PUT ({put_ms} ms here) and an entry of the log"
    if not is_paid:
        return (
            f"{alone}; with more than {puts} chunks a second, {_wait_ms(puts)} ms more in the mean"
        )
    return (
        f"{alone}; where more than {puts} chunks a second would close (puts.per.second),"
        f" {_wait_ms(puts)} ms more in the mean, and PUTs cost {_usd_a_day(puts, prices):.2f} USD a"
        f" day at most; with {2 * puts}: {_wait_ms(2 * puts)} ms, {_usd_a_day(2 * puts, prices):.2f}"
        " USD (frazil cost tells it by your load)"
    )


def _wait_ms(puts_per_second: int) -> str:
    return f"{500 / puts_per_second:.3g}"


def _usd_a_day(puts_per_second: int, prices: Prices) -> float:
    return puts_per_second * DAY_S * prices.put_1000 / 1000
