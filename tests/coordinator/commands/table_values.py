"""Commands about tables for the tests of codecs: one of each kind, and any there may be."""

from hypothesis import strategies as st

from coordinator.commands.table_commands import (
    DeleteSubject,
    ExpireHeldRecords,
    ExportEnd,
    GrowTopic,
    HeldExpiry,
    Reference,
    RegisterSchema,
    ReportExport,
    SchemaKind,
    SetSubjectRules,
    TableCommand,
)
from protocol.types import POSITION_ZERO, Position, TopicId, position
from tests.coordinator.commands.group_values import OTHER, TOPIC

FINGERPRINT = bytes(range(200, 232))

TABLE_COMMANDS: tuple[TableCommand, ...] = (
    ReportExport(TOPIC, (ExportEnd(0, 5), ExportEnd(300, 2**40))),
    RegisterSchema("events-value", SchemaKind.AVRO, b"text", FINGERPRINT, (), POSITION_ZERO),
    RegisterSchema(
        "events-key",
        SchemaKind.PROTOBUF,
        b"more text",
        FINGERPRINT,
        (Reference("common.proto", "common", 3), Reference("a.proto", "other", 300)),
        position(1, 900),
        schema_id=70_000,
        version=9,
    ),
    DeleteSubject("events-value", -1, permanent=False),
    DeleteSubject("events-value", 7, permanent=True),
    SetSubjectRules("", "FULL", None),
    SetSubjectRules("events-value", None, ""),
    GrowTopic(TOPIC, 300),
    ExpireHeldRecords(
        position(1, 800),
        (
            HeldExpiry(TOPIC, 0, 100, 604_800_000, -1, 700_000_000),
            HeldExpiry(OTHER, 9, 7, -1, 5, 6),
        ),
    ),
)

_topic_ids = st.binary(min_size=16, max_size=16).map(TopicId)
_u31, _u63 = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
_i64 = st.integers(-(2**63), 2**63 - 1)
_texts = st.text(max_size=9)
_words = st.none() | _texts
_references = st.builds(Reference, _texts, _texts, _i64)
_expiries = st.builds(HeldExpiry, _topic_ids, _u31, _u63, _i64, _i64, _i64)


def _some(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(values, max_size=4).map(tuple)


any_table_command: st.SearchStrategy[TableCommand] = st.one_of(
    st.builds(ReportExport, _topic_ids, _some(st.builds(ExportEnd, _u31, _u63))),
    st.builds(
        RegisterSchema,
        _texts,
        st.sampled_from(SchemaKind),
        st.binary(max_size=50),
        st.binary(min_size=32, max_size=32),
        _some(_references),
        _u63.map(Position),
        schema_id=_u31,
        version=_u31,
    ),
    st.builds(DeleteSubject, _texts, _i64, permanent=st.booleans()),
    st.builds(SetSubjectRules, _texts, _words, _words),
    st.builds(GrowTopic, _topic_ids, _i64),
    st.builds(ExpireHeldRecords, _u63.map(Position), _some(_expiries)),
)
