"""Which settings change while an agent runs, whose value holds, and what may be set (KIP-226)."""

import re
from pathlib import Path

import pytest

from broker.config import kafka_settings
from broker.config.changes import AlterConfigOp, OpType, changed
from broker.config.config_row import Kind
from broker.config.entries import Source, describe_all_brokers, describe_broker
from broker.config.kafka_settings import TABLE, KafkaSettings
from broker.config.kafka_table import DYNAMIC, FIXED, PER_AGENT, WITH_EFFECT, WITHOUT_EFFECT
from broker.config.topic_configs import describe_topic
from broker.dynamic.settings import in_force, rules
from protocol.errors import ErrorCode, KafkaError


def given(**settings: str) -> KafkaSettings:
    parsed = kafka_settings.parse({name.replace("_", "."): text for name, text in settings.items()})
    assert parsed.mistakes == []
    return parsed.settings


def test_every_setting_that_kafka_changes_has_one_stance() -> None:
    assert not WITH_EFFECT & WITHOUT_EFFECT
    assert not DYNAMIC & FIXED.keys()
    assert PER_AGENT <= DYNAMIC
    assert DYNAMIC | FIXED.keys() <= TABLE.keys()


def test_no_secret_can_be_set_so_none_is_in_the_log() -> None:
    assert not {name for name in DYNAMIC if TABLE[name].kind is Kind.PASSWORD}


def test_what_changes_with_effect_has_an_effect_at_the_start_too() -> None:
    for name in DYNAMIC:
        assert (TABLE[name].stance.name == "SERVED") == (name in WITH_EFFECT), name


def test_what_is_set_for_an_agent_holds_before_what_is_set_for_all_and_that_before_the_start() -> (
    None
):
    start = given(message_max_bytes="1000", log_retention_ms="1000", log_retention_bytes="1000")
    of_all = {"log.retention.ms": "2000", "log.retention.bytes": "2000"}
    settings, ignored = in_force(start, of_all=of_all, of_agent={"log.retention.bytes": "3000"})
    assert ignored == []
    assert settings.message_max_bytes == 1000
    assert settings.log_retention_ms == 2000
    assert settings.log_retention_bytes == 3000
    assert settings.given == start.given


def test_what_is_unset_leaves_the_layer_below() -> None:
    start = given(max_connections="7")
    settings, _ = in_force(start, of_all={}, of_agent={"max.connections": "9"})
    again, _ = in_force(start, of_all={}, of_agent={})
    assert (settings.max_connections, again.max_connections) == (9, 7)


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"log.retention.ms": "for ever"}, "is not a whole number"),
        ({"log.retention.ms": "0"}, "must be unlimited"),
        ({"num.partitions": "4"}, "does not change while agents run"),
        ({"of.the.next.release": "1"}, "does not change while agents run"),
        ({"message.max.bytes": "200000000"}, "socket.request.max.bytes"),
    ],
)
def test_what_cannot_hold_is_ignored_with_a_reason_and_the_rest_holds(configs, reason) -> None:
    """Another agent took it: of another release, or started with other settings."""
    for layers in ({"of_all": configs, "of_agent": {}}, {"of_all": {}, "of_agent": configs}):
        for layer in layers.values():
            if layer:
                layer["max.connections"] = "9"
        settings, (ignored,) = in_force(KafkaSettings(), **layers)
        assert settings.max_connections == 9
        assert settings.num_partitions == 1
        assert settings.message_max_bytes == 1048588
        assert reason in ignored
        assert ignored.startswith(next(iter(configs)))


def altered(
    start: KafkaSettings,
    *operations: tuple[str, OpType, str | None],
    before: dict[str, str] | None = None,
    of_all: dict[str, str] | None = None,
    for_all: bool = False,
):
    before = before or {}
    wanted = [AlterConfigOp(*each) for each in operations]
    checks = rules(start, before, of_all=None if for_all else of_all or {})
    return changed(before, wanted, checks)


def test_a_setting_is_set_unset_and_added_to() -> None:
    assert altered(KafkaSettings(), ("log.retention.ms", OpType.SET, "5")) == (
        ("log.retention.ms", "5"),
    )
    before = {"log.retention.ms": "5"}
    assert altered(KafkaSettings(), ("log.retention.ms", OpType.DELETE, None), before=before) == (
        ("log.retention.ms", None),
    )
    of_all = {"log.cleanup.policy": "delete"}
    append = ("log.cleanup.policy", OpType.APPEND, "compact")
    assert altered(given(log_cleanup_policy="compact"), append, of_all=of_all) == (
        ("log.cleanup.policy", "delete,compact"),
    )


def refused(*arguments, **more) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as error:
        altered(*arguments, **more)
    return error.value.code, error.value.message


@pytest.mark.parametrize("for_all", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "code", "sentence"),
    [
        ("num.partitions", "4", 42, "Cannot update these configs dynamically: [num.partitions]"),
        ("no.such", "4", 42, "Cannot update these configs dynamically: [no.such]"),
        ("log.retention.ms", "x", 42, "Invalid value x for configuration log.retention.ms: "),
        ("log.retention.ms", "0", 42, "log.retention.ms must be unlimited (-1) or, "),
        ("max.connections", "0", 42, "max.connections of 0 would let nobody in who could undo it"),
        ("message.max.bytes", "200000000", 42, "socket.request.max.bytes (104857600) must not"),
        ("log.cleaner.io.max.bytes.per.second", "0", 42, "log.cleaner.io.max.bytes.per.second mus"),
        (
            "listener.name.outside.ssl.keystore.location",
            "/k",
            42,
            (
                "Cannot update these configs dynamically:"
                " [listener.name.outside.ssl.keystore.location]: the files of a listener's"
                " certificates are read again by themselves, within seconds of a change"
            ),
        ),
        (
            "listener.name.outside.plain.sasl.jaas.config",
            "…",
            42,
            (
                "Cannot update these configs dynamically:"
                " [listener.name.outside.plain.sasl.jaas.config]: who may come in, and how, is set"
                " when an agent starts"
            ),
        ),
    ],
)
def test_what_cannot_be_set_is_refused_as_kafka_does(name, value, code, sentence, for_all) -> None:
    found, told = refused(KafkaSettings(), (name, OpType.SET, value), for_all=for_all)
    assert found == code
    assert told.startswith(sentence)


def test_all_that_cannot_be_changed_is_named_together() -> None:
    operations = [("num.partitions", OpType.SET, "1"), ("fetch.max.bytes", OpType.SET, "5000")]
    told = "Cannot update these configs dynamically: [fetch.max.bytes, num.partitions]"
    assert refused(KafkaSettings(), *operations) == (42, told)


def test_what_is_of_single_agents_cannot_be_set_for_all() -> None:
    operation = ("cordoned.log.dirs", OpType.SET, "/d")
    assert altered(KafkaSettings(), operation)
    assert refused(KafkaSettings(), operation, for_all=True) == (
        42,
        (
            "Cannot update these configs at default cluster level, broker id must be specified:"
            " [cordoned.log.dirs]"
        ),
    )


def test_what_another_release_set_does_not_keep_anybody_from_setting_something_else() -> None:
    before = {"of.the.next.release": "1", "log.retention.ms": "for ever"}
    set_other = ("max.connections", OpType.SET, "9")
    assert altered(KafkaSettings(), set_other, before=before) == (("max.connections", "9"),)


def test_a_value_that_holds_only_beside_what_is_set_for_all_is_taken_for_one_agent() -> None:
    of_all = {"max.connections.per.ip.overrides": "10.0.0.1:5"}
    nobody_else = ("max.connections.per.ip", OpType.SET, "0")
    assert altered(KafkaSettings(), nobody_else, of_all=of_all)
    assert refused(KafkaSettings(), nobody_else)[0] == 42


def test_unsetting_what_another_setting_needs_is_refused() -> None:
    before = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5"}
    unset = ("max.connections.per.ip.overrides", OpType.DELETE, None)
    assert refused(KafkaSettings(), unset, before=before)[0] == 42


def told(kafka: KafkaSettings, name: str):
    return next(entry for entry in describe_broker(kafka) if entry.name == name)


def test_a_setting_is_described_with_every_value_there_is_the_one_in_force_first() -> None:
    start = given(max_connections="7")
    settings, _ = in_force(
        start, of_all={"max.connections": "8"}, of_agent={"max.connections": "9"}
    )
    entry = told(settings, "max.connections")
    assert (entry.value, entry.source, entry.read_only) == ("9", Source.DYNAMIC_BROKER, False)
    assert [(each.value, each.source) for each in entry.synonyms] == [
        ("9", Source.DYNAMIC_BROKER),
        ("8", Source.DYNAMIC_DEFAULT_BROKER),
        ("7", Source.STATIC_BROKER),
        ("2147483647", Source.DEFAULT),
    ]


def test_settings_that_stand_in_for_each_other_are_described_as_kafka_does() -> None:
    """Kafka 4.3.1, asked."""
    settings, _ = in_force(
        KafkaSettings(), of_all={"log.retention.ms": "7000"}, of_agent={"log.retention.ms": "8000"}
    )
    assert [(each.name, each.value) for each in told(settings, "log.retention.ms").synonyms] == [
        ("log.retention.ms", "8000"),
        ("log.retention.ms", "7000"),
        ("log.retention.hours", "168"),
    ]
    hours = told(settings, "log.retention.hours")
    assert [(each.name, each.value) for each in hours.synonyms] == [("log.retention.hours", "168")]
    assert hours.read_only
    unset = told(KafkaSettings(), "log.retention.ms")
    assert (unset.value, unset.source, unset.synonyms) == (None, Source.DEFAULT, ())


def test_of_all_agents_only_what_was_set_for_them_is_described() -> None:
    (entry,) = describe_all_brokers({"log.retention.ms": "7000", "of.the.next.release": "1"})
    assert (entry.name, entry.value, entry.read_only) == ("log.retention.ms", "7000", False)
    assert entry.source is Source.DYNAMIC_DEFAULT_BROKER


def test_a_topic_has_what_is_set_for_agents_as_its_default_and_says_so() -> None:
    settings, _ = in_force(
        given(log_retention_ms="1"), of_all={"log.retention.ms": "2"}, of_agent={}
    )
    entry = next(each for each in describe_topic({}, settings) if each.name == "retention.ms")
    assert (entry.value, entry.source) == ("2", Source.DYNAMIC_DEFAULT_BROKER)
    assert [each.value for each in entry.synonyms] == ["2", "1", "604800000"]


def test_nobody_reads_a_setting_that_changes_from_what_the_agent_was_started_with() -> None:
    """`node.kafka` has what holds; a job's `context.settings` are those of its round."""
    fixed = re.compile(r"(?<!context\.)settings\.kafka\.(\w+)")
    for file in (Path(__file__).parents[3] / "broker").rglob("*.py"):
        for field in fixed.findall(file.read_text()):
            assert field.replace("_", ".") not in WITH_EFFECT, f"{file}: {field}"
