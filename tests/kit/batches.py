"""Record batches, as producers send them."""

from protocol.records import Record, build_batch
from tests.kit.agents import NOW_MS


def batch(
    *values: bytes,
    key: bytes | None = None,
    timestamp: int = NOW_MS,
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """A batch of these values (one record of 100 bytes when none are given)."""
    return build_batch(
        [Record(timestamp=timestamp, key=key, value=value) for value in values or (bytes(100),)],
        codec=codec,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
