"""What a client that pushes is told, decision by decision, and for how long it is known."""

import contextlib

import pytest

from broker.calls.shares import Owner
from broker.telemetry.instances import (
    KEPT_MS_MIN,
    SWEEP_MS,
    Instance,
    Instances,
    Push,
    validate_get,
    validate_push,
)
from broker.telemetry.subscriptions import Asked
from protocol.compression import Codec
from protocol.errors import ErrorCode, KafkaError

INTERVAL_MS = 1000
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
UNKNOWN = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
SUBSCRIPTION = 7


def instance_of(number=1, *, owner="10.0.0.1", interval_ms=INTERVAL_MS):
    asked = Asked(("a",), interval_ms)
    return Instance(number.to_bytes(16), Owner(owner), b"", asked, SUBSCRIPTION, 0)


def got(instance, now_ms):
    """The code of what a client is told that asks."""
    try:
        validate_get(instance, now_ms)
    except KafkaError as error:
        return error.code if error.message else None
    return ErrorCode.NONE


def pushed(instance, now_ms, *, subscription=SUBSCRIPTION, codec=Codec.ZSTD, size=1, last=False):
    push = Push(subscription, last, codec, size, 100, not instance.may_push(now_ms))
    try:
        validate_push(instance, push, now_ms)
    except KafkaError as error:
        return error.code if error.message else None
    return ErrorCode.NONE


def test_a_client_asks_once_an_interval():
    instance = instance_of()
    assert got(instance, 5000) is ErrorCode.NONE
    assert got(instance, 5999) is THROTTLED
    assert got(instance, 6000) is ErrorCode.NONE


def test_a_client_that_pushed_has_no_reason_to_ask():
    instance = instance_of()
    assert got(instance, 5000) is ErrorCode.NONE
    assert pushed(instance, 5500) is ErrorCode.NONE
    assert got(instance, 6499) is THROTTLED
    assert got(instance, 6500) is ErrorCode.NONE


def test_the_first_push_may_follow_the_answer_at_once_and_the_next_ones_may_not():
    instance = instance_of()
    assert got(instance, 5000) is ErrorCode.NONE
    assert pushed(instance, 5001) is ErrorCode.NONE
    assert pushed(instance, 6000) is THROTTLED
    assert pushed(instance, 6001) is ErrorCode.NONE


def test_a_client_that_comes_from_another_agent_may_push_without_asking():
    assert pushed(instance_of(), 5) is ErrorCode.NONE


def test_a_client_that_is_told_to_ask_may_ask_at_once():
    for refused in ({"subscription": 8}, {"codec": 9}):
        instance = instance_of()
        assert got(instance, 5000) is ErrorCode.NONE
        assert pushed(instance, 5001, **refused) in (
            UNKNOWN,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
        assert got(instance, 5002) is ErrorCode.NONE
        assert got(instance, 5003) is THROTTLED


def test_the_last_push_is_never_too_early_and_is_the_last():
    instance = instance_of()
    assert pushed(instance, 5000) is ErrorCode.NONE
    assert pushed(instance, 5001, last=True) is ErrorCode.NONE
    assert pushed(instance, 5002, last=True) is ErrorCode.INVALID_REQUEST
    # Kafka takes what a refused push says of itself for granted, too.
    assert pushed(instance, 5003) is ErrorCode.INVALID_REQUEST
    assert pushed(instance, 6001) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"subscription": 8, "codec": 9, "size": 101}, UNKNOWN),
        ({"codec": 9, "size": 101}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"codec": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"size": 100}, ErrorCode.NONE),
        ({"codec": Codec.NONE}, ErrorCode.NONE),
    ],
)
def test_of_several_mistakes_the_first_is_told_in_kafkas_order(wrong, code):
    instance = instance_of()
    assert pushed(instance, 5000, **wrong) is code
    # It was this client's push all the same.
    assert pushed(instance, 5999, **wrong) is THROTTLED
    assert pushed(instance, 5999, last=True) is ErrorCode.NONE
    assert pushed(instance, 5999, **wrong) is ErrorCode.INVALID_REQUEST


def known(instances, now_ms):
    ended = instances.ended(now_ms)
    return len(instances), len(ended)


def test_an_instance_is_known_for_three_intervals_after_it_came_last():
    instances, instance = Instances(), instance_of(interval_ms=300_000)
    instance.keep(1000)
    instances.add(instance)
    assert known(instances, 900_999) == (1, 0)
    instance.keep(500_000)
    assert known(instances, 1_399_999) == (1, 0)
    assert known(instances, 1_401_000) == (0, 1)
    assert instances.of(instance.instance_id) is None


def test_one_of_short_intervals_is_known_for_a_minute_and_so_is_one_that_ended():
    instances = Instances()
    often, ended = instance_of(1, interval_ms=100), instance_of(2, interval_ms=300_000)
    ended.is_terminating = True
    for each in (often, ended):
        each.keep(0)
        instances.add(each)
    assert known(instances, KEPT_MS_MIN - SWEEP_MS) == (2, 0)
    assert known(instances, KEPT_MS_MIN) == (0, 2)


def test_instances_are_looked_through_once_a_second():
    instances, instance = Instances(), instance_of()
    instance.ends_ms = 10
    instances.add(instance)
    assert known(instances, 5) == (1, 0)
    assert known(instances, 5 + SWEEP_MS - 1) == (1, 0)
    assert known(instances, 5 + SWEEP_MS) == (0, 1)


@pytest.mark.promise("P15")
def test_one_address_fills_nine_tenths_and_another_still_gets_some():
    instances = Instances(most=100)
    for number in range(200):
        with contextlib.suppress(KafkaError):
            instances.add(instance_of(number))
    assert len(instances) == 90
    with pytest.raises(KafkaError, match="The client's address") as refused:
        instances.add(instance_of(200))
    assert refused.value.code is THROTTLED
    instances.add(instance_of(1000, owner="10.0.0.2"))
    # Who has gone makes room.
    for number in range(10):
        row = instances.of(number.to_bytes(16))
        row.ends_ms = 1
    for number in range(10, 90):
        instances.of(number.to_bytes(16)).ends_ms = 100
    assert len(instances.ended(2)) == 11
    instances.add(instance_of(2000))
