"""Topic configs: values that a topic may have, and what holds for it in the end."""

import pyarrow as pa
import pytest

from broker.config.entries import ConfigEntry, Source, describe_broker
from broker.config.kafka_settings import TABLE, KafkaSettings, parse
from broker.config.table_configs import in_force
from broker.config.topic_configs import (
    DECODED_BYTES_MAX,
    TABLE_OF_TOPICS,
    check,
    check_together,
    describe_topic,
    effective,
)
from iceberg_export import routes
from iceberg_export.errors import SettingsError
from iceberg_export.table import topic_settings
from iceberg_export.table.schema import partition_spec, table_schema
from protocol.compression import inflated_max


def entry(name: str, configs: dict[str, str], **given: str) -> ConfigEntry:
    kafka = parse({key.replace("_", "."): value for key, value in given.items()}).settings
    return next(item for item in describe_topic(configs, kafka) if item.name == name)


def test_every_default_passes_its_own_check() -> None:
    for row in TABLE_OF_TOPICS.values():
        assert check(row.name, row.default) is None, row.name


def test_every_synonym_is_a_setting_of_the_broker() -> None:
    for row in TABLE_OF_TOPICS.values():
        assert all(name in TABLE for name in row.synonyms), row.name


def test_the_table_is_sorted_and_has_all_public_configs_of_kafka_4_3() -> None:
    assert list(TABLE_OF_TOPICS) == sorted(TABLE_OF_TOPICS)
    assert len([name for name in TABLE_OF_TOPICS if not name.startswith("frazil.")]) == 33


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "1e6"),
        ("max.message.bytes", None),
        ("cleanup.policy", "compact,shred"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("leader.replication.throttled.replicas", "none"),
        ("leader.replication.throttled.replicas", "0:1,1"),
        ("follower.replication.throttled.replicas", "*,0:1"),
        ("compression.type", "none"),
        ("message.timestamp.type", "createtime"),
        ("retention.ms", "-2"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("retention.msec", "1"),
        ("frazil.records.validate", "records"),
        ("frazil.schema.validate", "ids"),
    ],
)
def test_check_refuses(name: str, value: str | None) -> None:
    assert check(name, value) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [("cleanup.policy", "compact,delete"), ("retention.ms", "-1"), ("compression.type", "zstd")],
)
def test_check_accepts(name: str, value: str) -> None:
    assert check(name, value) is None


def test_the_least_compaction_lag_of_a_topic_is_not_above_its_greatest() -> None:
    lags = {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}
    assert check_together(lags) == (
        "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"
    )
    assert check_together(lags | {"max.compaction.lag.ms": "5"}) is None
    assert check_together({"min.compaction.lag.ms": "5"}) is None


def test_defaults_hold_for_a_topic_without_configs() -> None:
    settings = effective({}, KafkaSettings())
    assert settings.max_message_bytes == 1_048_588
    assert settings.timestamp_after_max_ms == 3_600_000
    assert settings.compression_type == "producer"
    assert not settings.compacted
    assert not settings.log_append_time


def test_records_are_validated_only_where_a_topic_says_so() -> None:
    assert not effective({}, KafkaSettings()).validates_records
    assert effective({"frazil.records.validate": "full"}, KafkaSettings()).validates_records


@pytest.mark.parametrize(
    ("mode", "schema", "checked"),
    [("avro", "by-id", True), ("raw", "by-id", False), ("avro", "latest", False)],
)
def test_schemas_of_keys_are_checked_where_the_table_reads_keys_by_them(
    mode: str, schema: str, checked: bool
) -> None:
    configs = {"frazil.iceberg.key.mode": mode, "frazil.iceberg.key.schema": schema}
    assert not effective(configs, KafkaSettings()).checks_value_schemas
    settings = effective(configs | {"frazil.schema.validate": "id"}, KafkaSettings())
    assert settings.checks_value_schemas
    assert settings.checks_key_schemas == checked


def test_values_are_decoded_with_full_alone_and_batches_of_such_topics_may_become_less() -> None:
    by_choice = {
        choice: effective({"frazil.schema.validate": choice}, KafkaSettings())
        for choice in ("off", "id", "full")
    }
    found = {
        choice: (one.checks_value_schemas, one.decodes_values, one.inflated_bytes_max)
        for choice, one in by_choice.items()
    }
    inflated = inflated_max(by_choice["off"].max_message_bytes)
    assert inflated > DECODED_BYTES_MAX
    assert found == {
        "off": (False, False, inflated),
        "id": (True, False, inflated),
        "full": (True, True, DECODED_BYTES_MAX),
    }


def test_bare_values_and_values_that_name_their_schema_exclude_each_other() -> None:
    configs = {"frazil.schema.validate": "id", "frazil.iceberg.value.schema": "latest"}
    assert "frazil.iceberg.value.schema=latest" in (check_together(configs) or "")
    assert check_together(configs | {"frazil.schema.validate": "off"}) is None


def test_broker_setting_stands_in_for_a_topic_config_that_is_not_set() -> None:
    kafka = parse({"message.max.bytes": "100", "log.cleanup.policy": "compact,delete"}).settings
    assert effective({}, kafka).max_message_bytes == 100
    assert effective({}, kafka).compacted
    assert effective({"max.message.bytes": "7"}, kafka).max_message_bytes == 7


def test_retention_follows_the_brokers_settings_in_the_units_they_have() -> None:
    assert effective({}, KafkaSettings()).retention_ms == 604_800_000
    kafka = parse({"log.retention.hours": "2", "log.retention.bytes": "9"}).settings
    assert effective({}, kafka).retention_ms == 7_200_000
    assert effective({}, kafka).retention_bytes == 9
    kafka = parse({"log.retention.hours": "2", "log.retention.ms": "-1"}).settings
    assert effective({}, kafka).retention_ms == -1
    assert effective({"retention.ms": "5"}, kafka).retention_ms == 5


@pytest.mark.parametrize(
    ("policy", "deleted", "compacted"),
    [("delete", True, False), ("compact", False, True), ("compact, delete", True, True)],
)
def test_the_cleanup_policy_says_what_happens_to_records(policy, deleted, compacted) -> None:
    settings = effective({"cleanup.policy": policy}, KafkaSettings())
    assert (settings.deleted, settings.compacted) == (deleted, compacted)


@pytest.mark.parametrize(
    ("codec", "level", "expected"),
    [
        ("zstd", "9", 9),
        ("zstd", "3", None),
        ("gzip", "0", 0),
        ("gzip", "-1", None),
        ("lz4", "17", 17),
        ("lz4", "9", None),
    ],
)
def test_the_level_is_that_of_the_codec_and_kafkas_default_the_librarys_own(
    codec: str, level: str, expected: int | None
) -> None:
    configs = {"compression.type": codec, f"compression.{codec}.level": level}
    assert effective(configs, KafkaSettings()).compression_level == expected


@pytest.mark.parametrize("codec", ["producer", "snappy", "uncompressed"])
def test_a_codec_without_levels_has_none(codec: str) -> None:
    assert effective({"compression.type": codec}, KafkaSettings()).compression_level is None


def test_sources_and_synonyms_come_strongest_first() -> None:
    item = entry("retention.ms", {"retention.ms": "9"}, log_retention_hours="2")
    assert (item.value, item.source) == ("9", Source.DYNAMIC_TOPIC)
    assert [(synonym.value, synonym.source) for synonym in item.synonyms] == [
        ("9", Source.DYNAMIC_TOPIC),
        ("7200000", Source.STATIC_BROKER),
        ("604800000", Source.DEFAULT),
    ]


def test_broker_is_described_without_its_passwords() -> None:
    kafka = parse({"ssl.key.password": "hush", "num.partitions": "4"}).settings
    entries = {item.name: item for item in describe_broker(kafka)}
    assert len(entries) == len(TABLE)
    assert entries["ssl.key.password"].value is None
    assert entries["ssl.key.password"].sensitive
    assert (entries["num.partitions"].value, entries["num.partitions"].source) == ("4", 4)
    assert "hush" not in repr(entries)


def test_a_value_that_would_fill_an_entry_of_the_log_is_refused() -> None:
    refusal = check("leader.replication.throttled.replicas", "0:1," * 2000)
    assert refusal is not None
    assert "longer than" in refusal


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "merge"),
        ("value.mode", "xml"),
        ("key.mode", "Avro"),
        ("layout", ""),
        ("enable", "yes"),
        ("table", "lake.events."),
        ("table", "a b"),
        ("table", "x" * 256),
        ("value.subject", "a\nb"),
        ("key.subject", "x" * 256),
        ("partition.by", "day(kafka_timestamp),"),
        ("partition.by", "week(kafka_timestamp)"),
        ("partition.by", "day(16,kafka_timestamp)"),
        ("partition.by", "bucket(user_id)"),
        ("partition.by", "bucket(0,user_id)"),
        ("partition.by", "bucket(16,user_id"),
        ("partition.by", "city,city"),
        ("partition.by", ",city"),
        ("bad.records", "ignore"),
        ("schema.evolution", "widen"),
        ("max.lag.ms", "-1"),
        ("retention.hold", "1"),
        ("retention.hold.max.ms", str(2**63 - 1)),
        ("retention.holds", "true"),
    ],
)
def test_a_tables_config_that_makes_no_sense_is_refused(name: str, value: str) -> None:
    reason = check(f"frazil.iceberg.{name}", value)
    assert reason is not None
    assert f"frazil.iceberg.{name}" in reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable", "FALSE"),
        ("table", "events"),
        ("table", "lake.raw.events-2"),
        ("mode", "upsert"),
        ("value.mode", "protobuf"),
        ("layout", "nested"),
        ("value.subject", "com.example.Event"),
        ("partition.by", "none"),
        ("partition.by", "day(kafka_timestamp), BUCKET(16, user_id),truncate(4,v.city) , city"),
        ("bad.records", "fail"),
        ("retention.hold.max.ms", "0"),
    ],
)
def test_a_tables_config_may_be_set(name: str, value: str) -> None:
    assert check(f"frazil.iceberg.{name}", value) is None


def test_a_partitioning_that_agents_take_is_one_that_the_exporter_reads_alike() -> None:
    for text in ("", "none", "day(a)", "hour(a),month(b),year(c)", "bucket(1,a),a.b", "a,,b", "a)"):
        taken = check("frazil.iceberg.partition.by", text) is None
        try:
            topic_settings.parse({"frazil.iceberg.partition.by": text}, "t")
        except SettingsError:
            assert not taken, text
        else:
            assert taken, text


@pytest.mark.parametrize("mode", ["raw", "string"])
def test_agents_take_the_partitionings_of_known_columns_that_the_exporter_takes(mode: str) -> None:
    kind = pa.large_binary() if mode == "raw" else pa.large_string()
    columns = table_schema(pa.schema([("kafka_key", kind), ("value", kind)]))
    transforms = ("{}", "year({})", "day({})", "hour({})", "bucket(2,{})", "truncate(3,{})")
    names = [field.name for field in columns.fields]
    for text in (one.format(name) for one in transforms for name in [*names, "city", "value.city"]):
        configs = {f"frazil.iceberg.{side}.mode": mode for side in ("key", "value")}
        taken = check_together(configs | {"frazil.iceberg.partition.by": text}) is None
        try:
            partition_spec(topic_settings.parse_partition_by(text), columns)
        except SettingsError:
            assert not taken, text
        else:
            assert taken, text


def test_a_partitioning_by_a_column_that_is_not_there_is_refused_unless_a_schema_may_bring_it() -> (
    None
):
    by = {"frazil.iceberg.partition.by": "bucket(16, user_id)"}
    reason = check_together(by)
    assert reason is not None
    assert "names the column user_id; without a value.mode" in reason
    assert check_together(by | {"frazil.iceberg.value.mode": "avro"}) is None
    assert check_together(by | {"frazil.iceberg.key.mode": "json"}) is None


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        *(("0", True), ("1048576", True), ("+1048576", True)),
        *(("1048575", False), ("1", False), ("-1", False), ("1MiB", False), ("", False)),
    ],
)
def test_agents_take_the_sizes_of_files_that_the_exporter_takes(text: str, taken: bool) -> None:
    name = "frazil.iceberg.target.file.size"
    assert (check(name, text) is None) == taken
    if taken:
        assert topic_settings.parse({name: text}, "t").target_file_size == int(text)
    else:
        with pytest.raises(SettingsError, match=f"{name} must be 0, or at least 1048576 bytes"):
            topic_settings.parse({name: text}, "t")


@pytest.mark.parametrize(
    ("rule", "text", "taken"),
    [
        *(("drop", one, True) for one in ("", "a", " a , b.c ", "kafka_key.id", "größe")),
        *(("drop", one, False) for one in ("a b", "a,", ",a", "a,,b", "a:b", "f(a)")),
        *(("rename", one, True) for one in ("", "a:b", "a.b : c , d:e")),
        *(("rename", one, False) for one in ("a", "a:b.c", "a:", ":b", "a:b,")),
        *(("mask", one, True) for one in ("", "hash(a)", "NULL( a.b ),truncate( 3 , c )")),
        *(("mask", one, False) for one in ("a", "md5(a)", "truncate(a)", "hash(3,a)", "hash(a),")),
    ],
)
def test_agents_take_the_rules_for_columns_that_the_exporter_takes(
    rule: str, text: str, taken: bool
) -> None:
    name = f"frazil.iceberg.columns.{rule}"
    modes = {"frazil.iceberg.value.mode": "avro", "frazil.iceberg.key.mode": "avro"}
    assert (check(name, text) is None) == taken
    if taken:
        assert check_together({name: text, **modes}) is None
        topic_settings.parse({name: text, **modes}, "t")
    else:
        with pytest.raises(SettingsError, match=f"columns.{rule}"):
            topic_settings.parse({name: text, **modes}, "t")


@pytest.mark.parametrize(
    ("rule", "text"), [("drop", "a"), ("rename", "a:b"), ("mask", "truncate(3, a)")]
)
@pytest.mark.parametrize(
    "more",
    [{}, {"value.mode": "string"}, {"value.mode": "json", "value.schema": "infer"}],
    ids=["raw", "string", "infer"],
)
def test_rules_for_columns_need_a_schema(rule: str, text: str, more: dict[str, str]) -> None:
    prefix = "frazil.iceberg."
    configs = {f"{prefix}{name}": value for name, value in more.items()}
    reason = check_together({f"{prefix}columns.{rule}": text, **configs})
    assert reason is not None
    assert "names the column a, which needs a schema" in reason


@pytest.mark.parametrize("mode", ["raw", "string", "json", "avro", "protobuf"])
def test_values_without_fields_are_no_change_events(mode: str) -> None:
    configs = {"frazil.iceberg.envelope": "debezium", "frazil.iceberg.value.mode": mode}
    reason = check_together(configs)
    if mode in ("raw", "string"):
        assert reason is not None
        assert "needs values with fields" in reason
    else:
        assert reason is None


@pytest.mark.parametrize("side", ["value", "key"])
def test_a_topic_that_brings_its_own_schema_has_one_and_reads_json(side: str) -> None:
    mode, name = f"frazil.iceberg.{side}.mode", f"frazil.iceberg.{side}.schema"
    configs = {mode: "json", name: "inline", f"{name}.json": '{"type": "object"}'}
    assert check_together(configs) is None
    assert f"{name}=inline needs {mode}=json" in str(check_together(configs | {mode: "avro"}))
    assert f"needs a JSON Schema in {name}.json" in str(
        check_together({mode: "json", name: "inline"})
    )
    assert (
        "inline says that none has one"
        in str(check_together(configs | {"frazil.schema.validate": "id"}))
        or side == "key"
    )


def test_columns_are_inferred_from_json_that_is_no_change_event_and_no_key_of_upserts() -> None:
    value, key = "frazil.iceberg.value", "frazil.iceberg.key"
    configs = {f"{value}.mode": "json", f"{value}.schema": "infer"}
    assert check_together(configs) is None
    assert check_together(configs | {"frazil.iceberg.mode": "upsert"}) is None
    for more, said in (
        ({f"{value}.mode": "avro"}, f"{value}.schema=infer needs {value}.mode=json"),
        ({"frazil.iceberg.envelope": "debezium"}, f"needs a schema: {value}.schema is infer"),
        ({"frazil.schema.validate": "id"}, "infer says that none has one"),
        (
            {f"{key}.mode": "json", f"{key}.schema": "infer", "frazil.iceberg.mode": "upsert"},
            "columns of keys that do not grow",
        ),
    ):
        assert said in str(check_together(configs | more))


def test_a_schema_of_a_topics_own_is_a_json_object_of_at_most_16_kib() -> None:
    name = "frazil.iceberg.value.schema.json"
    whole = '{"title": "' + "x" * (16_384 - 13) + '"}'
    assert check(name, whole) is None
    assert check(name, whole + " ") == (
        f"Invalid value for configuration {name}: longer than 16384 bytes"
    )
    for wrong in ("[]", "{", "true", "1"):
        assert "a JSON Schema is an object" in str(check(name, wrong)) or "not JSON" in str(
            check(name, wrong)
        )


def test_a_topics_table_is_as_it_was_set_or_by_default() -> None:
    found = in_force({"frazil.iceberg.mode": "upsert", "retention.ms": "5"})
    assert found["frazil.iceberg.mode"] == "upsert"
    assert found["frazil.iceberg.value.mode"] == "raw"
    assert {*found} == {name for name in TABLE_OF_TOPICS if name.startswith("frazil.iceberg.")}
    assert topic_settings.parse(found, "t") == topic_settings.parse(
        {"frazil.iceberg.mode": "upsert"}, "t"
    )


def test_a_topic_that_is_not_exported_holds_nothing_for_its_export() -> None:
    hold, enable = "frazil.iceberg.retention.hold", "frazil.iceberg.enable"
    assert check_together({hold: "true"}) is None
    assert check_together({enable: "false", hold: "false"}) is None
    reason = check_together({enable: " False", hold: "TRUE"})
    assert reason is not None
    assert hold in reason


def test_records_are_held_for_the_export_as_long_as_the_topic_says() -> None:
    kafka = parse({}).settings
    assert effective({}, kafka).hold_ms == -1
    held = {"frazil.iceberg.retention.hold": "true"}
    assert effective(held, kafka).hold_ms == 604_800_000
    held["frazil.iceberg.retention.hold.max.ms"] = "5000"
    assert effective(held, kafka).hold_ms == 5000
    held["frazil.iceberg.retention.hold"] = "false"
    assert effective(held, kafka).hold_ms == -1


@pytest.mark.parametrize(
    ("form", "taken"), [("debezium", True), ("maxwell", False), ("none", False)]
)
def test_transactions_are_told_by_debezium_alone(form: str, taken: bool) -> None:
    prefix = "frazil.iceberg."
    configs = {
        f"{prefix}envelope": form,
        f"{prefix}envelope.transactions": "TRUE",
        f"{prefix}value.mode": "avro",
    }
    refusal = check_together(configs)
    assert refusal == (
        None
        if taken
        else "frazil.iceberg.envelope.transactions=true needs frazil.iceberg.envelope=debezium"
    )


ROUTES = {
    "frazil.iceberg.value.mode": "json",
    "frazil.iceberg.route.by": "type",
    "frazil.iceberg.route.tables": 'refund:refunds,"a b":shop.b',
}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, None),
        ({"value.mode": "avro", "route.by": "kafka_headers.type"}, None),
        ({"value.mode": "raw", "route.by": "kafka_key"}, None),
        ({"route.by": ""}, "go together"),
        ({"route.tables": ""}, "go together"),
        ({"mode": "upsert"}, "mode=append"),
        ({"value.mode": "avro"}, "is a field of JSON values"),
    ],
)
def test_routes_need_a_value_to_go_by_and_tables_that_only_grow(
    more: dict[str, str], said: str | None
) -> None:
    configs = ROUTES | {f"frazil.iceberg.{name}": value for name, value in more.items()}
    refusal = check_together(configs)
    assert (said in (refusal or "")) if said else refusal is None
    exporter_takes = True
    try:
        topic_settings.parse(configs, "t")
    except SettingsError:
        exporter_takes = False
    assert exporter_takes == (said is None)


@pytest.mark.parametrize(
    "by",
    ["", "type", "a.b", "a..b", ".a", "a b", "a:b", "kafka_headers", "kafka_headers.x.y", "kafka_key",
     "kafka_key.id", 'a"', "x" * 256, "é"],
)  # fmt: skip
def test_agents_take_the_places_of_values_that_the_exporter_reads(by: str) -> None:
    taken = check("frazil.iceberg.route.by", by) is None
    try:
        routes.parse_by(by)
    except SettingsError:
        assert not taken
    else:
        assert taken


@pytest.mark.parametrize(
    "text",
    ["", "a:b", " a : b.c , d:e", '"a b":c', '"":c', "a:b,", ",a:b", "a:b,a:c", '"a":b,a:c', "a", "a:b:c", "a:b c",
     "a:.b", "a:b;c", ",".join(f"v{n}:t{n}" for n in range(17)), ",".join(f"v{n}:t{n % 16}" for n in range(40))],
)  # fmt: skip
def test_agents_take_the_routes_that_the_exporter_reads(text: str) -> None:
    taken = check("frazil.iceberg.route.tables", text) is None
    try:
        routes.parse_tables(text.strip())
    except SettingsError:
        assert not taken
    else:
        assert taken
