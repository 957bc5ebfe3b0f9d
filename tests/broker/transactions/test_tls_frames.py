"""Proofs on connections of TLS: no byte counts as later than the first byte of its record.

Records are cut anywhere, and lie in the kernel, in the library, or half here and half there, when
a challenge or a refusal leaves (docs/design/security.md §1.3).
"""

import pytest

from broker.calls.challenges import Challenge
from protocol import apis
from protocol.types import Position
from tests.broker.edge.tls_stage import tls_connected
from tests.kit.client import settle

METADATA = (apis.METADATA, 9)
PRODUCE = (apis.PRODUCE, 9)
CHALLENGE = Challenge("id", 3)


async def challenge(stage, index: int = 0) -> None:
    """Answer a call with a challenge."""
    stage.started[index].challenge = CHALLENGE
    await stage.answer(index, b"51")


def is_reply(stage, index: int) -> bool:
    call = stage.started[index]
    return call.connection.replied(call, CHALLENGE)


def at(stage, position: int) -> None:
    stage.node.log_client.machine.position = Position(position)


# Challenges.


async def test_the_frame_that_follows_a_challenge_is_in_reply_to_it():
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        await challenge(stage)
        client.send(*METADATA)
        assert [is_reply(stage, 0), is_reply(stage, 1)] == [False, True]


async def test_a_frame_that_was_read_before_the_challenge_is_not_in_reply_to_it():
    async with tls_connected() as (stage, client):
        client.feed(client.sealed(*(client.frame(*METADATA) for _ in range(3))))
        await challenge(stage)
        await stage.answer(1)
        assert [is_reply(stage, 1), is_reply(stage, 2)] == [False, False]


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 20, -17, -1])
async def test_a_record_of_which_the_beginning_had_arrived_is_not_in_reply(cut: int):
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        record = client.sealed(client.frame(*METADATA))
        client.feed(record[:cut])
        await challenge(stage)
        client.feed(record[cut:])
        await settle()
        assert not is_reply(stage, 1)
        await stage.answer(1)
        client.send(*METADATA)
        assert is_reply(stage, 2)


@pytest.mark.parametrize("cut", [1, 5, 30, -1])
async def test_a_record_of_which_the_beginning_lay_in_the_kernel_is_not_in_reply(cut: int):
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        record = client.sealed(client.frame(*METADATA))
        client.put(record[:cut])
        await challenge(stage)
        client.put(record[cut:])
        client.pump()
        await settle()
        assert not is_reply(stage, 1)
        await stage.answer(1)
        client.send(*METADATA)
        assert is_reply(stage, 2)


async def test_whole_records_that_lay_in_the_kernel_are_not_in_reply():
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        client.put(client.sealed(*(client.frame(*METADATA) for _ in range(3))))
        await challenge(stage)
        client.pump()
        await settle()
        for index in (1, 2, 3):
            assert not is_reply(stage, index)
            await stage.answer(index)
        client.send(*METADATA)
        assert is_reply(stage, 4)


@pytest.mark.parametrize("cut", [1, 4, 10, -1])
async def test_a_frame_that_began_in_an_older_record_is_not_in_reply(cut: int):
    """A frame may be in several records, as a record may have several frames."""
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        frame = client.frame(*METADATA)
        first, second = client.sealed(frame[:cut]), client.sealed(frame[cut:])
        client.feed(first)
        await challenge(stage)
        client.feed(second)
        await settle()
        assert not is_reply(stage, 1)


async def test_a_new_frame_behind_the_end_of_an_old_one_costs_a_challenge_more():
    """One record has both: all of it was sent together, and is as old as the old one."""
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        old, new = client.frame(*METADATA), client.frame(*METADATA)
        first, second = client.sealed(old[:5]), client.sealed(old[5:] + new)
        client.feed(first + second[:3])
        await challenge(stage)
        client.feed(second[3:])
        await settle()
        assert not is_reply(stage, 1)
        await stage.answer(1)
        assert not is_reply(stage, 2)
        await stage.answer(2)
        client.send(*METADATA)
        assert is_reply(stage, 3)


async def test_what_the_library_had_decrypted_and_not_delivered_is_not_in_reply():
    """The connection does not read, since it holds too much; the challenge leaves; it reads on."""
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        connection = client.kafka
        records = client.sealed(*(client.frame(*METADATA) for _ in range(2)))
        deliver = client.protocol._deliver
        client.protocol._deliver = lambda: None
        client.feed(records)
        client.protocol._deliver = deliver
        assert client.protocol.get_extra_info("undelivered_bytes") == len(records)
        assert connection.arrived()[1] == len(records)
        await challenge(stage)
        client.protocol.pause_reading()
        client.protocol.resume_reading()
        await settle()
        assert not is_reply(stage, 1)
        await stage.answer(1)
        assert not is_reply(stage, 2)
        await stage.answer(2)
        client.send(*METADATA)
        assert is_reply(stage, 3)


async def test_what_waited_to_be_delivered_is_no_younger_for_what_came_behind_it():
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        deliver = client.protocol._deliver
        client.protocol._deliver = lambda: None
        client.feed(client.sealed(client.frame(*METADATA)))
        client.protocol._deliver = deliver
        await challenge(stage)
        client.send(*METADATA)
        await settle()
        assert not is_reply(stage, 1)


async def test_a_challenge_that_is_not_yet_encrypted_has_not_left():
    async with tls_connected() as (stage, client):
        client.send(*METADATA)
        client.protocol.pause_writing()
        await challenge(stage)
        client.send(*METADATA)
        client.protocol.resume_writing()
        await settle()
        assert not is_reply(stage, 1)


async def test_the_clock_of_a_call_is_the_position_when_its_record_began_to_arrive():
    async with tls_connected() as (stage, client):
        at(stage, 5)
        record = client.sealed(client.frame(*PRODUCE))
        client.feed(record[:7])
        at(stage, 6)
        client.feed(record[7:])
        at(stage, 7)
        client.send(*PRODUCE)
        assert [call.clock for call in stage.started] == [5, 7]


# Stalls (P17).


@pytest.mark.promise("P17")
async def test_produce_after_a_stall_is_refused_until_the_client_sends_again():
    async with tls_connected() as (stage, client):
        stage.stall()
        client.send(*PRODUCE)
        assert len(stage.refused) == 1
        await settle()
        client.send(*PRODUCE)
        assert len(stage.started) == 1


@pytest.mark.promise("P17")
@pytest.mark.parametrize("cut", [1, 5, 40, -1])
async def test_a_record_that_began_before_the_refusal_is_no_answer_to_it(cut: int):
    async with tls_connected() as (stage, client):
        stage.stall()
        old = client.sealed(client.frame(*PRODUCE)), client.sealed(client.frame(*PRODUCE))
        client.feed(old[0])
        client.feed(old[1][:cut])
        await settle()
        assert len(stage.refused) == 1
        client.feed(old[1][cut:])
        await settle()
        assert (len(stage.refused), len(stage.started)) == (2, 0)
        client.send(*PRODUCE)
        assert len(stage.started) == 1


@pytest.mark.promise("P17")
async def test_old_records_still_in_the_kernel_do_not_pass_for_an_answer_to_the_refusal():
    async with tls_connected() as (stage, client):
        frames = [client.frame(*PRODUCE, body=bytes(600_000)) for _ in range(6)]
        client.put(client.sealed(*frames))
        stage.stall()
        client.pump()
        await settle(2_000)
        assert not client.kernel
        assert not stage.started
        assert len(stage.refused) == 6


@pytest.mark.promise("P17")
async def test_what_is_delivered_after_a_pause_does_not_show_that_the_socket_is_dry():
    """The read that took it was long ago: who knows what has arrived since."""
    async with tls_connected() as (stage, client):
        deliver = client.protocol._deliver
        client.protocol._deliver = lambda: None
        client.feed(client.sealed(client.frame(*PRODUCE)))
        client.protocol._deliver = deliver
        stage.stall()
        client.protocol.pause_reading()
        client.protocol.resume_reading()
        await settle()
        assert len(stage.refused) == 1
        client.send(*PRODUCE)
        assert len(stage.refused) == 2
        await settle()
        client.send(*PRODUCE)
        assert len(stage.started) == 1


@pytest.mark.promise("P17")
async def test_what_was_taken_before_a_stall_and_is_delivered_after_it_is_refused():
    async with tls_connected() as (stage, client):
        record = client.sealed(client.frame(*PRODUCE))
        client.feed(record[:9])
        stage.stall()
        client.feed(record[9:])
        await settle()
        assert (len(stage.refused), len(stage.started)) == (1, 0)
