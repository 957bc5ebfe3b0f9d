"""Produce by hand against the codec (which is held against kio), every version."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import apis, messages, produce
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import hot
from protocol.produce import NodeEndpoint, PartitionResult
from tests.protocol.kio_oracle import ints, requests, texts

VERSIONS = range(3, 14)
TOPIC_IDS = st.binary(min_size=16, max_size=16)

REFUSED = st.builds(
    PartitionResult,
    partition=ints(32),
    error=st.sampled_from([code for code in ErrorCode if code]),
    log_start_offset=ints(64),
    record_errors=st.lists(st.tuples(ints(32), st.one_of(st.none(), texts())), max_size=3),
    error_message=st.one_of(st.none(), texts()),
    current_leader=st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(0, 9))),
)
ACCEPTED = st.builds(
    PartitionResult,
    partition=ints(32),
    base_offset=ints(64),
    log_append_time=st.integers(-1, 1 << 50),
    log_start_offset=ints(64),
)
RESULTS = st.lists(
    st.tuples(texts(), TOPIC_IDS, st.lists(st.one_of(ACCEPTED, REFUSED), max_size=4)), max_size=3
)
ENDPOINTS = st.lists(
    st.builds(NodeEndpoint, ints(32), texts(), ints(32), st.one_of(st.none(), texts())), max_size=2
)


@settings(max_examples=200, deadline=None)
@given(requests(apis.PRODUCE))
def test_a_request_is_parsed_as_the_codec_parses_it(encoded):
    version, data = encoded
    known = messages.decode_request(apis.PRODUCE, version, data)
    request = produce.parse_request(version, data)
    assert request.transactional_id == known.transactional_id
    assert (request.acks, request.timeout_ms) == (known.acks, known.timeout_ms)
    by_id = version >= produce.TOPIC_IDS_FROM
    assert request.topics == [
        (
            None if by_id else topic.name,
            topic.topic_id if by_id else None,
            [(one.index, one.records) for one in topic.partition_data],
        )
        for topic in known.topic_data
    ]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), RESULTS, st.integers(0, 1000), ENDPOINTS)
def test_a_response_is_encoded_as_the_codec_encodes_it(version, results, throttle, endpoints):
    response = hot.ProduceResponse(
        throttle_time_ms=throttle,
        node_endpoints=[
            hot.NodeEndpoint(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in endpoints
        ],
        responses=[
            hot.TopicProduceResponse(
                name=name, topic_id=topic_id, partition_responses=[shape_of(one) for one in ones]
            )
            for name, topic_id, ones in results
        ],
    )
    assert produce.encode_response(
        version, results, throttle_time_ms=throttle, node_endpoints=endpoints
    ) == messages.encode_response(apis.PRODUCE, version, response)


def shape_of(result: PartitionResult) -> hot.PartitionProduceResponse:
    leader = result.current_leader or (-1, -1)
    return hot.PartitionProduceResponse(
        index=result.partition,
        error_code=result.error,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time,
        log_start_offset=result.log_start_offset,
        record_errors=[
            hot.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ],
        error_message=result.error_message,
        current_leader=hot.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_views_into_the_frame(version):
    frame = bytearray(messages.encode_request(apis.PRODUCE, version, one_batch(b"RECORDS")))
    request = produce.parse_request(version, memoryview(frame))
    records = request.topics[0][2][0][1]
    assert records == b"RECORDS"
    frame[frame.index(b"RECORDS")] = ord("X")
    assert records == b"XECORDS"


def one_batch(records: bytes | None) -> hot.ProduceRequest:
    partition = hot.PartitionProduceData(index=1, records=records)
    return hot.ProduceRequest(
        acks=-1, timeout_ms=100, topic_data=[hot.TopicProduceData(partition_data=[partition])]
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_null_records_and_empty_records_are_told_apart(version):
    for records in (None, b""):
        data = messages.encode_request(apis.PRODUCE, version, one_batch(records))
        assert produce.parse_request(version, data).topics[0][2] == [(1, records)]


def test_a_negative_length_of_records_is_refused():
    data = messages.encode_request(apis.PRODUCE, 7, one_batch(None))
    with pytest.raises(ProtocolError, match="records of -2 bytes"):
        produce.parse_request(7, data[:-4] + struct.pack(">i", -2))


def test_a_null_list_of_topics_is_refused():
    with pytest.raises(ProtocolError, match="null"):
        produce.parse_request(7, struct.pack(">hhii", -1, 1, 100, -1))


def test_bytes_behind_a_request_are_ignored_as_kafka_does():
    data = messages.encode_request(apis.PRODUCE, 9, one_batch(b"R"))
    assert produce.parse_request(9, data + b"more") == produce.parse_request(9, data)


def test_a_name_that_is_not_utf8_is_refused():
    data = struct.pack(">hhiih", -1, 1, 100, 1, 1) + b"\xff" + struct.pack(">i", 0)
    with pytest.raises(ProtocolError, match="not UTF-8"):
        produce.parse_request(7, data)


def test_the_leader_of_a_refusal_is_told_from_v10_on_kip_951():
    result = PartitionResult(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=(3, 0))
    endpoint = NodeEndpoint(3, "host", 9092, "zone")
    data = produce.encode_response(10, [("t", None, [result])], node_endpoints=[endpoint])
    response = messages.decode_response(apis.PRODUCE, 10, data)
    partition = response.responses[0].partition_responses[0]
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3, 0)
    assert (response.node_endpoints[0].host, response.node_endpoints[0].rack) == ("host", "zone")
    assert produce.encode_response(
        9, [("t", None, [result])], node_endpoints=[endpoint]
    ) == produce.encode_response(
        9, [("t", None, [PartitionResult(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)])]
    )
