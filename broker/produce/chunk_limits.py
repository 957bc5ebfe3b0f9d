"""When an agent's chunks are closed, from its settings. Pure."""

from typing import Final

from broker.config.settings import Settings
from storage.accumulator import Limits
from storage.stores.adapter_rules import charges_for_puts

PAID_PUTS_PER_SECOND: Final = 10
"""Where a store charges for each."""
FREE_PUTS_PER_SECOND: Final = 250
"""Where a PUT costs an fsync, and a chunk the work of a few requests: after a second of more, records
wait for four milliseconds at most to share one."""


def chunk_limits(settings: Settings) -> Limits:
    """Those of the open chunk and the ones before it."""
    puts_per_second = settings.puts_per_second
    if puts_per_second is None:
        is_paid = charges_for_puts(settings.store_url)
        puts_per_second = PAID_PUTS_PER_SECOND if is_paid else FREE_PUTS_PER_SECOND
    return Limits(
        chunk_bytes_max=settings.chunk_bytes_max,
        linger_ms=settings.linger_ms,
        puts_per_second=puts_per_second,
        puts_burst=puts_per_second,
    )
