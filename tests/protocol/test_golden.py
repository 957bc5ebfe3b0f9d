"""Real clients' frames, and answers pinned to the byte."""

import struct

from protocol import apis, fetch, framing, messages, produce, records
from protocol.errors import ErrorCode
from protocol.fetch import FetchResponse, PartitionAnswer
from protocol.produce import PartitionResult
from protocol.records import Record, read_header
from tests.protocol import golden_frames

TOPIC_ID = bytes(range(16))


def parsed(frame: bytes) -> framing.RequestHeader:
    stream = struct.pack(">i", len(frame)) + frame
    [body] = framing.FrameSplitter().receive(stream)
    return framing.parse_header(body)


def decoded(frame: bytes):
    header = parsed(frame)
    return messages.decode_request(header.api_key, header.version, header.body)


def test_librdkafka_asks_for_api_versions():
    header = parsed(golden_frames.API_VERSIONS_V3_LIBRDKAFKA)
    assert header[:4] == (apis.API_VERSIONS, 3, 1, "rdk")
    assert decoded(golden_frames.API_VERSIONS_V3_LIBRDKAFKA) == messages.ApiVersionsRequest(
        client_software_name="confluent-kafka-python",
        client_software_version="2.16.1-rdkafka-2.16.0",
    )


def test_librdkafka_asks_for_metadata():
    assert decoded(golden_frames.METADATA_V13_LIBRDKAFKA) == messages.MetadataRequest(
        topics=[messages.MetadataRequestTopic(name="t")]
    )


def test_librdkafka_asks_for_a_producer_id():
    assert decoded(golden_frames.INIT_PRODUCER_ID_V4_LIBRDKAFKA) == messages.InitProducerIdRequest(
        transaction_timeout_ms=-1
    )


def test_librdkafka_creates_a_topic():
    assert decoded(golden_frames.CREATE_TOPICS_V4_LIBRDKAFKA) == messages.CreateTopicsRequest(
        topics=[messages.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
    )


def test_librdkafka_fetches_by_topic_id():
    header = parsed(golden_frames.FETCH_V16_LIBRDKAFKA)
    assert fetch.parse_request(header.version, header.body) == fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=fetch.READ_COMMITTED,
        topics=[(None, TOPIC_ID, [fetch.FetchPartition(0, 0, 1 << 20, current_leader_epoch=0)])],
    )


def test_aiokafka_fetches_by_name():
    header = parsed(golden_frames.FETCH_V11_AIOKAFKA)
    assert fetch.parse_request(header.version, header.body) == fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=fetch.READ_UNCOMMITTED,
        topics=[("t", None, [fetch.FetchPartition(0, 0, 1 << 20)])],
    )


def batch_of(frame: bytes) -> memoryview:
    header = parsed(frame)
    request = produce.parse_request(header.version, header.body)
    [(name, topic_id, [(partition, batch)])] = request.topics
    assert (name, topic_id, partition) == ("t", None, 0)
    assert batch is not None
    return batch


def test_aiokafka_produces_without_a_producer_id():
    batch = batch_of(golden_frames.PRODUCE_V7_AIOKAFKA)
    assert records.validate_batch(batch) == ErrorCode.NONE
    assert read_header(batch).producer_id == -1
    assert [(one.key, one.value) for one in records.iterate(batch)] == [(None, b"value0")]


def test_kafka_python_produces_idempotently():
    batch = batch_of(golden_frames.PRODUCE_V9_KAFKA_PYTHON)
    header = records.check_batch(batch)
    assert isinstance(header, records.BatchHeader)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 0, 0)
    assert [one.value for one in records.iterate(batch)] == [b"value%d" % i for i in range(10)]


def test_librdkafka_produces_keys_and_headers():
    batch = batch_of(golden_frames.PRODUCE_V10_LIBRDKAFKA)
    assert records.validate_batch(batch) == ErrorCode.NONE
    found = list(records.iterate(batch))
    assert len(found) == 20
    assert found[3] == Record(3, found[3].timestamp, b"k", b"v3" * 5, (("h", b"x"),))


def test_an_answer_to_produce_v9_is_these_bytes():
    accepted = PartitionResult(1, base_offset=5, log_start_offset=2)
    refused = PartitionResult(
        2, ErrorCode.INVALID_RECORD, record_errors=[(3, "bad")], error_message="no"
    )
    assert produce.encode_response(9, [("t", None, [accepted, refused])]).hex(" ") == (
        "02"  # One topic.
        " 02 74 03"  # "t", two partitions.
        " 00 00 00 01 00 00 00 00 00 00 00 00 00 05 ff ff ff ff ff ff ff ff"
        " 00 00 00 00 00 00 00 02 01 00 00"
        " 00 00 00 02 00 57 ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff"
        " ff ff ff ff ff ff ff ff 02 00 00 00 03 04 62 61 64 00 03 6e 6f 00"
        " 00"  # Tags of the topic.
        " 00 00 00 00 00"  # Throttle time, tags.
    )


def test_an_answer_to_fetch_v13_is_these_bytes():
    answer = PartitionAnswer(
        partition=1,
        high_watermark=10,
        last_stable_offset=9,
        log_start_offset=0,
        records=[b"AB", b"C"],
        records_bytes=3,
        aborted=[(7, 4)],
    )
    parts = fetch.encode_response(13, FetchResponse(topics=[(None, TOPIC_ID, [answer])]))
    assert b"".join(parts).hex(" ") == (
        "00 00 00 00 00 00 00 00 00 00"  # Throttle time, error, session.
        " 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f"  # One topic.
        " 02 00 00 00 01 00 00 00 00 00 00 00 00 00 0a 00 00 00 00 00 00 00 09"
        " 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00 04 00"
        " ff ff ff ff"  # Preferred read replica.
        " 04 41 42 43"  # Records.
        " 00 00 00"  # Tags of partition, topic, message.
    )


def test_a_marker_is_these_bytes():
    marker = records.control_batch(
        records.CONTROL_ABORT, base_offset=3, timestamp=1000, producer_id=7, producer_epoch=1
    )
    assert (
        marker.hex(" ")
        == (
            "00 00 00 00 00 00 00 03 00 00 00 42 00 00 00 00 02 "
            + marker[17:21].hex(" ")  # The CRC; `validate_batch` checks those of all others.
            + " 00 30 00 00 00 00 00 00 00 00 00 00 03 e8 00 00 00 00 00 00 03 e8"
            " 00 00 00 00 00 00 00 07 00 01 ff ff ff ff 00 00 00 01"
            " 20 00 00 00 08 00 00 00 00 0c 00 00 00 00 00 00 00"
        )
    )
