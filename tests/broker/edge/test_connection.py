"""One connection: order (P10), bounds (P15), and what is not Kafka.

What Kafka does there is in docs/design/kafka-semantics.md §1.
"""

import asyncio
import struct
from dataclasses import replace

import pytest

from broker.api import Cold
from broker.edge.limits import REQUEST_BYTES, ConnectionLimits, ServerLimits
from protocol import apis, messages
from protocol.errors import ErrorCode, ProtocolError
from tests.broker.edge.stage import connected, staged
from tests.kit.client import settle

PRODUCE = (apis.PRODUCE, 9)
FETCH = (apis.FETCH, 12)
METADATA = (apis.METADATA, 9)


def limits(**changes) -> ServerLimits:
    return ServerLimits(
        connections_max=100,
        idle_ms_max=600_000,
        held_bytes_max=1 << 30,
        connection=ConnectionLimits(**changes),
    )


def keys(calls) -> list[int]:
    return [call.api_key for call in calls]


async def test_produce_requests_start_before_the_one_ahead_is_answered():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*PRODUCE) + peer.frame(*PRODUCE) + peer.frame(*PRODUCE))
        assert keys(stage.started) == [apis.PRODUCE] * 3


@pytest.mark.promise("P10")
@pytest.mark.parametrize("second", [METADATA, FETCH])
async def test_another_request_waits_until_all_before_it_are_answered(second):
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*PRODUCE) + peer.frame(*PRODUCE) + peer.frame(*second))
        await stage.answer(1)
        assert keys(stage.started) == [apis.PRODUCE] * 2
        await stage.answer(0)
        assert keys(stage.started) == [apis.PRODUCE] * 2 + [second[0]]


@pytest.mark.promise("P10")
async def test_a_produce_request_waits_behind_another_request():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*METADATA) + peer.frame(*PRODUCE))
        await settle()
        assert keys(stage.started) == [apis.METADATA]
        await stage.answer(0)
        assert keys(stage.started) == [apis.METADATA, apis.PRODUCE]


@pytest.mark.promise("P10")
async def test_a_produce_request_does_not_overtake_a_request_that_has_not_started():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*PRODUCE) + peer.frame(*METADATA) + peer.frame(*PRODUCE))
        await settle()
        assert len(stage.started) == 1


@pytest.mark.promise("P10")
@pytest.mark.parametrize("seed", range(20))
async def test_answers_leave_in_the_order_of_the_requests_whenever_they_come(seed):
    async with connected() as (stage, peer):
        peer.feed(b"".join(peer.frame(*PRODUCE) for _ in range(6)))
        for index in (3, 1, 5, 0, 2, 4):
            await stage.answer(index, b"%d" % index)
        assert peer.correlation_ids() == [1, 2, 3, 4, 5, 6]


async def test_answers_of_one_loop_turn_leave_in_one_write():
    async with connected() as (stage, peer):
        peer.feed(b"".join(peer.frame(*PRODUCE) for _ in range(6)))
        for call in stage.started:
            call.answer([b"x"])
        await settle()
        assert len(peer.transport.writes) == 1
        assert peer.correlation_ids() == [1, 2, 3, 4, 5, 6]


async def test_a_request_without_an_answer_lets_the_next_ones_pass():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*PRODUCE) + peer.frame(*PRODUCE))
        stage.started[1].answer([b"2"])
        stage.started[0].answer(None)
        await settle()
        assert peer.correlation_ids() == [2]


async def test_requests_may_arrive_a_byte_at_a_time():
    async with connected() as (stage, peer):
        data = peer.frame(*PRODUCE, body=b"first") + peer.frame(*PRODUCE, body=b"second")
        for index in range(len(data)):
            peer.feed(data[index : index + 1])
        assert [bytes(call.body) for call in stage.started] == [b"first", b"second"]


async def test_a_big_frame_is_received_whole_whatever_pieces_it_comes_in():
    async with connected() as (stage, peer):
        body = bytes(range(256)) * 20_000
        data = peer.frame(*PRODUCE, body=body) + peer.frame(*PRODUCE, body=b"next")
        for start in range(0, len(data), 70_001):
            peer.feed(data[start : start + 70_001])
            await settle()
        assert bytes(stage.started[0].body) == body
        assert bytes(stage.started[1].body) == b"next"
        for call in stage.started:
            call.answer([b"x"])
        await settle()


async def test_the_answer_carries_the_header_of_its_version():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(apis.METADATA, 1) + peer.frame(apis.METADATA, 9))
        for _ in range(2):
            await stage.answer(-1, b"body")
        fixed, flexible = peer.frames()
        assert fixed == struct.pack(">i", 1) + b"body"
        assert flexible == struct.pack(">ix", 2) + b"body"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative length"),
        pytest.param(struct.pack(">i", 4) + bytes(4), id="shorter than a header"),
        pytest.param(struct.pack(">i", 0x7FFFFFFF), id="longer than the limit"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack(">ihhih", 10, 999, 0, 1, -1), id="unknown key"),
        pytest.param(struct.pack(">ihhih", 10, apis.METADATA, 99, 1, -1), id="unknown version"),
        pytest.param(struct.pack(">ihhih", 10, apis.PRODUCE, 2, 1, -1), id="produce v2"),
    ],
)
async def test_who_does_not_speak_kafka_is_disconnected_without_an_answer(data):
    async with connected() as (stage, peer):
        peer.feed(data)
        assert peer.closed
        assert not peer.transport.writes
        assert stage.node.stats.connections_closed == {"malformed": 1}


async def test_what_came_before_a_malformed_request_is_still_answered():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*PRODUCE) + struct.pack(">i", -5))
        assert not peer.closed
        await stage.answer()
        assert peer.correlation_ids() == [1]
        assert peer.closed


def with_start(api, start):
    return replace(api, handler=api.handler._replace(start=start))


async def test_a_body_that_a_hot_handler_cannot_parse_closes_the_connection():
    async with staged() as stage:

        def start(node, call):
            if len(stage.started) == 1:
                raise ProtocolError("malformed")
            stage.started.append(call)

        table = stage.server.dispatcher._served
        table[apis.PRODUCE] = with_start(table[apis.PRODUCE], start)
        peer = stage.connect()
        peer.feed(peer.frame(*PRODUCE) + peer.frame(*PRODUCE) + peer.frame(*PRODUCE))
        await stage.answer()
        assert peer.correlation_ids() == [1]
        assert peer.closed
        assert len(stage.started) == 1


async def test_an_unforeseen_error_in_a_cold_handler_ends_its_connection_only():
    async def handle(node, call, request):
        raise ZeroDivisionError

    async with staged(handlers={apis.DESCRIBE_CLUSTER: Cold(handle, handle)}) as stage:
        peer, other = stage.connect(), stage.connect()
        peer.send(apis.DESCRIBE_CLUSTER, 0, messages.DescribeClusterRequest())
        await settle()
        assert peer.closed
        assert not other.closed
        assert stage.node.stats.failed_handlers == 1
        other.send(*PRODUCE)
        assert len(stage.started) == 1


async def test_an_unforeseen_error_in_a_hot_handler_ends_its_connection_only():
    async with staged() as stage:

        def start(node, call):
            raise ZeroDivisionError

        table = stage.server.dispatcher._served
        working = table[apis.PRODUCE]
        table[apis.PRODUCE] = with_start(working, start)
        peer, other = stage.connect(), stage.connect()
        with pytest.raises(ZeroDivisionError):
            peer.send(*PRODUCE)
        table[apis.PRODUCE] = working
        assert peer.closed
        assert stage.node.stats.failed_handlers == 1
        other.send(*PRODUCE)
        assert len(stage.started) == 1


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0_without_being_parsed():
    """KIP-511."""
    async with staged() as stage:
        table = stage.server.dispatcher._served
        table[apis.API_VERSIONS] = table[apis.CREATE_TOPICS]
        peer = stage.connect()
        head = struct.pack(">hhih", apis.API_VERSIONS, 77, 5, -1) + b"\0"
        peer.feed(struct.pack(">i", len(head) + 3) + head + b"\xff\xff\xff")
        await settle()
        (frame,) = peer.frames()
        answer = messages.decode_response(apis.API_VERSIONS, 0, frame[4:])
        assert frame[:4] == struct.pack(">i", 5)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        (row,) = answer.api_keys
        assert (row.api_key, row.max_version) == (
            apis.API_VERSIONS,
            apis.APIS[apis.API_VERSIONS].max_version,
        )


@pytest.mark.promise("P15")
async def test_reading_stops_at_the_bound_of_unanswered_requests_and_goes_on_below_it():
    async with connected(limits=limits(requests_max=4)) as (stage, peer):
        for _ in range(3):
            peer.send(*PRODUCE)
        assert not peer.transport.read_paused
        peer.send(*PRODUCE)
        assert peer.transport.read_paused
        peer.put(peer.frame(*PRODUCE))
        await settle()
        assert len(stage.started) == 4
        await stage.answer()
        assert len(stage.started) == 5


async def test_reading_stops_at_the_bound_of_unanswered_bytes():
    async with connected(limits=limits(bytes_max=1000 + REQUEST_BYTES)) as (stage, peer):
        peer.send(*PRODUCE, body=bytes(900))
        assert not peer.transport.read_paused
        peer.send(*PRODUCE, body=bytes(900))
        assert peer.transport.read_paused
        await stage.answer(1)
        assert peer.transport.read_paused, "an answer that cannot leave yet releases nothing"
        await stage.answer()
        assert not peer.transport.read_paused


@pytest.mark.promise("P15")
async def test_the_memory_of_small_requests_counts_beside_their_bytes():
    async with connected(limits=limits(bytes_max=10 * REQUEST_BYTES)) as (stage, peer):
        for _ in range(9):
            peer.send(*PRODUCE)
        assert not peer.transport.read_paused
        peer.send(*PRODUCE)
        assert peer.transport.read_paused
        assert stage.node.stats.held_bytes >= 10 * REQUEST_BYTES
        for index in range(10):
            await stage.answer(index)
        assert stage.node.stats.held_bytes == 0
        assert not peer.transport.read_paused


async def test_a_client_that_does_not_take_its_answers_is_not_served_further():
    async with connected(limits=limits(write_buffer_bytes=1000)) as (stage, peer):
        peer.transport.stuck = True
        peer.feed(peer.frame(*METADATA) + peer.frame(*METADATA))
        await stage.answer(0, bytes(2_000))
        assert len(stage.started) == 1
        assert peer.transport.read_paused
        peer.transport.stuck = False
        peer.protocol.resume_writing()
        await settle()
        assert len(stage.started) == 2
        assert not peer.transport.read_paused


async def test_produce_waits_for_room_and_other_connections_are_served_meanwhile():
    async with staged() as stage:
        producer, consumer = stage.connect(), stage.connect()
        stage.node.producing.full = True
        producer.send(*PRODUCE)
        consumer.send(*FETCH)
        await settle()
        assert keys(stage.started) == [apis.FETCH]
        assert producer.transport.read_paused
        assert not consumer.transport.read_paused
        stage.node.producing.make_room()
        await settle()
        assert keys(stage.started) == [apis.FETCH, apis.PRODUCE]
        assert not producer.transport.read_paused


async def test_what_waited_for_room_goes_with_its_connection():
    async with connected() as (stage, peer):
        stage.node.producing.full = True
        peer.send(*PRODUCE)
        peer.hang_up()
        stage.node.producing.make_room()
        await settle()
        assert not stage.started


async def test_an_answer_for_a_connection_that_is_gone_goes_nowhere():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*PRODUCE) + peer.frame(*METADATA))
        peer.hang_up()
        (call,) = stage.started
        assert call.abandoned
        call.answer([b"x"])
        await settle()
        assert len(stage.started) == 1
        assert not peer.transport.writes


async def test_a_handler_can_close_the_connection_instead_of_answering():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*PRODUCE) + peer.frame(*PRODUCE))
        stage.started[0].close("acks=0 and a partition failed")
        await settle()
        assert peer.was_lost
        assert not peer.transport.writes
        assert stage.node.stats.connections_closed == {"handler": 1}


async def test_big_parts_of_an_answer_are_not_joined():
    async with connected() as (stage, peer):
        gathered = []
        peer.transport.writelines = gathered.append
        part = memoryview(bytes(100_000))
        peer.send(*FETCH)
        await stage.answer(0, b"head", part, b"between", part, b"tail")
        (parts,) = gathered
        assert [len(each) for each in parts] == [13, 100_000, 7, 100_000, 4]
        assert parts[1] is part


async def test_latencies_are_counted_by_powers_of_two():
    async with connected() as (stage, peer):
        peer.send(*FETCH)
        await asyncio.sleep(0.3)
        await stage.answer()
        buckets = stage.node.stats.latencies[apis.FETCH]
        assert sum(buckets) == buckets[(300).bit_length()] == 1
