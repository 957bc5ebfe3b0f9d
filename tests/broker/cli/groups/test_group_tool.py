"""`frazil group`: how it goes about a cluster, also one that is not well.

The cluster is faked (`fake_cluster`). Live groups, on Kafka and on Frazil, are in
tests/clients/test_group_tools.py; what is printed and planned, in test_group_report.py.
"""

import asyncio
import json

import pytest

from broker.cli.command_result import ToolError
from broker.cli.groups import group_tool
from broker.cli.groups.group_reset import ResetRule, ResetTarget
from broker.cli.kafka_client import Address, ClientError, KafkaClient, addresses
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError
from tests.broker.fake_cluster import (
    HANG_UP,
    SILENCE,
    FakeCluster,
    committing,
    consumer_described,
    deleted,
    described,
    fetched,
    listed,
    on_cluster,
    once,
)


async def test_groups_of_all_agents_are_listed() -> None:
    async with on_cluster(agents=3) as (client, cluster):
        for number, agent in cluster.agents.items():
            agent.answers[apis.LIST_GROUPS] = listed(f"g{number}", "moving")
        said = await group_tool.list_groups(client)
        assert [line.split()[0] for line in said.lines[1:]] == ["g1", "g2", "g3", "moving"]
        assert not said.failures


async def test_programs_are_told_of_groups_in_json() -> None:
    async with on_cluster(agents=2) as (client, cluster):
        cluster.answers[apis.LIST_GROUPS] = listed("b", "a")
        (line,) = (await group_tool.list_groups(client, as_json=True)).lines
        assert [list(one) for one in json.loads(line)] == [
            ["group_id", "type", "state", "protocol_type"],
            ["group_id", "type", "state", "protocol_type"],
        ]
        assert [one["group_id"] for one in json.loads(line)] == ["a", "b"]
        cluster.answers[apis.LIST_GROUPS] = listed()
        said = await group_tool.list_groups(client, states=["Stable"], as_json=True)
        assert said.lines == ["[]"]


async def test_that_nothing_is_like_what_was_asked_for_is_told() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.LIST_GROUPS] = listed()
        assert (await group_tool.list_groups(client)).lines == ["there are no groups"]
        said = await group_tool.list_groups(client, states=["Stable"])
        assert said.lines == ["no group has that state and type"]


async def test_an_agent_that_is_not_ready_is_asked_again() -> None:
    async with on_cluster(agents=2) as (client, cluster):
        cluster.answers[apis.LIST_GROUPS] = listed("a")
        loading = listed(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        cluster.agents[2].answers[apis.LIST_GROUPS] = once(loading, listed("b"))
        said = await group_tool.list_groups(client)
        assert [line.split()[0] for line in said.lines[1:]] == ["a", "b"]


async def test_an_agent_that_left_while_listing_is_no_failure() -> None:
    async with on_cluster(agents=2) as (client, cluster):
        cluster.answers[apis.LIST_GROUPS] = listed("a")
        cluster.agents.pop(2).stop()
        said = await group_tool.list_groups(client)
        assert (len(said.lines), said.failures) == (2, [])


async def test_groups_that_may_be_missing_are_told() -> None:
    async with on_cluster(agents=2, timeout_ms=3000) as (client, cluster):
        cluster.answers[apis.LIST_GROUPS] = listed("a")
        cluster.agents[2].answers[apis.LIST_GROUPS] = SILENCE
        said = await group_tool.list_groups(client)
        assert [line.split()[0] for line in said.lines[1:]] == ["a"]
        (failure,) = said.failures
        assert "some groups may be missing: 127.0.0.1:" in failure
        assert "does not answer; tried for 3 s (--timeout-ms gives it longer)" in failure


@pytest.mark.parametrize(
    "first",
    [
        consumer_described(ErrorCode.NOT_COORDINATOR),
        consumer_described(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        HANG_UP,
    ],
    ids=["not coordinator", "not available", "lost"],
)
async def test_a_coordinator_that_moves_is_found_again(first: object) -> None:
    async with on_cluster(agents=2) as (client, cluster):

        def moved(_request: object) -> object:
            cluster.coordinator = 2
            return first

        cluster.agents[1].answers[apis.CONSUMER_GROUP_DESCRIBE] = moved
        group = await group_tool.describe_group(client, "g")
        assert group is not None
        assert group.coordinator.node_id == 2


async def test_a_cluster_without_kip_848_has_classic_groups() -> None:
    def older(cluster: FakeCluster) -> None:
        del cluster.agents[1].ranges[apis.CONSUMER_GROUP_DESCRIBE]

    async with on_cluster(prepare=older) as (client, _cluster):
        group = await group_tool.describe_group(client, "g")
        assert group is not None
        assert group.kind == "classic"


@pytest.mark.parametrize(
    "answer",
    [described("Dead"), described("", error=ErrorCode.GROUP_ID_NOT_FOUND)],
    ids=["as until v5", "as from v6"],
)
async def test_a_group_that_is_not_there_is_none(answer: object) -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DESCRIBE_GROUPS] = answer
        with pytest.raises(ToolError, match='there is no group "g"'):
            await group_tool.describe(client, "g")


async def test_the_lag_of_a_topic_that_is_gone_is_unknown() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.OFFSET_FETCH] = fetched({("gone", 0): 5, ("orders", 1): 5})
        said = await group_tool.describe(client, "g")
        assert [line.split()[:5] for line in said.lines[3:5]] == [
            ["gone", "0", "5", "-", "-"],
            ["orders", "1", "5", "20", "15"],
        ]


async def test_the_lag_of_a_partition_that_goes_meanwhile_is_unknown() -> None:
    gone = messages.ListOffsetsPartitionResponse(
        partition_index=0, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    topic = messages.ListOffsetsTopicResponse(name="orders", partitions=[gone])

    async with on_cluster() as (client, cluster):
        cluster.answers[apis.LIST_OFFSETS] = messages.ListOffsetsResponse(topics=[topic])
        cluster.answers[apis.OFFSET_FETCH] = fetched({("orders", 0): 5})
        said = await group_tool.describe(client, "g")
        assert said.lines[3].split()[:5] == ["orders", "0", "5", "-", "-"]


async def test_a_partition_without_offset_is_not_committed() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.OFFSET_FETCH] = fetched({("orders", 0): -1, ("orders", 1): 0})
        said = await group_tool.describe(client, "g")
        assert [line.split()[:5] for line in said.lines[3:-2]] == [["orders", "1", "0", "20", "20"]]


async def test_a_reset_is_only_shown_until_told_to_execute() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.OFFSET_FETCH] = fetched({("orders", 0): 5})
        said = await group_tool.reset(
            client, "g", ResetTarget(ResetRule.EARLIEST), None, execute=False
        )
        assert [line.split() for line in said.lines[1:]] == [
            ["orders", "0", "5", "0", "-5"],
            [],
            ["nothing", "is", "changed", "yet;", "--execute", "does", "it"],
        ]
    assert cluster.agents[1].count(apis.OFFSET_COMMIT) == 0


async def test_a_reset_is_committed_by_nobody_to_the_partitions_named() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.OFFSET_COMMIT] = committing(ErrorCode.NONE)
        target = ResetTarget(ResetRule.LATEST)
        said = await group_tool.reset(client, "g", target, {"orders": {1}}, execute=True)
        assert said.lines[-1] == '1 of 1 offsets of group "g" are reset'
        assert not said.failures
    (request,) = cluster.requests[apis.OFFSET_COMMIT]
    assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)
    assert [
        (topic.name, row.partition_index, row.committed_offset)
        for topic in request.topics
        for row in topic.partitions
    ] == [("orders", 1, 20)]


async def test_a_reset_that_a_member_was_faster_than_is_told_for_every_partition() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.OFFSET_COMMIT] = committing(ErrorCode.UNKNOWN_MEMBER_ID)
        target = ResetTarget(ResetRule.LATEST)
        said = await group_tool.reset(client, "g", target, {"orders": None}, execute=True)
        assert said.lines[-1] == '0 of 2 offsets of group "g" are reset'
        assert said.failures == [
            f"orders:{number} is not reset: it has members now; stop its consumers first"
            for number in (0, 1)
        ]


async def test_a_reset_refused_for_the_moment_is_sent_again() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.OFFSET_COMMIT] = once(
            committing(ErrorCode.NOT_COORDINATOR), committing(ErrorCode.NONE)
        )
        target = ResetTarget(ResetRule.LATEST)
        said = await group_tool.reset(client, "g", target, {"orders": None}, execute=True)
        assert not said.failures
    assert len(cluster.requests[apis.OFFSET_COMMIT]) == 2


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "Reconciling"])
async def test_a_group_in_use_is_not_reset(state: str) -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DESCRIBE_GROUPS] = described(state)
        with pytest.raises(ToolError, match=rf'"g" is in use \({state}\): stop its consumers'):
            await group_tool.reset(client, "g", ResetTarget(ResetRule.LATEST), None, execute=True)
    assert cluster.agents[1].count(apis.OFFSET_COMMIT) == 0


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (None, "nothing is committed in group"),
        ({"nix": None}, 'there is no topic "nix"'),
        ({"orders": {1, 7}}, 'topic "orders" has no partition 7, but 0 to 1'),
    ],
    ids=["no offsets", "no topic", "no partition"],
)
async def test_a_reset_of_what_is_not_there_is_refused(
    chosen: dict[str, set[int] | None] | None, sentence: str
) -> None:
    async with on_cluster() as (client, _cluster):
        with pytest.raises(ToolError, match=sentence):
            await group_tool.reset(client, "g", ResetTarget(ResetRule.LATEST), chosen, execute=True)


async def test_offsets_of_a_topic_that_is_gone_do_not_hinder_a_reset() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.OFFSET_FETCH] = fetched({("gone", 0): 5, ("orders", 1): 5})
        said = await group_tool.reset(
            client, "g", ResetTarget(ResetRule.EARLIEST), None, execute=False
        )
        assert [line.split()[0] for line in said.lines[1:2]] == ["orders"]
        assert said.warnings == ["gone:0 is left out: its topic or partition is gone"]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ErrorCode.NON_EMPTY_GROUP, "is not deleted: it has members; stop its consumers first"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "is not deleted: there is no such group"),
    ],
)
async def test_a_group_that_cannot_be_deleted_is_told_and_the_others_are_deleted(
    error: ErrorCode, sentence: str
) -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DELETE_GROUPS] = once(deleted(error), deleted(ErrorCode.NONE))
        said = await group_tool.delete(client, ["first", "second"])
        assert said.lines == ['group "second" is deleted']
        assert said.failures == [f'group "first" {sentence}']


async def test_a_deletion_whose_answer_was_lost_may_have_happened() -> None:
    async with on_cluster() as (client, cluster):
        gone = deleted(ErrorCode.GROUP_ID_NOT_FOUND)
        cluster.answers[apis.DELETE_GROUPS] = once(HANG_UP, gone)
        said = await group_tool.delete(client, ["g"])
        assert said.lines == ['group "g" is deleted']


async def test_a_deletion_refused_for_the_moment_did_not_happen() -> None:
    async with on_cluster() as (client, cluster):
        cluster.answers[apis.DELETE_GROUPS] = once(
            deleted(ErrorCode.NOT_COORDINATOR), deleted(ErrorCode.GROUP_ID_NOT_FOUND)
        )
        said = await group_tool.delete(client, ["g"])
        assert said.failures == ['group "g" is not deleted: there is no such group']


@pytest.mark.parametrize(("theirs", "used"), [(99, 5), (5, 5), (4, 4)])
async def test_the_newest_version_in_common_is_used(theirs: int, used: int) -> None:
    def prepare(cluster: FakeCluster) -> None:
        cluster.agents[1].ranges[apis.LIST_GROUPS] = (0, theirs)
        cluster.answers[apis.LIST_GROUPS] = listed("a")

    async with on_cluster(prepare=prepare) as (client, cluster):
        await group_tool.list_groups(client)
    assert (apis.LIST_GROUPS, used) in cluster.agents[1].asked


async def test_no_version_in_common_is_told() -> None:
    def prepare(cluster: FakeCluster) -> None:
        cluster.agents[1].ranges[apis.LIST_GROUPS] = (0, 4)

    async with on_cluster(prepare=prepare) as (client, _cluster):
        with pytest.raises(KafkaError, match="serves ListGroups in no version that this tool"):
            await group_tool.list_groups(client, kinds=["classic"])


async def test_a_silent_agent_leaves_time_for_another() -> None:
    async with on_cluster(agents=2, timeout_ms=1_500) as (client, cluster):
        cluster.agents[1].answers[apis.METADATA] = SILENCE
        assert len((await client.refresh(["orders"])).topics) == 1
    assert cluster.agents[2].count(apis.METADATA) == 1


async def test_an_answer_that_comes_too_late_is_not_taken_for_the_next() -> None:
    async with on_cluster(timeout_ms=1_500) as (client, cluster):
        cluster.agents[1].answers[apis.LIST_GROUPS] = once(SILENCE, listed("a"))
        said = await group_tool.list_groups(client)
        assert [line.split()[0] for line in said.lines[1:]] == ["a"]
    assert cluster.agents[1].count(apis.API_VERSIONS) == 2, "the connection was not made anew"


@pytest.mark.real_loop
async def test_an_address_where_nobody_listens_is_told_at_once() -> None:
    with pytest.raises(ClientError) as raised:
        async with asyncio.timeout(5), KafkaClient([Address("127.0.0.1", 1)], timeout_ms=60_000):
            pass
    assert str(raised.value) == (
        "no agent answers: 127.0.0.1:1 cannot be reached (Connection refused):"
        " is one running? (--bootstrap says where)"
    )


@pytest.mark.real_loop
@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol: an answer of"),
        (b"", "closed the connection instead of answering (is it a Kafka listener without TLS?"),
        (
            b"\x15\x03\x03\0\x02\x02\x50",
            "speaks TLS: security.protocol, in the file of --command-config",
        ),
        (b"\0\0\0\x0a\0\0\0\x09\0\0\0\0\0\0", "does not speak Kafka's protocol: an answer to"),
    ],
    ids=["http", "hangs up", "an alert of TLS", "other correlation id"],
)
async def test_an_address_that_is_no_kafka_listener_is_told(said: bytes, sentence: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ClientError) as raised:
            async with KafkaClient([Address("127.0.0.1", port)], timeout_ms=1_000):
                pass
        assert sentence in str(raised.value)


def test_addresses_are_hosts_with_ports() -> None:
    assert addresses("a.b:1, [::1]:9092") == (Address("a.b", 1), Address("::1", 9092))
    assert str(Address("::1", 9092)) == "[::1]:9092"


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:65536", "a:1,,b:1", "x y:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        addresses(text)
