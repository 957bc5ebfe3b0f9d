"""Commands about agents, topics, chunks and pins for the tests of codecs: one of each kind."""

from hypothesis import strategies as st

from coordinator.commands.entries import (
    AllocateProducerIds,
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Listener,
    Open,
    Pin,
    PurgePartitions,
    Tick,
    Unpin,
)
from protocol.types import TopicId
from storage.formats.spans import Item
from tests.coordinator.commands.group_values import INCARNATION, OTHER, TOPIC
from txn.transactions import NO_TRANSACTION, OF_EPOCH

PLAIN_COMMANDS: tuple[Command, ...] = (
    Open(7587, "agent-0", -1, "eu-1a", (Listener("PLAIN", "10.0.0.1", 9092),), "0.1.0", 1),
    Close(INCARNATION, 41),
    Tick(),
    CreateTopic("events", 12, (("retention.ms", "1000"),)),
    DeleteTopic(TOPIC),
    PurgePartitions(TOPIC, 1000, 500),
    AllocateProducerIds(1000),
    CommitChunk(
        7,
        1000,
        (
            ChunkSpan(
                TOPIC,
                0,
                40,
                (
                    Item(0, 100, 10, 1_700_000_000_000, 5, 1, 20),
                    Item(0, 200, 300, 1_700_000_000_000, 5, 1, 30),
                    Item(5, 100, 1, 1_699_999_999_990, 6, 0, 2**31 - 1),
                    Item(0, 100, 1, -1),
                ),
            ),
            ChunkSpan(OTHER, 3, 0, (Item(0, 40, 2, -1),)),
        ),
    ),
    Pin("export-1", 600_000),
    Unpin("export-1"),
)
TRANSACTIONAL_CHUNK = CommitChunk(
    8,
    900,
    (
        ChunkSpan(
            TOPIC,
            0,
            0,
            (
                Item(0, 100, 10, 1_700_000_000_000, 5, 1, 0, OF_EPOCH),
                Item(0, 100, 10, 1_700_000_000_000, 5, 1, 10, OF_EPOCH),
                Item(0, 100, 10, 1_700_000_000_000, 5, 1, 20, NO_TRANSACTION),
                Item(0, 100, 10, 1_700_000_000_000, 6, 0, 0, 7),
                Item(0, 100, 10, 1_700_000_000_000, 6, 0, 10, 7),
                Item(0, 100, 10, 1_700_000_000_000, 6, 0, 20, 300),
            ),
        ),
        ChunkSpan(OTHER, 3, 600, (Item(0, 40, 2, -1, 6, 0, 0, 0),)),
    ),
)

MORE_COMMANDS: tuple[Command, ...] = (
    TRANSACTIONAL_CHUNK,
    Open(
        2**63 - 1,
        "agent-ß",
        300,
        "",
        (Listener("PLAINTEXT", "::1", 65_535), Listener("", "", 0)),
        "",
        2**31 - 1,
    ),
    CreateTopic("t", -1, ()),
    CreateTopic("t", 10_000, (("cleanup.policy", "compact"), ("empty", ""), ("ß", "\N{SNOWMAN}"))),
    Pin("", -1),
)
"""Others of the same kinds."""

_U31 = st.integers(0, 2**31 - 1)
_U32 = st.integers(0, 2**32 - 1)
_U63 = st.integers(0, 2**63 - 1)
_I63 = st.integers(-(2**63), 2**63 - 1)
_strings = st.text(max_size=40)
_topic_ids = st.sampled_from([TOPIC, OTHER, TopicId(bytes(16))])
_skips = st.one_of(st.just(0), _U32)
_lengths = st.one_of(st.integers(1, 300), st.integers(1, 2**32 - 1))
_counts = st.one_of(st.integers(1, 300), st.integers(1, 2**63 - 1))
_stamps = st.one_of(st.just(-1), st.integers(1_000, 1_100), _I63)
_no = st.just(-1)
_plain_items = st.tuples(_skips, _lengths, _counts, _stamps, _no, _no, _no, _no)
_producer_items = st.tuples(
    _skips,
    _lengths,
    st.integers(1, 3),
    _stamps,
    st.one_of(st.integers(0, 2), _U63),
    st.one_of(st.integers(0, 1), st.integers(-(2**15), 2**15 - 1)),
    st.one_of(
        st.integers(0, 5),
        st.integers(2**31 - 3, 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
    ),
    st.one_of(st.sampled_from([NO_TRANSACTION, OF_EPOCH, 0, 1]), _U63),
)
_items = st.one_of(_plain_items, _producer_items).map(Item._make)
_spans = st.builds(
    ChunkSpan,
    topic_id=_topic_ids,
    partition=_U31,
    start=_U32,
    items=st.lists(_items, min_size=1, max_size=6).map(tuple),
)
_listeners = st.builds(Listener, name=_strings, host=_strings, port=st.integers(0, 65535))
any_plain_command: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        Open,
        session=_U63,
        node_name=_strings,
        node_id=st.integers(-1, 2**31 - 2),
        zone=_strings,
        listeners=st.lists(_listeners, max_size=3).map(tuple),
        software_version=_strings,
        feature_level_max=_U31,
    ),
    st.builds(Close, incarnation=_U63, last=_I63),
    st.builds(Tick),
    st.builds(
        CreateTopic,
        name=_strings,
        partition_count=_I63,
        configs=st.lists(st.tuples(_strings, _strings), max_size=3).map(tuple),
    ),
    st.builds(DeleteTopic, _topic_ids),
    st.builds(PurgePartitions, _topic_ids, _U31, _U31),
    st.builds(AllocateProducerIds, _I63),
    st.builds(CommitChunk, _U32, _U32, st.lists(_spans, max_size=5).map(tuple)),
    st.builds(Pin, _strings, _I63),
    st.builds(Unpin, _strings),
)
