"""Requests that are read by hand (Produce, Fetch, Heartbeat), and by the codec: bytes that are damaged."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import apis, fetch, heartbeat, messages, produce
from protocol.errors import ErrorCode, ProtocolError
from tests.protocol import kio_oracle

PARSERS = {
    apis.PRODUCE: produce.parse_request,
    apis.FETCH: fetch.parse_request,
    apis.HEARTBEAT: heartbeat.parse_request,
}
by_hand = pytest.mark.parametrize("key", PARSERS, ids=lambda key: apis.APIS[key].name)


@by_hand
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_bytes_are_a_request_or_a_protocol_error(key, data):
    version = data.draw(st.sampled_from(kio_oracle.versions_of(key)))
    with contextlib.suppress(ProtocolError):
        PARSERS[key](version, memoryview(data.draw(st.binary(max_size=100))))


@by_hand
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_request_cut_short_is_a_protocol_error(key, data):
    version, encoded = data.draw(kio_oracle.requests(key))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolError):
        PARSERS[key](version, memoryview(encoded)[:cut])


@by_hand
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_request_with_one_byte_changed_is_a_request_or_a_protocol_error(key, data):
    version, encoded = data.draw(kio_oracle.requests(key))
    changed = bytearray(encoded)
    changed[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        PARSERS[key](version, memoryview(changed))


def heartbeat_of(version, data):
    """As the codec reads it."""
    known = messages.decode_request(apis.HEARTBEAT, version, data)
    return (known.group_id, known.generation_id, known.member_id, known.group_instance_id)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(kio_oracle.versions_of(apis.HEARTBEAT)), st.binary(max_size=60))
def test_any_bytes_of_a_heartbeat_mean_what_the_codec_says_they_mean(version, data):
    view = memoryview(data)
    try:
        known = heartbeat_of(version, view)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            heartbeat.parse_request(version, view)
    else:
        assert heartbeat.parse_request(version, view) == known


@settings(max_examples=200, deadline=None)
@given(kio_oracle.requests(apis.HEARTBEAT))
def test_a_heartbeat_is_parsed_as_the_codec_parses_it(encoded):
    version, data = encoded
    assert heartbeat.parse_request(version, memoryview(data)) == heartbeat_of(version, data)


@pytest.mark.parametrize("version", kio_oracle.versions_of(apis.HEARTBEAT))
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID])
def test_an_answer_to_a_heartbeat_is_encoded_as_the_codec_encodes_it(version, code):
    expected = messages.encode_response(
        apis.HEARTBEAT, version, messages.HeartbeatResponse(error_code=code)
    )
    assert b"".join(heartbeat.response(version, code)) == bytes(expected)
