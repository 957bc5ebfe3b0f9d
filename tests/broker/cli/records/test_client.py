"""What librdkafka tells between calls, kept until it can be said."""

from confluent_kafka import KafkaError

from broker.cli.records.client import Events


def told(*codes: int) -> Events:
    events = Events()
    for code in codes:
        events.told(KafkaError(code, f"reason {code}"))
    return events


def test_a_refusal_is_kept_and_the_first_one_counts() -> None:
    events = told(KafkaError._TRANSPORT, KafkaError._AUTHENTICATION, KafkaError._SSL)
    assert events.refusal == f"reason {KafkaError._AUTHENTICATION}"
    assert events.reason == f"reason {KafkaError._TRANSPORT}"


def test_who_may_write_nowhere_is_told_which_right_is_missing() -> None:
    """In librdkafka's words it is the cluster that refuses a producer's id."""
    events = Events()
    code = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    events.told(KafkaError(code, "Failed to acquire idempotence PID", fatal=True))
    assert events.refusal == "you may write to no topic (that is the right WRITE)"


def test_what_befalls_a_connection_later_is_no_refusal() -> None:
    events = Events()
    events.answered()
    events.told(KafkaError(KafkaError._SSL, "an agent restarts"))
    assert (events.refusal, events.reason) == ("", "an agent restarts")
    events.told(KafkaError(KafkaError._FATAL, "fenced", fatal=True))
    assert events.refusal == "fenced"


def test_that_no_agent_answers_is_told_once_until_one_does_again() -> None:
    events = told(KafkaError._TRANSPORT)
    assert not events.is_lost()
    for _ in range(2):
        events.told(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert events.is_lost()
        events.told(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert not events.is_lost()
        events.answered()
        assert not events.is_lost()
    assert events.refusal == ""
