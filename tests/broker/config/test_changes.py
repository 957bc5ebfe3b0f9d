"""What altering does to a resource's configs: tables of before, wanted, after."""

import pytest

from broker.config import group_configs, topic_configs
from broker.config.changes import AlterConfigOp, ConfigRules, changed, replaced
from broker.config.kafka_settings import KafkaSettings, parse
from protocol.errors import ErrorCode, KafkaError

TOPIC = topic_configs.rules(KafkaSettings())
GROUP = group_configs.rules(KafkaSettings())
SET, DELETE, APPEND, SUBTRACT = range(4)
POLICY = "cleanup.policy"
RETENTION = "retention.ms"
SESSION = "consumer.session.timeout.ms"


@pytest.mark.parametrize(
    ("before", "wanted", "changes"),
    [
        ({}, [(RETENTION, "5")], ((RETENTION, "5"),)),
        ({RETENTION: "5"}, [(RETENTION, "5")], ()),
        ({RETENTION: "5"}, [], ((RETENTION, None),)),
        (
            {RETENTION: "5", POLICY: "compact"},
            [(RETENTION, "6")],
            ((POLICY, None), (RETENTION, "6")),
        ),
    ],
)
def test_alter_configs_replaces_all_that_was_set(before, wanted, changes) -> None:
    assert replaced(before, wanted, TOPIC) == changes


@pytest.mark.parametrize(
    ("before", "wish", "changes"),
    [
        ({}, AlterConfigOp(RETENTION, SET, "5"), ((RETENTION, "5"),)),
        ({POLICY: "compact"}, AlterConfigOp(RETENTION, SET, "5"), ((RETENTION, "5"),)),
        ({RETENTION: "5"}, AlterConfigOp(RETENTION, SET, "5"), ()),
        ({RETENTION: "5"}, AlterConfigOp(RETENTION, DELETE, None), ((RETENTION, None),)),
        ({RETENTION: "5"}, AlterConfigOp(RETENTION, DELETE, "ignored"), ((RETENTION, None),)),
        ({}, AlterConfigOp(RETENTION, DELETE, None), ()),
        ({}, AlterConfigOp("no.such.config", DELETE, None), ()),
        ({}, AlterConfigOp(POLICY, APPEND, "compact"), ((POLICY, "delete,compact"),)),
        (
            {POLICY: "compact"},
            AlterConfigOp(POLICY, APPEND, "delete"),
            ((POLICY, "compact,delete"),),
        ),
        ({POLICY: "compact"}, AlterConfigOp(POLICY, APPEND, "compact, compact"), ()),
        ({}, AlterConfigOp(POLICY, SUBTRACT, "delete"), ((POLICY, ""),)),
        (
            {POLICY: "compact,delete"},
            AlterConfigOp(POLICY, SUBTRACT, "delete"),
            ((POLICY, "compact"),),
        ),
        ({POLICY: "compact"}, AlterConfigOp(POLICY, SUBTRACT, "delete"), ()),
    ],
)
def test_incremental_changes_touch_only_what_they_name(before, wish, changes) -> None:
    assert changed(before, [wish], TOPIC) == changes


def test_a_list_that_is_not_set_is_added_to_as_the_broker_has_it() -> None:
    rules = topic_configs.rules(parse({"log.cleanup.policy": "compact"}).settings)
    wish = AlterConfigOp(POLICY, APPEND, "delete")
    assert changed({}, [wish], rules) == ((POLICY, "compact,delete"),)


@pytest.mark.parametrize(
    ("rules", "wishes", "code"),
    [
        (TOPIC, [AlterConfigOp(RETENTION, 4, "5")], ErrorCode.INVALID_REQUEST),
        (TOPIC, [AlterConfigOp(RETENTION, -1, "5")], ErrorCode.INVALID_REQUEST),
        (TOPIC, [AlterConfigOp(RETENTION, SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, [AlterConfigOp(POLICY, APPEND, None)], ErrorCode.INVALID_REQUEST),
        (
            TOPIC,
            [AlterConfigOp(RETENTION, SET, "5"), AlterConfigOp(RETENTION, DELETE, None)],
            ErrorCode.INVALID_REQUEST,
        ),
        (TOPIC, [AlterConfigOp(RETENTION, APPEND, "5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [AlterConfigOp("no.such.list", SUBTRACT, "5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [AlterConfigOp(RETENTION, SET, "-2")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [AlterConfigOp("no.such.config", SET, "5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, [AlterConfigOp(POLICY, APPEND, "shred")], ErrorCode.INVALID_CONFIG),
        (GROUP, [AlterConfigOp(SESSION, SET, "1")], ErrorCode.INVALID_CONFIG),
        (GROUP, [AlterConfigOp(SESSION, APPEND, "50000")], ErrorCode.INVALID_CONFIG),
        (
            GROUP,
            [AlterConfigOp("share.session.timeout.ms", SET, "50000")],
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
def test_incremental_changes_are_refused_with_the_code_of_kafka(rules, wishes, code) -> None:
    with pytest.raises(KafkaError) as refused:
        changed({}, wishes, rules)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ([(RETENTION, None)], ErrorCode.INVALID_REQUEST),
        ([(RETENTION, "5"), (RETENTION, "6")], ErrorCode.INVALID_REQUEST),
        ([(RETENTION, "soon")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_replacements_are_refused_with_the_code_of_kafka(wanted, code) -> None:
    with pytest.raises(KafkaError) as refused:
        replaced({}, wanted, TOPIC)
    assert refused.value.code is code


def test_what_stays_as_it_is_is_not_checked_again() -> None:
    before = {"set.by.a.newer.agent": "x"}
    wanted = [("set.by.a.newer.agent", "x"), (RETENTION, "5")]
    assert replaced(before, wanted, TOPIC) == ((RETENTION, "5"),)


def test_all_that_would_be_set_is_checked_together() -> None:
    seen = []

    def check_together(configs) -> str | None:
        seen.append(dict(configs))
        return "they do not go together" if len(configs) > 1 else None

    rules = ConfigRules(
        lambda name, value: None, check_together, lambda name: False, lambda name: ""
    )
    assert changed(
        {"a": "1"}, [AlterConfigOp("a", DELETE, None), AlterConfigOp("b", SET, "2")], rules
    )
    assert changed({"a": "1", "b": "2"}, [AlterConfigOp("a", SET, "1")], rules) == ()
    with pytest.raises(KafkaError, match="do not go together"):
        changed({"a": "1"}, [AlterConfigOp("b", SET, "2")], rules)
    assert seen == [{"b": "2"}, {"a": "1", "b": "2"}]
