"""What a call knows of its frame: the position when it was begun, and what it is in reply to."""

import socket

import pytest

from broker.calls.challenges import Challenge
from broker.edge.unread import unread_bytes
from protocol import apis
from protocol.types import Position
from tests.broker.edge.stage import connected, staged
from tests.kit.client import settle

METADATA = (apis.METADATA, 9)
PRODUCE = (apis.PRODUCE, 9)
CHALLENGE = Challenge("id", 3)


def at(stage, position: int) -> None:
    stage.node.log_client.machine.position = Position(position)


async def challenge(stage, index: int = 0) -> None:
    """Answer a call with a challenge."""
    stage.started[index].challenge = CHALLENGE
    await stage.answer(index, b"51")


def is_reply(stage, index: int) -> bool:
    call = stage.started[index]
    return call.connection.replied(call, CHALLENGE)


async def test_the_clock_of_a_call_is_the_position_when_its_first_byte_was_read():
    async with connected() as (stage, peer):
        data = peer.frame(*PRODUCE)
        at(stage, 5)
        peer.feed(data[:1])
        at(stage, 6)
        peer.feed(data[1:])
        at(stage, 7)
        peer.feed(peer.frame(*PRODUCE))
        assert [call.clock for call in stage.started] == [5, 7]
        assert [call.first_byte for call in stage.started] == [0, len(data)]


async def test_a_frame_that_begins_behind_another_one_in_a_read_has_the_clock_of_that_read():
    async with connected() as (stage, peer):
        data = [peer.frame(*PRODUCE, body=bytes(size)) for size in (4, 40, 400)]
        whole = b"".join(data)
        at(stage, 5)
        peer.feed(whole[:10])
        at(stage, 6)
        peer.feed(whole[10:-5])
        at(stage, 7)
        peer.feed(whole[-5:])
        assert [call.clock for call in stage.started] == [5, 6, 6]
        sizes = [len(each) for each in data]
        assert [call.first_byte for call in stage.started] == [0, sizes[0], sizes[0] + sizes[1]]


async def test_the_bytes_of_a_big_frame_in_many_reads_are_all_counted():
    async with connected() as (stage, peer):
        first = peer.frame(*PRODUCE, body=bytes(3_000_000))
        at(stage, 5)
        for start in range(0, len(first), 70_001):
            peer.feed(first[start : start + 70_001])
            await settle()
            at(stage, 6)
        peer.feed(peer.frame(*PRODUCE))
        assert [call.clock for call in stage.started] == [5, 6]
        assert stage.started[1].first_byte == len(first)


async def test_the_frame_that_follows_a_challenge_is_in_reply_to_it():
    async with connected() as (stage, peer):
        peer.send(*METADATA)
        assert not is_reply(stage, 0)
        await challenge(stage)
        peer.send(*METADATA)
        assert is_reply(stage, 1)
        assert not is_reply(stage, 0)


async def test_a_frame_that_was_read_before_the_challenge_is_not_in_reply_to_it():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*METADATA) + peer.frame(*METADATA) + peer.frame(*METADATA))
        await challenge(stage)
        assert not is_reply(stage, 1)
        await stage.answer(1)
        assert not is_reply(stage, 2)


async def test_a_frame_that_was_begun_before_the_challenge_and_ends_after_it_is_not_in_reply():
    async with connected() as (stage, peer):
        first, second = peer.frame(*METADATA), peer.frame(*METADATA)
        peer.feed(first + second[:1])
        await challenge(stage)
        peer.feed(second[1:])
        await settle()
        assert len(stage.started) == 2
        assert not is_reply(stage, 1)


async def test_a_frame_that_lay_in_the_kernel_when_the_challenge_left_is_not_in_reply():
    async with connected() as (stage, peer):
        peer.send(*METADATA)
        peer.put(peer.frame(*METADATA))
        await challenge(stage)
        peer.pump()
        assert len(stage.started) == 2
        assert not is_reply(stage, 1)
        await stage.answer(1)
        peer.send(*METADATA)
        assert is_reply(stage, 2)


async def test_a_challenge_that_still_lies_in_the_transport_has_not_been_written():
    async with connected() as (stage, peer):
        peer.send(*METADATA)
        peer.transport.stuck = True
        await challenge(stage)
        peer.send(*METADATA)
        assert not is_reply(stage, 1)
        peer.transport.stuck = False
        await stage.answer(1)
        peer.send(*METADATA)
        assert is_reply(stage, 2)


async def test_a_challenge_that_leaves_a_turn_later_counts_from_then_on():
    """uvloop gathers writes until the end of a turn."""
    async with connected() as (stage, peer):
        peer.send(*METADATA)
        asked = []

        def size():
            asked.append(1)
            return 10 if len(asked) == 1 else 0

        peer.transport.get_write_buffer_size = size
        await challenge(stage)
        assert len(asked) == 2
        peer.send(*METADATA)
        assert is_reply(stage, 1)


async def test_a_token_is_for_its_connection_alone():
    async with staged() as stage:
        one, other = stage.connect(), stage.connect()
        one.send(*METADATA)
        await challenge(stage)
        other.send(*METADATA)
        assert not is_reply(stage, 1)


class Transport:
    def __init__(self, **extra):
        self.extra = extra

    def get_extra_info(self, name):
        return self.extra.get(name)


def test_bytes_that_wait_in_a_socket_are_counted():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert unread_bytes(Transport(socket=ours)) == 0
        theirs.sendall(b"x" * 1_234)
        assert unread_bytes(Transport(socket=ours)) == 1_234
        ours.recv(1_000)
        assert unread_bytes(Transport(socket=ours)) == 234


@pytest.mark.parametrize("extra", [{}, {"unread_bytes": 0}])
def test_without_a_socket_nothing_is_known_to_wait(extra):
    assert unread_bytes(Transport(**extra)) == 0


def test_a_socket_that_is_closed_has_nothing():
    ours, theirs = socket.socketpair()
    ours.close()
    theirs.close()
    assert unread_bytes(Transport(socket=ours)) == 0
