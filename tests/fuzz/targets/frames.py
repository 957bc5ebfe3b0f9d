"""A connection's stream: cut into frames however it arrives, headers, and requests as shapes.

The first byte of an input says in which pieces the rest arrives.
"""

import random
from collections.abc import Hashable, Sequence

from typing_extensions import override

from protocol import apis, consumer_protocol, fetch, heartbeat, messages, produce
from protocol.errors import ProtocolError
from protocol.framing import FrameSplitter, parse_header
from protocol.messages import codec
from protocol.messages.layouts import Meter
from protocol.slices import advance
from protocol.types import Buffer
from tests.fuzz import grammar
from tests.fuzz.target import Target, WrongError, words

HOT = {
    apis.PRODUCE: produce.parse_request,
    apis.FETCH: fetch.parse_request,
    apis.HEARTBEAT: heartbeat.parse_request,
}
FRAME_BYTES_MAX = 1 << 20
SCRATCH_BYTES = 1 << 16
PIECED_BYTES_MAX = 1 << 14


class Frames(Target):
    name = "frames"
    fixed = 3000

    @override
    def generate(self, rng: random.Random) -> bytes:
        out = bytearray((rng.randrange(256),))
        for number in range(rng.choice((1, 1, 1, 1, 1, 1, 2, 3))):
            out += grammar.generated(rng, NAMES, *rng.choice(grammar.VERSIONS), number)
        return bytes(out)

    @override
    def sealed(self, data: bytes) -> bytes:
        """The last frame has the length that it says, so that changed requests are looked at."""
        pieces = self.pieces(data)
        if len(pieces) > 1 and 0 < len(pieces[-1]) - 4 < FRAME_BYTES_MAX:
            last = pieces[-1][4:]
            data = b"".join(pieces[:-1]) + len(last).to_bytes(4, "big") + last
        return data

    @override
    def pieces(self, data: bytes) -> Sequence[bytes]:
        pieces, at = [data[:1]], 1
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big", signed=True)
            end = at + 4 + size if 0 <= size < FRAME_BYTES_MAX else len(data)
            pieces.append(data[at:end])
            at = end
        return pieces

    @override
    def run(self, data: bytes) -> Hashable:
        stream = data[1:]
        self.stood_ms = 0.0
        frames, said = _split([stream])
        if data and data[0] & 2 and len(data) < PIECED_BYTES_MAX:
            step = 1 + (data[0] >> 2)
            pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
            if _split(pieces) != (frames, said):
                raise WrongError("other frames when they arrive in pieces")
        return (*map(self._parse, frames), said)

    def _parse(self, frame: Buffer) -> Hashable:
        try:
            header = parse_header(frame)
            key, version = header.api_key, header.version
            if not apis.is_served(key, version):
                return key
            if (read := HOT.get(key)) is not None:
                self.timed(lambda: read(version, header.body))
                return key, version
            # In slices, as long ones are.
            work = codec.decode_slices(key, version, header.body, Meter(key))
            while (ended := self.timed(lambda: advance(work))) is None:
                pass
            request = ended.result
        except ProtocolError as error:
            return words(error)
        if (
            messages.decode_request(key, version, messages.encode_request(key, version, request))
            != request
        ):
            raise WrongError(f"another request when it is written again: {request}")
        said = [_embedded(request)] if key in (apis.JOIN_GROUP, apis.SYNC_GROUP) else []
        return key, version, *said


def _split(pieces: list[bytes]) -> tuple[list[bytes], str]:
    splitter = FrameSplitter(FRAME_BYTES_MAX)
    frames: list[Buffer] = []
    try:
        for piece in pieces:
            at = 0
            while at < len(piece):
                room = splitter.wanted(memoryview(bytearray(SCRATCH_BYTES)))
                count = min(len(room), len(piece) - at)
                if splitter.in_place:
                    room[:count] = piece[at : at + count]
                    del room
                    frames += splitter.received(count)
                else:
                    frames += splitter.receive(piece[at : at + count])
                at += count
        if splitter.error:
            raise splitter.error
    except ProtocolError as error:
        return [*map(bytes, frames)], words(error)
    return [*map(bytes, frames)], ""


def _embedded(request: object) -> Hashable:
    """What consumers write into the requests of their groups."""
    try:
        for each in getattr(request, "protocols", ()):
            consumer_protocol.read_subscription(each.metadata)
        for each in getattr(request, "assignments", ()):
            consumer_protocol.read_assignment(each.assignment)
    except ProtocolError as error:
        return words(error)
    return None


NAMES = grammar.Names()
