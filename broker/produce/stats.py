"""The counters of the produce path: plain numbers, read at each scrape."""

from dataclasses import dataclass


@dataclass(slots=True)
class ProduceStats:
    """Counters only grow; gauges say so."""

    batches: int = 0
    records: int = 0
    batch_bytes: int = 0
    batches_acknowledged: int = 0
    batches_refused: int = 0
    """By the log (sequences, deleted topics) or with a chunk that was given up."""
    batches_duplicate: int = 0
    requests_timed_out: int = 0
    chunks: int = 0
    """Closed."""
    chunks_committed: int = 0
    chunks_given_up: int = 0
    waiting_bytes: int = 0
    """Gauge: of batches that are not settled."""
    puts_in_flight: int = 0
    """Gauge."""
    full_count: int = 0
    """How often the bound of bytes waiting was reached."""
