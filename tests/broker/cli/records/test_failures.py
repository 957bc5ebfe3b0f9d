"""What `frazil produce` says of records that were given up."""

from typing import Any, cast

from confluent_kafka import KafkaError

from broker.cli.records.produce_tool import Failures


def test_the_first_is_the_record_that_was_read_first_in_whatever_order_partitions_fail() -> None:
    failures = Failures()
    for number in (7, 2, 9):
        error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        failures.add(number, error, cast("Any", None))
    assert failures.count == 3
    assert failures.first.startswith("the first is record 2: ")
    assert failures.first.endswith("(TOPIC_AUTHORIZATION_FAILED)")
