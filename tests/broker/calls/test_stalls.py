"""P17: what was read around a stall must not change anything."""

import pytest

from broker.calls.stalls import StallWatch, Trust
from broker.handlers import SERVED
from protocol import apis, messages
from protocol.errors import ErrorCode
from tests.broker.edge.stage import connected, staged
from tests.kit.client import settle

PRODUCE = (apis.PRODUCE, 9)
CREATE = (apis.CREATE_TOPICS, 7, messages.CreateTopicsRequest())


def stalled() -> tuple[StallWatch, Trust]:
    watch = StallWatch(0)
    trust = Trust(watch)
    watch.observe(5_000)
    return watch, trust


def read(trust, watch, *, begun=0, drained=True, continued=False, frames=1) -> int:
    return trust.read(watch, begun=begun, drained=drained, continued=continued, frames=frames)


def test_a_gap_longer_than_the_bound_is_a_stall():
    watch = StallWatch(0, stall_ms_max=1_000)
    watch.observe(1_000)
    assert watch.stalls == 0
    watch.observe(2_001)
    assert (watch.stalls, watch.longest_ms) == (1, 1_001)


def test_without_a_stall_every_frame_is_fresh():
    watch = StallWatch(0)
    assert read(Trust(watch), watch, drained=False, frames=3) == 0


def test_after_a_stall_every_frame_is_stale_until_a_refusal_was_written():
    watch, trust = stalled()
    assert read(trust, watch, frames=2) == 2
    assert read(trust, watch) == 1
    trust.refusal_written(0)
    assert read(trust, watch) == 0
    assert trust.trusted


def test_a_refusal_written_before_the_socket_was_dry_proves_nothing():
    watch, trust = stalled()
    assert read(trust, watch, drained=False) == 1
    trust.refusal_written(0)
    assert read(trust, watch, drained=False) == 1
    trust.refusal_written(0)
    assert read(trust, watch) == 1
    trust.refusal_written(0)
    assert read(trust, watch) == 0


def test_a_frame_begun_before_the_refusal_is_stale_and_the_next_one_is_not():
    watch, trust = stalled()
    assert read(trust, watch, frames=1) == 1  # And the beginning of another.
    trust.refusal_written(0)
    assert read(trust, watch, continued=True, frames=2) == 1
    assert trust.trusted


def test_a_frame_begun_after_the_refusal_in_several_reads_is_fresh():
    watch, trust = stalled()
    read(trust, watch)
    trust.refusal_written(0)
    assert read(trust, watch, frames=0) == 0
    assert read(trust, watch, continued=True, frames=0) == 0
    assert read(trust, watch, continued=True, frames=1) == 0
    assert trust.trusted


def test_what_had_arrived_when_the_refusal_was_written_is_stale_whenever_it_is_read():
    """Also a record of TLS of which only the beginning had."""
    watch, trust = stalled()
    read(trust, watch, begun=0)
    trust.refusal_written(arrived=100)
    assert read(trust, watch, begun=99, frames=3) == 3
    assert read(trust, watch, begun=100) == 0
    assert trust.trusted


def test_a_frame_that_goes_on_from_what_had_arrived_then_is_stale():
    watch, trust = stalled()
    read(trust, watch, begun=0)
    trust.refusal_written(arrived=100)
    assert read(trust, watch, begun=80, frames=0) == 0
    assert read(trust, watch, begun=100, continued=True, frames=1) == 1
    assert not trust.trusted
    assert read(trust, watch, begun=120) == 0


def test_another_stall_begins_anew():
    watch, trust = stalled()
    read(trust, watch)
    trust.refusal_written(0)
    watch.observe(10_000)
    assert read(trust, watch) == 1


def test_a_connection_accepted_right_after_a_stall_is_suspect_and_a_later_one_is_not():
    watch, _ = stalled()
    assert not Trust(watch).trusted
    for now_ms in range(5_250, 7_000, 250):
        watch.observe(now_ms)
    assert Trust(watch).trusted


@pytest.mark.promise("P17")
async def test_produce_after_a_stall_is_refused_until_the_client_sends_again():
    async with connected() as (stage, peer):
        stage.stall()
        peer.send(*PRODUCE)
        assert stage.refused == [(1, ErrorCode.NOT_ENOUGH_REPLICAS)]
        assert not stage.started
        await settle()
        peer.send(*PRODUCE)
        assert len(stage.started) == 1
        assert stage.node.stats.refused_stale == 1


@pytest.mark.promise("P17")
async def test_old_requests_still_in_the_kernel_do_not_pass_for_an_answer_to_the_refusal():
    async with connected() as (stage, peer):
        body = bytes(600_000)
        peer.put(b"".join(peer.frame(*PRODUCE, body=body) for _ in range(6)))
        stage.stall()
        peer.pump()
        await settle(200)
        assert not peer.kernel
        assert peer.reads > 3
        assert not stage.started
        assert len(stage.refused) == 6
        # The last read took just what was there, so only the next one shows that it was all.
        peer.send(*PRODUCE)
        await settle()
        peer.send(*PRODUCE)
        assert len(stage.started) == 1


async def test_every_connection_must_prove_itself():
    async with staged() as stage:
        one, other = stage.connect(), stage.connect()
        stage.stall()
        one.send(*PRODUCE)
        await settle()
        one.send(*PRODUCE)
        assert len(stage.started) == 1
        other.send(*PRODUCE)
        assert len(stage.started) == 1
        assert len(stage.refused) == 2


@pytest.mark.promise("P17")
async def test_a_request_that_was_read_before_the_stall_and_starts_after_it_is_refused():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(apis.METADATA, 9) + peer.frame(*CREATE))
        stage.stall()
        await stage.answer()
        assert not stage.cold
        assert stage.refused == [(2, ErrorCode.NOT_CONTROLLER)]


async def test_a_request_that_waited_through_the_stall_is_refused_even_if_another_was_read_since():
    async with connected() as (stage, peer):
        stage.node.producing.full = True
        peer.send(*PRODUCE)
        stage.stall()
        other = stage.connect()
        other.send(apis.METADATA, 9)
        stage.node.producing.make_room()
        await settle()
        assert stage.refused == [(1, ErrorCode.NOT_ENOUGH_REPLICAS)]


async def test_an_answer_that_is_no_refusal_does_not_clear_the_connection():
    async with connected() as (stage, peer):
        stage.stall()
        peer.send(apis.METADATA, 9)
        await stage.answer()
        peer.send(*PRODUCE)
        assert len(stage.refused) == 1


async def test_a_request_that_waited_through_the_stall_is_refused_though_its_connection_was_read_since():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(apis.METADATA, 9) + peer.frame(*CREATE))
        stage.stall()
        peer.send(apis.METADATA, 9)
        await stage.answer()
        assert not stage.cold
        assert stage.refused == [(2, ErrorCode.NOT_CONTROLLER)]


@pytest.mark.promise("P17")
def test_every_api_that_changes_something_can_be_refused_after_a_stall():
    refusable = [api.key for api in SERVED.values() if api.changes]
    assert refusable == [
        apis.PRODUCE,
        apis.OFFSET_COMMIT,
        apis.JOIN_GROUP,
        apis.LEAVE_GROUP,
        apis.SYNC_GROUP,
        apis.CREATE_TOPICS,
        apis.DELETE_TOPICS,
        apis.DELETE_RECORDS,
        apis.INIT_PRODUCER_ID,
        apis.ADD_PARTITIONS_TO_TXN,
        apis.ADD_OFFSETS_TO_TXN,
        apis.END_TXN,
        apis.WRITE_TXN_MARKERS,
        apis.TXN_OFFSET_COMMIT,
        apis.CREATE_ACLS,
        apis.DELETE_ACLS,
        apis.ALTER_CONFIGS,
        apis.CREATE_PARTITIONS,
        apis.CREATE_DELEGATION_TOKEN,
        apis.RENEW_DELEGATION_TOKEN,
        apis.EXPIRE_DELEGATION_TOKEN,
        apis.DELETE_GROUPS,
        apis.INCREMENTAL_ALTER_CONFIGS,
        apis.OFFSET_DELETE,
        apis.ALTER_CLIENT_QUOTAS,
        apis.ALTER_USER_SCRAM_CREDENTIALS,
        apis.UPDATE_FEATURES,
        apis.CONSUMER_GROUP_HEARTBEAT,
    ]


async def test_a_refusal_on_one_connection_clears_no_other_that_was_read_dry():
    async with staged() as stage:
        one, other = stage.connect(), stage.connect()
        stage.stall()
        other.send(apis.METADATA, 9)
        one.send(*PRODUCE)
        await settle()
        await stage.answer()
        other.send(*PRODUCE)
        assert len(stage.refused) == 2
