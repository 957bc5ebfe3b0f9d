"""Heartbeat by hand against the codec (which is held against kio), every version."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import apis, heartbeat, messages
from protocol.errors import ErrorCode, ProtocolError
from tests.protocol.kio_oracle import ints, texts

VERSIONS = range(apis.APIS[apis.HEARTBEAT].min_version, apis.APIS[apis.HEARTBEAT].max_version + 1)

REQUESTS = st.builds(
    messages.HeartbeatRequest,
    group_id=texts(),
    generation_id=ints(32),
    member_id=texts(),
    group_instance_id=st.one_of(st.none(), texts()),
)


def test_every_version_that_is_served_is_looked_at_here() -> None:
    assert list(VERSIONS) == [0, 1, 2, 3, 4]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), REQUESTS)
def test_a_request_is_parsed_as_the_codec_parses_it(version, message) -> None:
    data = messages.encode_request(apis.HEARTBEAT, version, message)
    expected = messages.decode_request(apis.HEARTBEAT, version, memoryview(data))
    parsed = heartbeat.parse_request(version, memoryview(data))
    assert parsed == (
        expected.group_id,
        expected.generation_id,
        expected.member_id,
        expected.group_instance_id,
    )


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), REQUESTS, st.data())
def test_a_request_that_is_cut_off_is_a_protocol_error(version, message, data) -> None:
    encoded = messages.encode_request(apis.HEARTBEAT, version, message)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ProtocolError):
        heartbeat.parse_request(version, memoryview(encoded)[:cut])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(VERSIONS), st.binary(max_size=60))
def test_any_bytes_mean_what_the_codec_says_they_mean(version, data) -> None:
    try:
        expected = messages.decode_request(apis.HEARTBEAT, version, memoryview(data))
    except ProtocolError:
        with pytest.raises(ProtocolError):
            heartbeat.parse_request(version, memoryview(data))
    else:
        parsed = heartbeat.parse_request(version, memoryview(data))
        assert parsed == (
            expected.group_id,
            expected.generation_id,
            expected.member_id,
            expected.group_instance_id,
        )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID])
def test_a_response_is_encoded_as_the_codec_encodes_it(version, code) -> None:
    expected = messages.encode_response(
        apis.HEARTBEAT, version, messages.HeartbeatResponse(error_code=code)
    )
    assert b"".join(heartbeat.response(version, code)) == bytes(expected)
