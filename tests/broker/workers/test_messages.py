"""What passes between supervisor and worker."""

import pytest

from broker.workers.messages import (
    BYTES_MAX,
    HEAD,
    Message,
    MessageError,
    Subject,
    What,
    decode,
    encode,
    length_of,
)


def test_a_message_comes_back_as_it_was() -> None:
    data = encode(What.ASK, ticket=7, subject=Subject.METRICS.value)
    assert length_of(data[: HEAD.size]) == len(data) - HEAD.size
    message = decode(data[HEAD.size :])
    assert (message.what, message.ticket, message.subject) == (What.ASK, 7, Subject.METRICS)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"what": "sing"}', b"\xff"])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(MessageError):
        decode(body)


def test_a_message_without_its_fields_is_refused() -> None:
    message = Message(What.ASK, {"subject": "weather"})
    with pytest.raises(MessageError, match="ticket"):
        _ = message.ticket
    with pytest.raises(MessageError, match="nothing known"):
        _ = message.subject


def test_a_length_beyond_the_bound_is_refused() -> None:
    with pytest.raises(MessageError):
        length_of(HEAD.pack(BYTES_MAX + 1))
