"""How much memory an agent takes at most: a sum of bounds, each kept by the part that has it.

docs/design/bounded.md has the formula in words. Of these parts most are empty most of the time; all
of them full at once is what a pod must have room for. What grows comes on top: connections, what they
fetch, and what the cluster holds (`machine_bytes`), which the worker of the jobs, a process of its own, holds a
second time.
"""

from typing import Final

from broker.calls.slices import ELEMENTS_HELD_MAX
from broker.config.settings import Settings
from broker.fetch.answers import LOAD_BYTES_MAX
from broker.groups.group_shares import JOINING_BYTES_MAX
from broker.produce.value_checking import ROOM_BYTES
from broker.telemetry.forwarding import QUEUE_BYTES_MAX
from broker.telemetry.instances import INSTANCE_BYTES, INSTANCES_MAX
from coordinator.machine.machine import Machine
from protocol.compression import DECOMPRESSED_BYTES_MAX

MiB: Final = 1 << 20
BASE_BYTES: Final = 128 * MiB
"""Code and libraries, a small cluster, and what the allocator keeps between."""
SPANS_SEARCHED: Final = 18
"""By time, at once: `broker.calls.off_loop` has places for so many."""
ELEMENT_BYTES: Final = 2 * 200
"""Of a long request, decoded, and of its answer."""
OPEN_BATCHES: Final = 2
"""That are looked into beside the loop at a time (`broker.calls.off_loop`)."""
CONNECTION_BYTES: Final = 8 << 10
"""A quiet one takes half of it; what it sends is among requests."""
TLS_BYTES: Final = 88 << 10
"""More, of one that speaks TLS: OpenSSL has 20 KiB, and what was taken and not delivered is 64 KiB
at most (`broker.edge.tls_transport`)."""
PLACE_BYTES: Final = 440
"""A partition in a fetch session: what is wanted of it, and what was said (`broker.fetch.sessions`)."""
WATCH_BYTES: Final = 200
"""A partition that a fetch waits for: 117 where many wait for it, 472 for the first of them (`broker.fetch.purgatory`)."""
ROW_BYTES, WINDOW_BYTES, PARTITION_BYTES = 32, 114, 1024
"""In the machine (docs/design/costs.md)."""


def parts_of(settings: Settings, *, request_bytes_max: int) -> dict[str, int]:
    """What each part may take, in bytes.

    `request_bytes_max`: of requests that are received or unanswered, all connections.
    """
    frame_bytes_max = settings.kafka.socket_request_max_bytes
    forwarded = 0 if settings.telemetry_otlp_endpoint is None else QUEUE_BYTES_MAX
    return {
        "base": BASE_BYTES,
        "records in memory (cache.bytes)": settings.cache_bytes,
        "reads of the store for fetches": max(settings.cache_bytes // 4, 2 * LOAD_BYTES_MAX),
        "requests": request_bytes_max + request_bytes_max // 4 + frame_bytes_max,
        "records on their way (produce.buffer.bytes)": settings.produce_buffer_bytes,
        "answers that nobody takes": request_bytes_max,
        "batches that are opened": OPEN_BATCHES * DECOMPRESSED_BYTES_MAX,
        "values that are decoded": ROOM_BYTES,
        "records that are searched": SPANS_SEARCHED * settings.segment_bytes_max,
        "long requests": ELEMENTS_HELD_MAX * ELEMENT_BYTES,
        "requests that wait for groups": JOINING_BYTES_MAX,
        # Series are held, and a page of them is.
        "metrics of clients": 2 * settings.telemetry_metrics_bytes
        + INSTANCES_MAX * INSTANCE_BYTES
        + forwarded,
    }


def memory_bound(settings: Settings, *, request_bytes_max: int) -> int:
    """Bytes, of an agent of a cluster that holds next to nothing."""
    return sum(parts_of(settings, request_bytes_max=request_bytes_max).values())


def connection_bytes(count: int, *, tls: bool) -> int:
    """Of so many open connections. `tls`: an agent has listeners of TLS, and all may be of these."""
    return count * (CONNECTION_BYTES + (TLS_BYTES if tls else 0))


def fetching_bytes(*, places: int, watches: int) -> int:
    """Of so many partitions in fetch sessions, and so many that fetches wait for. Both have bounds of their own."""
    return places * PLACE_BYTES + watches * WATCH_BYTES


def machine_bytes(machine: Machine) -> int:
    """About what the cluster's metadata takes, in each process that has it."""
    partitions = machine.partitions
    return (
        ROW_BYTES * partitions.row_count
        + WINDOW_BYTES * partitions.window_count
        + PARTITION_BYTES * len(partitions)
        + machine.groups.size
    )
