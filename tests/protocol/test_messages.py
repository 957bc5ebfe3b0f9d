"""Neutral shapes against kio, for every API, version and direction; and bytes of no meaning."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import apis, messages
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import codec
from protocol.messages.codec import request_layout, response_layout
from protocol.messages.places import MODULE_OF
from tests.protocol import generate_shapes, kio_oracle

APIS = [pytest.param(api, id=api.name) for api in apis.APIS.values()]
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def layout_of(key: int, version: int, kind: str):
    return (request_layout if kind == "request" else response_layout)(key, version)


@pytest.mark.parametrize("kind", kio_oracle.KINDS)
@pytest.mark.parametrize("api", APIS)
def test_what_kio_writes_is_read_and_written_again_to_the_byte(api, kind):
    @QUICK
    @given(st.sampled_from(kio_oracle.versions_of(api.key)), st.data())
    def check(version, data):
        message_class = kio_oracle.message_class(api.key, version, kind)
        encoded = kio_oracle.encode(data.draw(kio_oracle.messages(message_class)))
        layout = layout_of(api.key, version, kind)
        shape, size = layout.read(memoryview(encoded), 0)
        assert size == len(encoded)
        out = bytearray()
        layout.write(out, shape)
        assert bytes(out) == encoded

    check()


@pytest.mark.parametrize("kind", kio_oracle.KINDS)
@pytest.mark.parametrize("api", APIS)
def test_an_empty_shape_can_be_written_in_every_version_and_kio_reads_it(api, kind):
    for version in kio_oracle.versions_of(api.key):
        shape = codec.shape_of(api.key, kind.capitalize())()
        out = bytearray()
        layout_of(api.key, version, kind).write(out, shape)
        message_class = kio_oracle.message_class(api.key, version, kind)
        assert isinstance(kio_oracle.decode(message_class, bytes(out)), message_class)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(kio_oracle.VERSIONS), st.binary(max_size=80))
def test_any_bytes_are_a_request_or_a_protocol_error(key_version, data):
    key, version = key_version
    with contextlib.suppress(ProtocolError):
        messages.decode_request(key, version, data)


@QUICK
@given(st.sampled_from(kio_oracle.VERSIONS), st.data())
def test_a_request_cut_short_is_a_protocol_error(key_version, data):
    key, version = key_version
    message_class = kio_oracle.message_class(key, version, "request")
    encoded = kio_oracle.encode(data.draw(kio_oracle.messages(message_class)))
    if encoded:
        cut = data.draw(st.integers(0, len(encoded) - 1))
        with pytest.raises(ProtocolError):
            messages.decode_request(key, version, encoded[:cut])


def test_an_unknown_tagged_field_is_read_over_kip_482():
    plain = messages.encode_request(apis.METADATA, 12, messages.MetadataRequest(topics=[]))
    assert plain.endswith(b"\0")
    tagged = plain[:-1] + b"\x01\x63\x02ab"
    assert messages.decode_request(apis.METADATA, 12, tagged).topics == []


def test_any_byte_but_zero_is_true_as_in_kafka():
    plain = messages.encode_request(
        apis.METADATA, 4, messages.MetadataRequest(allow_auto_topic_creation=True)
    )
    request = messages.decode_request(apis.METADATA, 4, plain[:-1] + b"\x02")
    assert request.allow_auto_topic_creation is True


def test_bytes_behind_a_request_are_ignored_as_kafka_does():
    data = messages.encode_request(apis.INIT_PRODUCER_ID, 4, messages.InitProducerIdRequest())
    request = messages.decode_request(apis.INIT_PRODUCER_ID, 4, data + b"more")
    assert request == messages.InitProducerIdRequest()


def test_a_count_that_lies_is_refused_before_anything_is_allocated():
    with pytest.raises(ProtocolError, match="2147483647"):
        messages.decode_request(apis.METADATA, 1, b"\x7f\xff\xff\xff")


def test_a_request_of_more_bytes_than_any_client_sends_is_refused():
    body = bytes(codec.REQUEST_BYTES_MAX + 1)
    with pytest.raises(ProtocolError, match="a request of 8388609 bytes"):
        messages.decode_request(apis.METADATA, 0, body)
    assert messages.decode_request(apis.METADATA, 0, body[:-1]).topics == []


def test_all_topics_are_null_from_metadata_v1_on():
    assert messages.decode_request(apis.METADATA, 1, b"\xff\xff\xff\xff").topics is None
    assert messages.decode_request(apis.METADATA, 0, b"\0\0\0\0").topics == []


def test_fields_that_a_version_lacks_are_left_out():
    response = messages.MetadataResponse(throttle_time_ms=7, cluster_id="c", controller_id=3)
    decoded = messages.decode_response(
        apis.METADATA, 1, messages.encode_response(apis.METADATA, 1, response)
    )
    assert decoded == messages.MetadataResponse(controller_id=3)


def test_null_where_a_version_has_no_null_is_written_as_empty():
    response = messages.MetadataResponse(topics=[messages.MetadataResponseTopic(name=None)])
    decoded = messages.decode_response(
        apis.METADATA, 11, messages.encode_response(apis.METADATA, 11, response)
    )
    assert decoded.topics[0].name == ""


def test_durations_are_milliseconds():
    data = messages.encode_request(
        apis.CREATE_TOPICS, 7, messages.CreateTopicsRequest(timeout_ms=1234)
    )
    assert data == b"\x01\x00\x00\x04\xd2\x00\x00"


def test_a_topic_id_is_sixteen_bytes():
    topic_id = bytes(range(16))
    request = messages.DeleteTopicsRequest(topics=[messages.DeleteTopicState(topic_id=topic_id)])
    data = messages.encode_request(apis.DELETE_TOPICS, 6, request)
    assert messages.decode_request(apis.DELETE_TOPICS, 6, data) == request
    assert topic_id in data


def features(version: int) -> messages.ApiVersionsResponse:
    response = messages.ApiVersionsResponse(
        supported_features=[
            messages.SupportedFeatureKey(name="group.version", min_version=0, max_version=1),
            messages.SupportedFeatureKey(name="metadata.version", min_version=7, max_version=30),
        ],
        finalized_features_epoch=5,
        finalized_features=[
            messages.FinalizedFeatureKey(
                name="metadata.version", max_version_level=30, min_version_level=30
            ),
            messages.FinalizedFeatureKey(name="transaction.version"),
        ],
    )
    data = messages.encode_response(apis.API_VERSIONS, version, response)
    return messages.decode_response(apis.API_VERSIONS, version, data)


def test_features_from_level_zero_on_are_left_out_before_api_versions_v4_kafka_17011():
    assert [feature.name for feature in features(3).supported_features] == ["metadata.version"]
    assert [feature.name for feature in features(4).supported_features] == [
        "group.version",
        "metadata.version",
    ]


def test_a_feature_finalized_at_level_zero_is_not_listed():
    assert [feature.name for feature in features(4).finalized_features] == ["metadata.version"]
    assert features(4).finalized_features_epoch == 5


def test_an_unknown_version_of_api_versions_is_answered_in_version_zero_kip_511():
    response = messages.decode_response(apis.API_VERSIONS, 0, messages.unsupported_api_versions())
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [
        (18, 0, 4)
    ]


def test_a_null_cursor_is_one_negative_byte_kip_893():
    data = messages.encode_request(
        apis.DESCRIBE_TOPIC_PARTITIONS, 0, messages.DescribeTopicPartitionsRequest()
    )
    assert data == b"\x01\x00\x00\x07\xd0\xff\x00"
    cursor = messages.Cursor(topic_name="t", partition_index=3)
    data = messages.encode_request(
        apis.DESCRIBE_TOPIC_PARTITIONS, 0, messages.DescribeTopicPartitionsRequest(cursor=cursor)
    )
    assert messages.decode_request(apis.DESCRIBE_TOPIC_PARTITIONS, 0, data).cursor == cursor


def test_shapes_have_a_default_for_every_field():
    assert len(MODULE_OF) > 200
    for name in MODULE_OF:
        shape = getattr(messages, name)
        assert shape() == shape()


def test_a_shape_that_is_not_there_is_no_attribute():
    with pytest.raises(AttributeError, match="there is no message BrewCoffeeRequest"):
        _ = messages.BrewCoffeeRequest


def test_shapes_are_as_kafkas_schemas_say():
    for path, source in generate_shapes.files().items():
        assert path.read_text() == source, "run python -m tests.protocol.generate_shapes"


def test_no_shape_is_generated_under_a_name_that_another_has(monkeypatch):
    monkeypatch.delitem(generate_shapes.NAMES, "ListTransactionsResponse.TransactionState")
    monkeypatch.delitem(generate_shapes.NAMES, "DescribeTransactionsResponse.TransactionState")
    rows = [apis.APIS[apis.DESCRIBE_TRANSACTIONS], apis.APIS[apis.LIST_TRANSACTIONS]]
    with pytest.raises(generate_shapes.NameTakenError, match="TransactionState of ListTrans"):
        generate_shapes.shapes_of(rows)
