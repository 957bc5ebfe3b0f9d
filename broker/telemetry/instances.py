"""The clients that push metrics to this agent, and what is said to each of their requests. Pure.

What holds:

* An instance is made only when something is asked of it. It is kept for `KEPT_INTERVALS` of its
  intervals after it came last, and at least `KEPT_MS_MIN`. All of it is soft: an agent that does not
  know a client judges it as one that came for the first time, so clients move between agents.
* There are at most `INSTANCES_MAX`, in shares by address; whoever has none left comes again later.
* Times are the boot clock's.

The decisions are Kafka's, in Kafka's order (ClientMetricsManager, ClientMetricsInstance).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.calls.shares import Ledger, Owner
from broker.telemetry.subscriptions import Asked
from protocol.compression import Codec
from protocol.errors import ErrorCode, KafkaError

INSTANCES_MAX: Final = 8_192
INSTANCE_BYTES: Final = 512
"""Of one in memory, about."""
KEPT_INTERVALS: Final = 3
KEPT_MS_MIN: Final = 60_000
SWEEP_MS: Final = 1_000
NEVER: Final = -(1 << 62)

RESERVED_IDS: Final = frozenset({bytes(16), bytes(15) + b"\1"})
"""That no client has (org.apache.kafka.common.Uuid)."""
ASKED_ANEW: Final = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)
"""Who was told this asks what it is asked for, at once."""


@dataclass(slots=True)
class Instance:
    """One client."""

    instance_id: bytes
    owner: Owner
    labels: bytes
    """Of all its series, as /metrics has them."""
    asked: Asked
    subscription_id: int
    version: int
    """Of the subscriptions that this is asked by."""
    got_ms: int = NEVER
    """When it was told what is asked."""
    pushed_ms: int = NEVER
    is_terminating: bool = False
    """What it pushed last was to be the last."""
    last_error: ErrorCode = ErrorCode.NONE
    ends_ms: int = 0

    def may_get(self, now_ms: int) -> bool:
        return now_ms - max(self.got_ms, self.pushed_ms) >= self.asked.interval_ms

    def keep(self, now_ms: int) -> None:
        """It came, so it stays for a while; shorter when it said that it ends."""
        intervals = 0 if self.is_terminating else KEPT_INTERVALS
        self.ends_ms = now_ms + max(KEPT_MS_MIN, intervals * self.asked.interval_ms)

    def may_push(self, now_ms: int) -> bool:
        """Who was just told what is asked may push at once: it was told an interval after its last push."""
        return now_ms - self.pushed_ms >= self.asked.interval_ms


class Push(NamedTuple):
    """A push as it is judged; `size` is that of its payload as sent."""

    subscription_id: int
    is_terminating: bool
    codec: int
    size: int
    size_max: int
    is_early: bool


class Rule(NamedTuple):
    """Of a push that is refused."""

    applies: Callable[[Instance, Push], bool]
    code: ErrorCode
    sentence: str


RULES: Final = (
    Rule(
        lambda instance, push: instance.is_terminating,
        ErrorCode.INVALID_REQUEST,
        "Client sent the previous request with state terminating to TRUE,"
        " can not accept any requests after that",
    ),
    Rule(
        lambda instance, push: push.is_early and not push.is_terminating,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        "Request from the client arrived before the next push interval time",
    ),
    Rule(
        lambda instance, push: push.subscription_id != instance.subscription_id,
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        "Unknown client subscription id for the client",
    ),
    Rule(
        lambda instance, push: push.codec not in list(Codec),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        "Unknown compression type is received in telemetry request",
    ),
    Rule(
        lambda instance, push: push.size > push.size_max,
        ErrorCode.TELEMETRY_TOO_LARGE,
        "Telemetry request is larger than the maximum allowed size",
    ),
)
"""The first that applies refuses the push."""


def validate_get(instance: Instance, now_ms: int) -> None:
    """A client asks what it is asked for. Raises KafkaError when it comes too soon."""
    if instance.may_get(now_ms):
        instance.got_ms = now_ms
    elif instance.last_error not in ASKED_ANEW:
        reason = "Request from the client arrived before the next push interval time"
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, reason)
    instance.last_error = ErrorCode.NONE


def validate_push(instance: Instance, push: Push, now_ms: int) -> None:
    """A client pushes. Raises KafkaError when it must not, or not so.

    A push that is refused says as well whether the client ends, and a push in time that is refused
    for something else was its push, as in Kafka.
    """
    refusal = next((rule for rule in RULES if rule.applies(instance, push)), None)
    if not push.is_early and not instance.is_terminating:
        instance.pushed_ms = now_ms
    instance.is_terminating = push.is_terminating
    instance.last_error = ErrorCode.NONE if refusal is None else refusal.code
    if refusal is not None:
        raise KafkaError(refusal.code, refusal.sentence)


class Instances:
    """Those of an agent."""

    def __init__(self, *, most: int = INSTANCES_MAX) -> None:
        self._rows: dict[bytes, Instance] = {}
        self._swept_ms = NEVER
        self._shares: Ledger[bytes] = Ledger(
            most, "instances of clients", size_of=lambda each: int(each in self._rows)
        )

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, instance_id: bytes) -> Instance | None:
        return self._rows.get(instance_id)

    def add(self, instance: Instance) -> None:
        """Raises KafkaError: its address has no share left, and it shall come again later."""
        assert instance.instance_id not in self._rows
        self._shares.require(instance.owner, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._rows[instance.instance_id] = instance
        self._shares.note(instance.owner, instance.instance_id)

    def ended(self, now_ms: int) -> list[Instance]:
        """Those that are gone from now on, for who knows more of them. Looks once a second."""
        if now_ms - self._swept_ms < SWEEP_MS:
            return []
        self._swept_ms = now_ms
        gone = [each for each in self._rows.values() if each.ends_ms <= now_ms]
        for each in gone:
            del self._rows[each.instance_id]
        return gone
