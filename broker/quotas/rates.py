"""Kafka's arithmetic of quotas: a rate over samples, and a bucket of tokens. Pure.

The rate is that of Kafka's metrics (Rate, SampledStat): what was recorded in the newest samples, by
the time since the oldest of them began, which counts as all but one of the samples at least. It is
told; nobody waits for it.

The bucket (TokenBucket, KIP-599) refills by the quota, up to what a while of it may use up. It may be
overdrawn; whoever has overdrawn it waits until that is made up for.
"""

from collections import deque
from typing import Final, NamedTuple

SECOND_MS: Final = 1_000
THROTTLE_MS_MAX: Final = (1 << 31) - 1
"""What an answer has room for."""


class Window(NamedTuple):
    """`quota.window.num` samples of `quota.window.size.seconds` each, or those of the controller."""

    samples: int = 11
    sample_ms: int = SECOND_MS

    @property
    def whole_ms(self) -> int:
        return self.samples * self.sample_ms


class _Sample:
    __slots__ = ("begun_ms", "last_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.begun_ms = now_ms
        self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """What was recorded lately, per second. Times never go back."""

    __slots__ = ("_samples", "_total", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: deque[_Sample] = deque()
        self._total = 0.0

    def record(self, value: float, now_ms: int) -> None:
        """So much more."""
        samples = self._samples
        if not samples or now_ms - samples[-1].begun_ms >= self._window.sample_ms:
            self._forget(now_ms)
            samples.append(_Sample(now_ms))
        newest = samples[-1]
        newest.last_ms = now_ms
        newest.value += value
        self._total += value

    def observed(self, now_ms: int) -> float:
        """Per second."""
        self._forget(now_ms)
        sample_ms, samples = self._window.sample_ms, self._samples
        elapsed_ms = now_ms - samples[0].begun_ms if samples else 0
        missing = self._window.samples - 1 - elapsed_ms // sample_ms
        span_ms = max(1, elapsed_ms + max(0, missing) * sample_ms)
        return self._total * SECOND_MS / span_ms

    def _forget(self, now_ms: int) -> None:
        # A sample goes when its newest record is too old, however long ago it began.
        samples, whole_ms = self._samples, self._window.whole_ms
        while samples and now_ms - samples[0].last_ms >= whole_ms:
            self._total -= samples.popleft().value
        if not samples:
            self._total = 0.0  # Fractions do not add up to nothing.


class TokenBucket:
    """Tokens of one quota; less than none: overdrawn."""

    __slots__ = ("_burst_ms", "_seen_ms", "_tokens")

    def __init__(self, burst_ms: int) -> None:
        """A full one holds what the quota gives in so long."""
        self._burst_ms = burst_ms
        self._tokens: float | None = None
        self._seen_ms = 0

    @property
    def is_overdrawn(self) -> bool:
        """As of the last look; who was not then is not now."""
        return self._tokens is not None and self._tokens < 0

    def tokens(self, quota: float, now_ms: int) -> float:
        """How many there are. A new bucket is full."""
        return self.take(0, quota, now_ms)

    def take(self, count: float, quota: float, now_ms: int) -> float:
        """Take so many, whether there are or not; how many are left."""
        left = most = quota * self._burst_ms / SECOND_MS
        if self._tokens is not None:
            grown = self._tokens + quota * (now_ms - self._seen_ms) / SECOND_MS
            if grown < most:
                left = grown
        left -= count
        self._tokens = left
        self._seen_ms = now_ms
        return left

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Until what was overdrawn is made up for; 0: it is not overdrawn."""
        missing = -self.tokens(quota, now_ms) * SECOND_MS
        # Not by dividing first: a quota may be as small as a number can be, and a part of it 0.
        if missing >= quota * THROTTLE_MS_MAX:
            return THROTTLE_MS_MAX
        return max(0, round(missing / quota))

    def missing(self, quota: float, now_ms: int) -> float:
        """What there is not, by the seconds of a full one."""
        missing = self._most(quota) - self.tokens(quota, now_ms)
        return missing * SECOND_MS / self._burst_ms

    def is_full(self, quota: float, now_ms: int) -> bool:
        return self.tokens(quota, now_ms) >= self._most(quota)

    def _most(self, quota: float) -> float:
        return quota * self._burst_ms / SECOND_MS
