"""What clients use up of their quotas, for metrics: Kafka's byte-rate, request-time, tokens and
throttle-time, by user and client id. Pure.

As in Kafka a label is empty where a quota is not counted by it; an address is told as the user. Of very
many the ones that were used last are told (`TOLD_MAX`).
"""

import heapq
from typing import Final

from broker.quotas.quotas import Quotas
from broker.quotas.sensors import AnySensor, BucketSensor
from coordinator.commands.config_commands import Quota

TOLD_MAX: Final = 200
"""Of each quota."""

ByClient = dict[tuple[str, str], float]


def used(quotas: Quotas, quota: Quota) -> ByClient:
    """What is used per second; of buckets the tokens that are left."""
    now_ms = quotas.boot_ms()
    quotas.expire(now_ms)
    return {
        _labels(each): each.tokens(now_ms)
        if isinstance(each, BucketSensor)
        else each.observed(now_ms)
        for each in _newest(quotas, quota)
    }


def throttled_seconds(quotas: Quotas, quota: Quota) -> ByClient:
    """For how long clients were told to wait, all in all."""
    return {_labels(each): each.throttled_ms / 1_000 for each in _newest(quotas, quota)}


def _newest(quotas: Quotas, quota: Quota) -> list[AnySensor]:
    return heapq.nlargest(TOLD_MAX, quotas.sensors.of(quota), key=lambda sensor: sensor.used_ms)


def _labels(sensor: AnySensor) -> tuple[str, str]:
    return sensor.holder.user, sensor.holder.client_id
