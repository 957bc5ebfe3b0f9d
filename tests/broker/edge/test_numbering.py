"""Numbers of bytes: a byte of TLS is as old as the first byte of its record."""

import pytest

from broker.edge.numbering import FrameUnderWay, NotTlsError, Numbering, RecordNumbering
from protocol.types import Position

DATA = 23


def record(size: int, kind: int = DATA) -> bytes:
    return bytes([kind, 3, 3]) + size.to_bytes(2) + bytes(size)


class Socket:
    """Gives ciphertext to the numbering, at a position that rises by one with each read."""

    def __init__(self) -> None:
        self.records = RecordNumbering()
        self.position = 0

    def read(self, data: bytes, *, waiting: bool = False) -> tuple[int, int]:
        """Number and position of what is delivered next."""
        self.position += 1
        self.records.taken(memoryview(data), Position(self.position), waiting=waiting)
        return self.records.numbering.begun, self.records.numbering.clock


def test_whole_records_have_the_number_of_the_read_that_they_came_in():
    socket = Socket()
    one = record(100)
    assert socket.read(one) == (0, 1)
    assert socket.read(one + one) == (105, 2)
    assert socket.read(one) == (315, 3)
    assert socket.records.numbering.read == 420
    assert not socket.records.is_open


def test_a_record_that_began_in_an_earlier_read_keeps_its_number_and_its_position():
    socket = Socket()
    one = record(100)
    assert socket.read(one + one[:1]) == (0, 1)
    assert socket.records.is_open
    assert socket.read(one[1:50]) == (105, 1)
    assert socket.read(one[50:] + one) == (105, 1)
    assert socket.read(one) == (315, 4)


@pytest.mark.parametrize("cut", range(1, 16))
def test_wherever_a_record_is_cut_its_rest_is_no_younger_than_its_beginning(cut: int):
    socket = Socket()
    one = record(10)
    socket.read(one[:cut])
    assert socket.read(one[cut:] + one)[0] == (0 if cut < len(one) else len(one))


def test_what_comes_while_something_waits_to_be_delivered_is_as_old_as_that():
    socket = Socket()
    one = record(10)
    assert socket.read(one) == (0, 1)
    assert socket.read(one, waiting=True) == (0, 1)
    assert socket.read(one) == (30, 3)


def test_a_byte_at_a_time_comes_to_the_same():
    whole, dripping = Socket(), Socket()
    stream = b"".join(record(size) for size in (0, 1, 5, 300, 0, 16_384))
    whole.read(stream)
    for index in range(len(stream)):
        dripping.read(stream[index : index + 1])
    assert whole.records.numbering.read == dripping.records.numbering.read == len(stream)
    assert not whole.records.is_open
    assert not dripping.records.is_open


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        (35).to_bytes(4) + b"\x00\x12\x00\x03",
        record(10, kind=99),
        bytes([DATA, 3, 3, 0xFF, 0xFF]),
        b"\x80\x2e\x01\x03\x01",
    ],
)
def test_what_is_no_tls_is_refused(data: bytes):
    with pytest.raises(NotTlsError):
        Socket().read(data)


def test_bytes_without_tls_have_numbers_of_their_own():
    numbering, frame = Numbering(), FrameUnderWay()
    numbering.delivered(30, 100, Position(7))
    assert numbering.dry
    assert not frame.read(numbering, 30)
    assert (frame.number, frame.clock) == (0, 7)
    frame.ended(numbering, 10)
    assert frame.number == 10
    frame.ended(numbering, 15)
    assert frame.number == 25
    numbering.delivered(100, 100, Position(8))
    assert not numbering.dry
    assert frame.read(numbering, 100)
    assert (frame.number, frame.clock) == (25, 7)
    frame.ended(numbering, 20)
    assert (frame.number, frame.clock) == (45, 8)


def test_frames_of_one_delivery_of_tls_have_the_number_of_its_oldest_record():
    socket, frame = Socket(), FrameUnderWay()
    numbering = socket.records.numbering
    socket.read(record(100))
    frame.read(numbering, 30)
    frame.ended(numbering, 10)
    assert frame.number == 0
    socket.read(record(100))
    assert frame.read(numbering, 50)
    assert frame.number == 0
    frame.ended(numbering, 20)
    assert frame.number == 105
