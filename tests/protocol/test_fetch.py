"""Fetch by hand against the codec (which is held against kio), every version."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import apis, fetch, messages
from protocol.errors import ErrorCode, ProtocolError
from protocol.fetch import FetchResponse, PartitionAnswer
from protocol.messages import hot
from protocol.messages.layouts import SLICE_ELEMENTS, at_once
from protocol.produce import NodeEndpoint
from protocol.types import TopicId
from tests.protocol.kio_oracle import ints, requests, texts

VERSIONS = range(4, 19)
TOPIC_IDS = st.binary(min_size=16, max_size=16)


@st.composite
def answers(draw):
    records = draw(st.lists(st.binary(min_size=1, max_size=200), max_size=3))
    pairs = st.tuples(st.integers(0, 9), st.integers(0, 9))
    return PartitionAnswer(
        partition=draw(ints(32)),
        error=draw(st.sampled_from(ErrorCode)),
        high_watermark=draw(ints(64)),
        last_stable_offset=draw(ints(64)),
        log_start_offset=draw(ints(64)),
        records=records,
        records_bytes=sum(map(len, records)),
        aborted=draw(st.one_of(st.none(), st.lists(st.tuples(ints(64), ints(64)), max_size=3))),
        preferred_read_replica=draw(ints(32)),
        diverging_epoch=draw(st.one_of(st.none(), pairs)),
        current_leader=draw(st.one_of(st.none(), pairs)),
    )


RESPONSES = st.builds(
    FetchResponse,
    topics=st.lists(st.tuples(texts(), TOPIC_IDS, st.lists(answers(), max_size=3)), max_size=3),
    error=st.sampled_from(ErrorCode),
    session_id=ints(32),
    throttle_time_ms=ints(32),
    node_endpoints=st.lists(
        st.builds(NodeEndpoint, ints(32), texts(), ints(32), st.one_of(st.none(), texts())),
        max_size=2,
    ),
)


@settings(max_examples=100, deadline=None)
@given(requests(apis.FETCH))
def test_a_request_is_parsed_in_slices_to_the_same(encoded):
    version, data = encoded
    assert at_once(fetch.parse_slices(version, data)) == fetch.parse_request(version, data)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
def test_a_long_request_is_parsed_with_pauses(version):
    partitions = [hot.FetchPartition(partition=index) for index in range(3_000)]
    forgotten = hot.ForgottenTopic(topic="t", topic_id=TopicId(bytes(16)), partitions=[1, 2])
    topic = hot.FetchTopic(topic="t", topic_id=TopicId(bytes(16)), partitions=partitions)
    shape = hot.FetchRequest(topics=[topic] * 3, forgotten_topics_data=[forgotten] * 3_000)
    data = messages.encode_request(apis.FETCH, version, shape)
    pauses = sum(1 for _ in fetch.parse_slices(version, data))
    assert at_once(fetch.parse_slices(version, data)) == fetch.parse_request(version, data)
    assert pauses >= 9_000 // SLICE_ELEMENTS


@settings(max_examples=50, deadline=None)
@given(RESPONSES, st.integers(4, 18))
def test_an_answer_encoded_topic_by_topic_is_the_same(response, version):
    parts = [fetch.encode_head(version, response, len(response.topics))]
    for topic in response.topics:
        parts += fetch.encode_topics(version, [topic])
    parts.append(fetch.encode_end(version, response))
    assert b"".join(parts) == b"".join(fetch.encode_response(version, response))


@settings(max_examples=200, deadline=None)
@given(requests(apis.FETCH))
def test_a_request_is_parsed_as_the_codec_parses_it(encoded):
    version, data = encoded
    known = messages.decode_request(apis.FETCH, version, data)
    request = fetch.parse_request(version, data)
    by_id = version >= fetch.TOPIC_IDS_FROM
    assert request == fetch.FetchRequest(
        max_wait_ms=known.max_wait_ms,
        min_bytes=known.min_bytes,
        max_bytes=known.max_bytes,
        isolation_level=known.isolation_level,
        session_id=known.session_id,
        session_epoch=known.session_epoch,
        rack_id=known.rack_id,
        replica_id=known.replica_id if version < 15 else known.replica_state.replica_id,
        topics=[
            (
                None if by_id else topic.topic,
                topic.topic_id if by_id else None,
                [
                    fetch.FetchPartition(
                        partition=one.partition,
                        fetch_offset=one.fetch_offset,
                        partition_max_bytes=one.partition_max_bytes,
                        current_leader_epoch=one.current_leader_epoch,
                        last_fetched_epoch=one.last_fetched_epoch,
                        log_start_offset=one.log_start_offset,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in known.topics
        ],
        forgotten=[
            (
                None if by_id else topic.topic,
                topic.topic_id if by_id else None,
                topic.partitions,
            )
            for topic in known.forgotten_topics_data
        ],
    )


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), RESPONSES)
def test_a_response_is_encoded_as_the_codec_encodes_it(version, response):
    shape = hot.FetchResponse(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error,
        session_id=response.session_id,
        node_endpoints=[
            hot.NodeEndpoint(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in response.node_endpoints
        ],
        responses=[
            hot.FetchableTopicResponse(
                topic=name, topic_id=topic_id, partitions=[shape_of(one) for one in ones]
            )
            for name, topic_id, ones in response.topics
        ],
    )
    parts = fetch.encode_response(version, response)
    assert b"".join(parts) == messages.encode_response(apis.FETCH, version, shape)


def shape_of(answer: PartitionAnswer) -> hot.PartitionData:
    leader = answer.current_leader or (-1, -1)
    diverging = answer.diverging_epoch or (-1, -1)
    aborted = None
    if answer.aborted is not None:
        aborted = [
            hot.AbortedTransaction(producer_id=producer_id, first_offset=offset)
            for producer_id, offset in answer.aborted
        ]
    return hot.PartitionData(
        partition_index=answer.partition,
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        records=b"".join(answer.records),
        aborted_transactions=aborted,
        preferred_read_replica=answer.preferred_read_replica,
        diverging_epoch=hot.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        current_leader=hot.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
    )


def test_a_replica_state_too_short_for_its_field_is_a_protocol_error():
    data = messages.encode_request(apis.FETCH, 15, hot.FetchRequest())
    with pytest.raises(ProtocolError):
        fetch.parse_request(15, data[:-1] + b"\x01\x01\x02ab")


def test_a_forgotten_list_that_lies_about_its_length_is_refused():
    data = messages.encode_request(
        apis.FETCH, 11, hot.FetchRequest(forgotten_topics_data=[hot.ForgottenTopic()])
    )
    lie = data.replace(struct.pack(">ihi", 1, 0, 0), struct.pack(">ihi", 1, 0, 1 << 30))
    with pytest.raises(ProtocolError):
        fetch.parse_request(11, lie)


def test_buffers_of_records_are_passed_on_and_never_copied():
    batches = [memoryview(bytearray(b"one")), memoryview(bytearray(b"two"))]
    answer = PartitionAnswer(partition=0, records=batches, records_bytes=6)
    parts = fetch.encode_response(12, FetchResponse(topics=[("t", None, [answer, answer])]))
    assert len(parts) == 7
    assert parts[1] is batches[0]
    assert parts[2] is batches[1]
    assert parts[4] is batches[0]


def test_an_answer_without_records_is_one_buffer():
    answers_without = [PartitionAnswer(partition=one) for one in range(5)]
    parts = fetch.encode_response(12, FetchResponse(topics=[("t", None, answers_without)]))
    assert len(parts) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_no_records_are_sent_as_no_bytes_and_not_as_null(version):
    topics = [("t", bytes(16), [PartitionAnswer(partition=0)])]
    data = b"".join(fetch.encode_response(version, FetchResponse(topics=topics)))
    response = messages.decode_response(apis.FETCH, version, data)
    assert response.responses[0].partitions[0].records == b""
    assert response.responses[0].partitions[0].aborted_transactions is None
