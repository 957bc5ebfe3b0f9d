"""The usage of quotas, kept for each holder, within bounds of memory. Pure.

A sensor is forgotten when it was not used for an hour, as in Kafka; where there are too many, when it
knows nothing any more: all that it saw is out of the window, or its bucket is full. Where there still
are too many, those that come new are counted together, by the entity whose quota holds for them.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from broker.quotas.entities import Found, Holder
from broker.quotas.rates import SECOND_MS, Rate, TokenBucket, Window
from coordinator.commands.config_commands import EntityType, Quota

SENSORS_MAX: Final = 10_000
"""Of all quotas together, beside those that entities share."""
EXPIRE_MS: Final = 3_600_000
SWEEP_MS: Final = 1_000
"""Nobody looks for old ones more often."""
LOOKED_AT: Final = 1_000
"""At a time."""
DEFAULT_NAME: Final = "<default>"
"""Stands for the default of an entity, where usage is counted by entity."""


class _Sensor:
    """What all of them have."""

    __slots__ = (
        "holder",
        "limit",
        "part",
        "throttled_ms",
        "used",
        "used_ms",
        "waited_ms",
        "waits_until_ms",
    )

    def __init__(self, holder: Holder, limit: float) -> None:
        self.holder = holder
        self.limit = limit
        """As it was set."""
        self.part = 1.0
        """Of that, what this agent may give out."""
        self.used = 0.0
        """All in all."""
        self.used_ms = 0
        """When it was used last."""
        self.throttled_ms = 0
        """For how long its clients were told to wait, all in all."""
        self.waited_ms = 0
        """For how long any of them waited, or will."""
        self.waits_until_ms = 0
        """Until when one of them waits."""

    @property
    def quota(self) -> float:
        return self.limit * self.part

    def tell(self, wait_ms: int, now_ms: int) -> None:
        """A client is told to wait for so long."""
        if wait_ms:
            self.throttled_ms += wait_ms
            until_ms = max(self.waits_until_ms, now_ms + wait_ms)
            self.waited_ms += until_ms - max(self.waits_until_ms, now_ms)
            self.waits_until_ms = until_ms

    def waited_by(self, now_ms: int) -> int:
        """For how many ms any of its clients has waited until now."""
        return self.waited_ms - max(0, self.waits_until_ms - now_ms)


class Sensor(_Sensor):
    """What one holder of one quota uses up; it may have one sample's worth at once."""

    __slots__ = ("_bucket", "_owed", "_rate", "_throttle_ms_max")

    def __init__(
        self, holder: Holder, limit: float, window: Window, *, throttle_ms_max: int
    ) -> None:
        super().__init__(holder, limit)
        self._rate = Rate(window)
        self._bucket = TokenBucket(window.sample_ms)
        self._throttle_ms_max = throttle_ms_max
        self._owed = 0.0

    def record(self, value: float, now_ms: int) -> int:
        """So much is used up; for how many ms its client waits."""
        self.used_ms = now_ms
        value += self._owed
        self._owed = 0.0
        self.used += value
        self._rate.record(value, now_ms)
        if self._bucket.take(value, self.limit * self.part, now_ms) >= 0:
            return 0
        return self.throttle_ms(now_ms)

    def owe(self, value: float) -> None:
        """So much is used up; it counts with what is recorded next."""
        self._owed += value

    def throttle_ms(self, now_ms: int) -> int:
        """For how many ms a client waits as things are."""
        if not self._bucket.is_overdrawn:
            return 0
        return min(self._bucket.throttle_ms(self.quota, now_ms), self._throttle_ms_max)

    def observed(self, now_ms: int) -> float:
        """Per second."""
        return self._rate.observed(now_ms)

    def is_blank(self, now_ms: int) -> bool:
        """It knows nothing that a new one would not."""
        return self.observed(now_ms) <= 0 and self._bucket.is_full(self.quota, now_ms)


class BucketSensor(_Sensor):
    """What one holder takes out of a bucket of tokens."""

    __slots__ = ("_bucket",)

    def __init__(self, holder: Holder, limit: float, burst_ms: int) -> None:
        super().__init__(holder, limit)
        self._bucket = TokenBucket(burst_ms)

    def take(self, count: float, now_ms: int) -> None:
        self.used_ms = now_ms
        self.used += count
        self._bucket.take(count, self.quota, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Until it is not overdrawn any more."""
        return self._bucket.throttle_ms(self.quota, now_ms)

    def tokens(self, now_ms: int) -> float:
        return self._bucket.tokens(self.quota, now_ms)

    def observed(self, now_ms: int) -> float:
        """About what was taken per second lately."""
        return self._bucket.missing(self.quota, now_ms)

    def is_blank(self, now_ms: int) -> bool:
        """It knows nothing that a new one would not."""
        return self._bucket.is_full(self.quota, now_ms)


AnySensor = Sensor | BucketSensor
Key = tuple[Quota, Holder]


class Sensors:
    """All of an agent."""

    def __init__(
        self, window: Window, controller_window: Window, *, sensors_max: int = SENSORS_MAX
    ) -> None:
        self._window = window
        self._controller_window = controller_window
        self._sensors_max = sensors_max
        self._all: dict[Key, AnySensor] = {}
        self._swept_ms = 0
        self.part = 1.0
        """Of a quota of which nobody has used anything yet (`broker.upkeep.quota_usage`)."""

    def __len__(self) -> int:
        return len(self._all)

    def of(self, quota: Quota) -> Iterator[AnySensor]:
        """Those of one quota."""
        return (sensor for (kind, _), sensor in self._all.items() if kind is quota)

    def items(self) -> Iterator[tuple[Key, AnySensor]]:
        return iter(self._all.items())

    def get(self, quota: Quota, found: Found, now_ms: int) -> AnySensor:
        """The sensor that counts for a client; its limit is that which holds now."""
        key = (quota, found.holder)
        if key not in self._all and len(self._all) >= self._sensors_max:
            key = (quota, _shared(found))
        sensor = self._all.get(key)
        if sensor is None:
            sensor = self._all[key] = self._make(quota, key[1], found.limit)
            sensor.used_ms = now_ms
            if quota is not Quota.CONNECTION_CREATION_RATE:
                sensor.part = self.part
        sensor.limit = found.limit
        return sensor

    def sweep(self, now_ms: int) -> bool:
        """Forget old ones, if it is time to; whether any was. Looks at a few, in turn."""
        if now_ms - self._swept_ms < SWEEP_MS:
            return False
        self._swept_ms = now_ms
        count = len(self._all)
        is_full = count >= self._sensors_max
        for key in list(islice(self._all, LOOKED_AT)):
            sensor = self._all.pop(key)
            is_old = now_ms - sensor.used_ms >= EXPIRE_MS
            if not is_old and not (is_full and sensor.is_blank(now_ms)):
                self._all[key] = sensor
        return len(self._all) < count

    def _make(self, quota: Quota, holder: Holder, limit: float) -> AnySensor:
        match quota:
            case Quota.CONTROLLER_MUTATION_RATE:
                return BucketSensor(holder, limit, self._controller_window.whole_ms)
            case Quota.CONNECTION_CREATION_RATE:
                return BucketSensor(holder, limit, SECOND_MS)
            case Quota.REQUEST_PERCENTAGE:
                sample_ms = self._window.sample_ms
                return Sensor(holder, limit, self._window, throttle_ms_max=sample_ms)
            case Quota.PRODUCER_BYTE_RATE | Quota.CONSUMER_BYTE_RATE:
                return Sensor(holder, limit, self._window, throttle_ms_max=self._window.whole_ms)


def _shared(found: Found) -> Holder:
    """All that the entity's quota holds for, together."""
    names = {part.entity_type: part.name or DEFAULT_NAME for part in found.entity}
    user = names.get(EntityType.USER) or names.get(EntityType.IP, "")
    return Holder(user, names.get(EntityType.CLIENT_ID, ""))
