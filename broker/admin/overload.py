"""Whether an agent is overloaded, and by what: a function of its counters. Pure.

What holds: a reason begins when what it is about has come to its bound, and ends when that has been
below three quarters of it for two seconds; so what comes and goes (a buffer that is full and has
room again) is one overload. Nothing follows from it but that it is told: an agent under load stays
live and ready, since its clients would be a burden to others that have as many.

Left out: looking, and when (`broker.admin.load_watch`).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, assert_never

MiB: Final = 1 << 20
TIGHT_SHARE: Final = 0.75
"""Of the memory of requests: beyond it big ones wait (`broker.edge.pressure`)."""
FULL_SHARE: Final = 0.9
"""Of the memory of records: when that is full it is read on at three quarters, so it swings."""
LAG_MS_MAX: Final = 250
"""Of the loop. Requests, store and log take several of its turns, one after the other."""
QUEUED_MS_MAX: Final = 1_000
"""That somebody waits in line, without a pause: after a burst the line is empty in less."""
CLEAR_LEVEL: Final = 0.75
CLEAR_MS: Final = 2_000


class Reason(Enum):
    """Which bound is reached; the value is the metric's label."""

    REQUESTS = "request_memory"
    PRODUCE = "produce_buffer"
    QUEUE = "request_queue"
    LOOP = "loop_lag"
    CONNECTIONS = "connections"


class Load(NamedTuple):
    """One look at an agent."""

    request_bytes: int
    request_bytes_max: int
    produce_bytes: int
    produce_bytes_max: int
    queued: int
    """Connections whose next request waits in line."""
    queued_ms: int
    """For how long there has been such a one, without a pause."""
    lag_ms: int
    """How late the loop's timers are; the lesser of two looks, so that one stall is no overload."""
    connections: int
    connections_max: int


def levels(load: Load) -> dict[Reason, float]:
    """How near each is to its bound: 1.0 has reached it."""
    return {
        Reason.REQUESTS: load.request_bytes / (TIGHT_SHARE * load.request_bytes_max),
        Reason.PRODUCE: load.produce_bytes / (FULL_SHARE * load.produce_bytes_max),
        Reason.QUEUE: load.queued_ms / QUEUED_MS_MAX,
        Reason.LOOP: load.lag_ms / LAG_MS_MAX,
        Reason.CONNECTIONS: load.connections / load.connections_max,
    }


def overloaded(before: Mapping[Reason, int], load: Load, *, now_ms: int) -> dict[Reason, int]:
    """The reasons that hold now, each with the time when it was last seen.

    `before`: what this returned at the look before.
    """
    after: dict[Reason, int] = {}
    for reason, level in levels(load).items():
        seen_ms = before.get(reason)
        if level >= 1.0 or (seen_ms is not None and level >= CLEAR_LEVEL):
            after[reason] = now_ms
        elif seen_ms is not None and now_ms - seen_ms < CLEAR_MS:
            after[reason] = seen_ms
    return after


def sentence(reason: Reason, load: Load) -> str:
    """What is wrong, by how much, and what it does to clients."""
    match reason:
        case Reason.REQUESTS:
            held, most = load.request_bytes // MiB, load.request_bytes_max // MiB
            said = f"requests hold {held} of {most} MiB, and big ones wait"
        case Reason.PRODUCE:
            held, most = load.produce_bytes // MiB, load.produce_bytes_max // MiB
            said = (
                f"{held} of {most} MiB of records (produce.buffer.bytes) wait for store and log, and"
                " producers wait"
            )
        case Reason.QUEUE:
            said = (
                f"the next requests of {load.queued} connections wait in line, in turn by address;"
                f" somebody has for {load.queued_ms} ms"
            )
        case Reason.LOOP:
            said = f"the loop is {load.lag_ms} ms late, and everybody waits"
        case Reason.CONNECTIONS:
            said = (
                f"{load.connections} of {load.connections_max} connections are taken, and new ones"
                " are refused or take the place of idle ones"
            )
        case _:
            assert_never(reason)
    return f"{reason.value}: {said}"
