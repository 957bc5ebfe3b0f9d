"""Long requests: refused over their budget, cut into slices, and bounded together."""

import asyncio

import pytest

from broker.calls import slices
from broker.edge.dispatch import REFUSED_ELEMENTS_MAX
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import MetadataRequest, MetadataRequestTopic
from protocol.messages.budgets import ELEMENTS_MAX
from protocol.primitives import uvarint

OVER = ELEMENTS_MAX[apis.METADATA] + 1


def too_many_topics(version: int) -> bytes:
    """The body of a Metadata request over its budget, of version 9, or of 13 (with ids)."""
    one = b"\1\0" if version < 10 else bytes(16) + b"\1\0"
    return uvarint(OVER + 1) + one * OVER + b"\0\0\0"


def names(count: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=f"topic-{n}") for n in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def counted(monkeypatch) -> list:
    """The calls whose turns there are, in their order."""
    seen = []
    turn = slices.Slices.turn

    async def noted(self, call) -> None:
        seen.append(call)
        await turn(self, call)

    monkeypatch.setattr(slices.Slices, "turn", noted)
    return seen


async def test_over_its_budget_a_request_without_an_error_code_ends_its_connection(world, caplog):
    caplog.set_level("INFO")
    async with world.agents("one") as (one,):
        client = one.connect()
        client.feed(client.frame(apis.METADATA, 9, body=too_many_topics(9)))
        await asyncio.sleep(1)
        assert client.closed
        assert f"more than {ELEMENTS_MAX[apis.METADATA]} elements" in caplog.text
        assert one.node.stats.failed_handlers == 0
        assert one.node.slices.held == 0


async def test_over_its_budget_a_request_is_told_so_where_the_answer_has_an_error_code(world):
    async with world.agents("one") as (one,):
        # Kafka's codec would not let a client send so much; ids take 16 bytes, and 8 MiB are all.
        topic = messages.OffsetFetchRequestTopic(name="t", partition_indexes=[0] * OVER)
        request = messages.OffsetFetchRequest(group_id="g", topics=[topic])
        answer = await one.call(apis.OFFSET_FETCH, request, version=7)
        assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, [])
        assert one.node.slices.held == 0


async def test_a_refusal_that_would_name_very_many_elements_ends_the_connection(world, caplog):
    """It would be one long slice; and clients take both as "not done"."""
    caplog.set_level("INFO")
    async with world.agents("one") as (one,):
        for count in (REFUSED_ELEMENTS_MAX - 10, REFUSED_ELEMENTS_MAX + 10):
            asked = messages.ElectLeadersTopicPartitions(topic="t", partitions=list(range(count)))
            request = messages.ElectLeadersRequest(election_type=9, topic_partitions=[asked])
            client = one.connect()
            client.send(apis.ELECT_LEADERS, 2, request)
            await asyncio.sleep(1)
            assert client.closed == (count > REFUSED_ELEMENTS_MAX)
        assert "elements was refused" in caplog.text
        assert one.node.stats.failed_handlers == 0


async def test_a_hot_request_over_its_budget_is_told_so(world):
    async with world.agents("one") as (one,):
        count = ELEMENTS_MAX[apis.LEAVE_GROUP] + 1
        body = b"\2g" + uvarint(count + 1) + b"\1\1\1\0" * count + b"\0"
        client = one.connect()
        client.feed(client.frame(apis.LEAVE_GROUP, 5, body=body))
        answer = await client.answer()
        assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_a_long_hot_request_is_answered(world):
    async with world.agents("one") as (one,):
        members = [messages.MemberIdentity(member_id=f"member-{n}") for n in range(1_000)]
        request = messages.LeaveGroupRequest(group_id="g", members=members)
        answer = await one.call(apis.LEAVE_GROUP, request, version=5)
        assert answer.error_code in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}


async def test_a_short_request_takes_no_turn(world, monkeypatch):
    async with world.agents("one") as (one,):
        await one.create_topic("t", 10)
        turns = counted(monkeypatch)
        await one.call(apis.METADATA, names(50))
        assert turns == []


async def test_ten_thousand_names_are_looked_up_in_slices(world, monkeypatch):
    async with world.agents("one") as (one,):
        turns = counted(monkeypatch)
        answer = await one.call(apis.METADATA, names(10_000))
        assert len(answer.topics) == 10_000
        assert len(turns) >= 3 * 10_000 // slices.SLICE_ELEMENTS


async def test_a_short_request_is_answered_while_a_long_one_takes_its_turns(world, monkeypatch):
    async with world.agents("one") as (one,):
        turns = counted(monkeypatch)
        long, short = one.connect(), one.connect()
        long.send(apis.METADATA, 12, names(20_000))
        short.send(apis.METADATA, 12, names(1))
        while not short.frames():
            await asyncio.sleep(0)
        before = len(turns)
        await long.answer()
        assert before < len(turns) / 2


async def test_what_a_client_that_is_gone_asked_for_is_not_done(world, monkeypatch):
    async with world.agents("one") as (one,):
        turns = counted(monkeypatch)
        client = one.connect()
        client.send(apis.METADATA, 12, names(20_000))
        await asyncio.sleep(0)
        client.hang_up()
        await asyncio.sleep(1)
        assert len(turns) <= 2
        assert one.node.stats.failed_handlers == 0
        assert one.node.slices.held == 0


async def test_long_requests_of_many_connections_are_decoded_within_the_bound(world, monkeypatch):
    async with world.agents("one") as (one,):
        most = []
        one.node.slices = slices.Slices(held_max=30_000)
        turn = slices.Slices.turn

        async def noted(self, call) -> None:
            most.append(self.held)
            await turn(self, call)

        monkeypatch.setattr(slices.Slices, "turn", noted)
        clients = [one.connect() for _ in range(10)]
        for client in clients:
            client.send(apis.METADATA, 12, names(1_000))
        for client in clients:
            assert len((await client.answer()).topics) == 1_000
        assert max(most) <= 30_000


@pytest.mark.parametrize("version", [0, 9, 12])
async def test_a_topic_that_is_asked_for_many_times_is_described_once(version, world):
    """Else four kilobytes would ask for as many copies of a topic's ten thousand partitions."""
    async with world.agents("one") as (one,):
        await one.create_topic("t", 3)
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 500)
        answer = await one.call(apis.METADATA, request, version=version)
        assert [row.name for row in answer.topics] == ["t"]
