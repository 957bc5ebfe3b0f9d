"""`frazil topic` but for `trim`: what it asks of an agent and says, also when an answer is lost.

Beside Apache Kafka it is tried in tests/clients/test_topic_commands.py.
"""

import json

import pytest

from broker.cli.command_result import CommandResult
from broker.cli.kafka_client import KafkaClient
from broker.cli.topics import topic_tool
from broker.cli.topics.requests import APPEND, DELETE, SET, SUBTRACT
from broker.cli.topics.topic_tool import Alteration, NewTopic
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import DeleteTopicsRequest, DeleteTopicState
from tests.broker.agents import serving
from tests.broker.cli.topics.topics_kit import Losing, client_of, create, with_topic
from tests.broker.fake_cluster import FakeCluster, on_cluster, once

real_loop = pytest.mark.real_loop

ANY = NewTopic()
NO_SUCH_TOPIC = "there is no such topic (frazil topic list shows all)"


async def made(
    client: KafkaClient,
    *names: str,
    like: NewTopic = ANY,
    if_not_exists: bool = False,
    dry_run: bool = False,
) -> tuple[list[dict], list[str]]:
    """What `create` says in JSON, and its failures."""
    said = await topic_tool.create(
        client, names, like, if_not_exists=if_not_exists, dry_run=dry_run, as_json=True
    )
    return json.loads(said.lines[0]), list(said.failures)


async def described(client: KafkaClient, name: str) -> dict:
    """What `describe` says of one topic in JSON."""
    said = await topic_tool.describe(client, [name], as_json=True)
    (view,) = json.loads(said.lines[0])
    return view


async def names_of(client: KafkaClient) -> list[str]:
    said = await topic_tool.list_topics(client, internal=True, as_json=True)
    return [each["name"] for each in json.loads(said.lines[0])]


@real_loop
async def test_topics_are_listed_by_name_with_partitions_and_replicas() -> None:
    async with with_topic(3) as (running, _), client_of(running) as client:
        await create(await running.connect(), "a")
        said = await topic_tool.list_topics(client, internal=False, as_json=False)
        assert [line.split() for line in said.lines] == [
            ["NAME", "PARTITIONS", "REPLICAS"],
            ["a", "1", "1"],
            ["t", "3", "1"],
        ]


@real_loop
async def test_a_cluster_without_topics_is_told_in_a_sentence() -> None:
    async with serving() as running, client_of(running) as client:
        said = await topic_tool.list_topics(client, internal=False, as_json=False)
        assert said.lines == ["there are no topics"]


@pytest.mark.parametrize(("internal", "names"), [(False, ["orders"]), (True, ["__own", "orders"])])
async def test_topics_of_the_clusters_own_are_listed_when_asked_for(
    internal: bool, names: list[str]
) -> None:
    topics = [
        messages.MetadataResponseTopic(name="orders"),
        messages.MetadataResponseTopic(name="__own", is_internal=True),
    ]

    async with on_cluster() as (client, cluster):
        tell = cluster.answers[apis.METADATA]

        def metadata(request: messages.MetadataRequest) -> messages.MetadataResponse:
            answer = tell(request)
            answer.topics = topics
            return answer

        cluster.answers[apis.METADATA] = metadata
        said = await topic_tool.list_topics(client, internal=internal, as_json=True)
        assert [each["name"] for each in json.loads(said.lines[0])] == names


@real_loop
async def test_topics_are_created_as_told_and_what_was_made_is_said() -> None:
    async with serving() as running, client_of(running) as client:
        like = NewTopic(partitions=3, configs=[("retention.ms", "5000")])
        said = await topic_tool.create(
            client, ["a"], like, if_not_exists=False, dry_run=False, as_json=False
        )
        view = await described(client, "a")
        assert len(view["topic_id"]) == 22
        assert said.lines == [f'topic "a" is created with 3 partitions, id {view["topic_id"]}']
        assert len(view["partitions"]) == 3
        assert [(each["name"], each["value"]) for each in view["configs"]] == [
            ("retention.ms", "5000")
        ]


@real_loop
async def test_a_topic_that_is_refused_does_not_keep_others_from_being_created() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        views, failures = await made(client, "t", "a b", "u")
        assert [each["status"] for each in views] == ["refused", "refused", "created"]
        assert failures[0].startswith('topic "t" is not created: there is one already')
        assert "contains one or more characters other than" in failures[1]
        assert [each["error"] for each in views] == [*failures, None]


@real_loop
async def test_a_config_that_cannot_be_is_refused_with_the_clusters_words() -> None:
    async with serving() as running, client_of(running) as client:
        like = NewTopic(configs=[("retention.ms", "long")])
        _, (failure,) = await made(client, "a", like=like)
        assert failure.startswith('topic "a" is not created: Invalid value long for configuration')
        assert await names_of(client) == []


@real_loop
async def test_a_topic_that_is_there_is_not_made_again() -> None:
    async with with_topic(3) as (running, _), client_of(running) as client:
        (view,), failures = await made(client, "t", like=NewTopic(partitions=5), if_not_exists=True)
        assert (view["status"], view["partition_count"], failures) == ("exists", 3, [])


@real_loop
async def test_a_dry_run_creates_nothing() -> None:
    async with serving() as running, client_of(running) as client:
        (view,), failures = await made(client, "a", like=NewTopic(partitions=2), dry_run=True)
        assert (view["status"], view["partition_count"], failures) == ("valid", 2, [])
        assert await names_of(client) == []


@real_loop
async def test_a_creation_whose_answer_was_lost_is_a_success() -> None:
    async with serving() as running, Losing.answers_of(running, apis.CREATE_TOPICS) as client:
        (view,), failures = await made(client, "a", like=NewTopic(partitions=2))
        assert (view["status"], view["partition_count"], failures) == ("created", 2, [])
        assert view["topic_id"] == (await described(client, "a"))["topic_id"]


@real_loop
async def test_a_topic_that_was_there_is_not_taken_for_one_whose_answer_was_lost() -> None:
    async with (
        with_topic() as (running, _),
        Losing.answers_of(running, apis.CREATE_TOPICS) as client,
    ):
        (view,), failures = await made(client, "t")
        assert view["status"] == "refused"
        assert len(failures) == 1


@real_loop
async def test_another_topic_made_meanwhile_is_not_taken_for_ones_own() -> None:
    async with serving() as running:
        other = await running.connect()

        async def meanwhile() -> None:
            await create(other, "a", 7)

        async with Losing.requests_of(running, apis.CREATE_TOPICS, meanwhile) as client:
            (view,), _ = await made(client, "a", like=NewTopic(partitions=2))
            assert view["status"] == "refused"


async def test_that_it_is_not_known_whether_a_topic_is_created_is_told() -> None:
    async with on_cluster(timeout_ms=500) as (client, cluster):
        timed_out = messages.CreatableTopicResult(name="a", error_code=ErrorCode.REQUEST_TIMED_OUT)
        cluster.answers[apis.CREATE_TOPICS] = messages.CreateTopicsResponse(topics=[timed_out])
        (view,), (failure,) = await made(client, "a")
        assert view["status"] == "unknown"
        assert failure.startswith('it is not known whether topic "a" is created: ')


async def test_an_agent_that_cannot_create_is_left_for_another() -> None:
    async with on_cluster(agents=2) as (client, cluster):
        refused = messages.CreatableTopicResult(name="a", error_code=ErrorCode.NOT_CONTROLLER)
        done = messages.CreatableTopicResult(name="a")
        for agent, answer in zip(cluster.agents.values(), (refused, done), strict=True):
            agent.answers[apis.CREATE_TOPICS] = messages.CreateTopicsResponse(topics=[answer])
        (view,), _ = await made(client, "a")
        assert view["status"] == "created"


@real_loop
async def test_a_topic_is_described_with_offsets_and_configs_that_are_no_defaults() -> None:
    async with with_topic(2) as (running, _), client_of(running) as client:
        setting = Alteration(SET, "retention.ms", "5000")
        await topic_tool.alter(client, ["t"], [setting], dry_run=False)
        said = await topic_tool.describe(client, ["t"], as_json=False)
        assert said.lines[0].startswith("t: id ")
        assert [line.split() for line in said.lines[1:]] == [
            [],
            ["PARTITION", "LEADER", "REPLICAS", "ISR", "FIRST", "NEXT"],
            ["0", *said.lines[3].split()[1:4], "0", "3"],
            ["1", *said.lines[4].split()[1:4], "0", "0"],
            [],
            ["CONFIG", "VALUE", "SOURCE"],
            ["retention.ms", "5000", "DYNAMIC_TOPIC_CONFIG"],
        ]


@real_loop
async def test_a_description_in_json_has_all_of_it() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        view = await described(client, "t")
        (leader,) = client.brokers
        assert view == {
            "name": "t",
            "topic_id": view["topic_id"],
            "is_internal": False,
            "partitions": [
                {
                    "partition": 0,
                    "leader": leader,
                    "replicas": [leader],
                    "isr": [leader],
                    "first_offset": 0,
                    "next_offset": 3,
                }
            ],
            "configs": [],
        }


@real_loop
async def test_a_topic_that_there_is_not_does_not_keep_others_from_being_described() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        said = await topic_tool.describe(client, ["none", "t", "a b"], as_json=False)
        assert said.lines[0].startswith("t: id ")
        assert said.failures == [
            f'topic "none" is not described: {NO_SUCH_TOPIC}',
            'topic "a b" is not described: that is not the name of a topic',
        ]


async def test_a_topic_with_a_partition_that_nobody_leads_is_described_without_offsets() -> None:
    def lose_a_leader(cluster: FakeCluster) -> None:
        tell = cluster.answers[apis.METADATA]

        def metadata(request: messages.MetadataRequest) -> messages.MetadataResponse:
            answer = tell(request)
            for topic in answer.topics:
                topic.partitions[1].leader_id = -1
            return answer

        cluster.answers[apis.METADATA] = metadata
        configs = messages.DescribeConfigsResult(
            resource_name="orders", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        cluster.answers[apis.DESCRIBE_CONFIGS] = messages.DescribeConfigsResponse(results=[configs])

    async with on_cluster(prepare=lose_a_leader) as (client, _cluster):
        said = await topic_tool.describe(client, ["orders"], as_json=False)
        assert [line.split() for line in said.lines[3:]] == [
            ["0", "1", "-", "-", "-", "-"],
            ["1", "-", "-", "-", "-", "-"],
        ]
        assert said.warnings == [
            'offsets of topic "orders" are not told: partition 1 has no leader',
            'configs of topic "orders" are not told: you may not do that with this topic',
        ]


ALTERATIONS = [
    Alteration(SET, "retention.ms", "6000"),
    Alteration(DELETE, "segment.bytes"),
    Alteration(APPEND, "cleanup.policy", "compact"),
    Alteration(SUBTRACT, "cleanup.policy", "delete"),
]


@real_loop
async def test_configs_are_set_unset_and_taken_into_and_from_lists() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        for each in (Alteration(SET, "segment.bytes", "2097152"), *ALTERATIONS):
            await topic_tool.alter(client, ["t"], [each], dry_run=False)
        configs = (await described(client, "t"))["configs"]
        assert {each["name"]: each["value"] for each in configs} == {
            "retention.ms": "6000",
            "cleanup.policy": "compact",
        }


@real_loop
async def test_what_was_altered_is_said_of_each_topic_and_why_others_were_not() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        said = await topic_tool.alter(client, ["none", "t"], ALTERATIONS[:2], dry_run=False)
        assert said.lines == ['topic "t" is altered: set retention.ms=6000, unset segment.bytes']
        assert said.failures == [f'topic "none" is not altered: {NO_SUCH_TOPIC}']


@real_loop
@pytest.mark.parametrize(
    ("alteration", "sentence"),
    [
        (Alteration(SET, "retention.ms", "x"), "Invalid value x for configuration retention.ms"),
        (Alteration(SET, "retention.hours", "1"), "retention.hours"),
        (Alteration(APPEND, "retention.ms", "1"), "its type is not LIST"),
    ],
    ids=["value", "name", "no list"],
)
async def test_alterations_that_cannot_be_change_nothing(
    alteration: Alteration, sentence: str
) -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        both = [Alteration(SET, "segment.bytes", "2097152"), alteration]
        said = await topic_tool.alter(client, ["t"], both, dry_run=False)
        assert sentence in said.failures[0]
        assert (await described(client, "t"))["configs"] == []


@real_loop
async def test_a_dry_run_alters_nothing() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        said = await topic_tool.alter(client, ["t"], ALTERATIONS[:1], dry_run=True)
        assert said.lines == ['topic "t" would be altered: set retention.ms=6000']
        assert (await described(client, "t"))["configs"] == []


@real_loop
async def test_an_alteration_whose_answer_was_lost_is_made_once() -> None:
    async with with_topic() as (running, _):
        key = apis.INCREMENTAL_ALTER_CONFIGS
        async with Losing.answers_of(running, key) as client:
            said = await topic_tool.alter(client, ["t"], [ALTERATIONS[2]], dry_run=False)
            assert not said.failures
            (config,) = (await described(client, "t"))["configs"]
            assert config["value"] == "delete,compact"


async def deleted(client: KafkaClient, *names: str, if_exists: bool = False) -> CommandResult:
    return await topic_tool.delete(client, names, if_exists=if_exists)


@real_loop
async def test_topics_are_deleted_and_one_that_there_is_not_is_a_failure() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        said = await deleted(client, "none", "t")
        assert said.lines == ['topic "t" is deleted']
        assert said.failures == [f'topic "none" is not deleted: {NO_SUCH_TOPIC}']
        assert await names_of(client) == []


@real_loop
async def test_a_topic_that_there_is_not_may_be_allowed_for() -> None:
    async with serving() as running, client_of(running) as client:
        said = await deleted(client, "none", if_exists=True)
        assert (said.lines, said.failures) == (['there is no topic "none"'], [])


@real_loop
async def test_a_deletion_whose_answer_was_lost_is_a_success() -> None:
    async with (
        with_topic() as (running, _),
        Losing.answers_of(running, apis.DELETE_TOPICS) as client,
    ):
        said = await deleted(client, "t")
        assert (said.lines, said.failures) == (['topic "t" is deleted'], [])


@real_loop
async def test_a_deletion_that_is_sent_again_leaves_a_new_topic_of_that_name() -> None:
    async with with_topic() as (running, _):
        other = await running.connect()

        async def again() -> None:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
            await other.call(apis.DELETE_TOPICS, 6, request)
            await create(other, "t", 5)

        async with Losing.requests_of(running, apis.DELETE_TOPICS, again) as client:
            said = await deleted(client, "t")
            assert said.lines == ['topic "t" is deleted']
            assert len((await described(client, "t"))["partitions"]) == 5


@real_loop
async def test_a_topic_that_never_was_is_no_success_when_the_answer_was_lost() -> None:
    async with serving() as running, Losing.answers_of(running, apis.DELETE_TOPICS) as client:
        said = await deleted(client, "none")
        assert said.failures == [f'topic "none" is not deleted: {NO_SUCH_TOPIC}']


@real_loop
async def test_a_cluster_that_deletes_no_topics_is_told_with_its_setting() -> None:
    async with serving(None, "delete.topic.enable=false") as running:
        await create(await running.connect(), "t")
        async with client_of(running) as client:
            (failure,) = (await deleted(client, "t")).failures
            assert failure.endswith("the cluster deletes no topics (delete.topic.enable)")


async def test_a_topic_that_is_made_anew_meanwhile_is_found_by_its_new_id() -> None:
    async with on_cluster() as (client, cluster):
        tell = cluster.answers[apis.METADATA]
        ids = [b"1" * 16, b"2" * 16]

        def metadata(request: messages.MetadataRequest) -> messages.MetadataResponse:
            answer = tell(request)
            for topic in answer.topics:
                topic.topic_id = ids.pop(0)
            return answer

        cluster.answers[apis.METADATA] = metadata
        cluster.answers[apis.DELETE_TOPICS] = once(
            deletion(ErrorCode.UNKNOWN_TOPIC_ID), deletion(ErrorCode.NONE)
        )
        said = await deleted(client, "orders")
        assert said.lines == ['topic "orders" is deleted']
    asked = [request.topics[0].topic_id for request in cluster.requests[apis.DELETE_TOPICS]]
    assert asked == [b"1" * 16, b"2" * 16]


def deletion(error: ErrorCode) -> messages.DeleteTopicsResponse:
    result = messages.DeletableTopicResult(name="orders", error_code=error)
    return messages.DeleteTopicsResponse(responses=[result])


async def widened(client: KafkaClient, *names: str, **how: int) -> CommandResult:
    return await topic_tool.add_partitions(client, names, dry_run=False, **how)


@real_loop
@pytest.mark.parametrize("how", [{"to": 5}, {"by": 3}], ids=["to", "by"])
async def test_topics_get_more_partitions(how: dict[str, int]) -> None:
    async with with_topic(2) as (running, _), client_of(running) as client:
        said = await widened(client, "t", "none", **how)
        assert said.lines == ['topic "t" has 5 partitions now']
        assert said.failures == [f'topic "none" is not widened: {NO_SUCH_TOPIC}']
        assert len((await described(client, "t"))["partitions"]) == 5


@real_loop
async def test_a_topic_does_not_get_fewer_partitions_and_the_cluster_says_why() -> None:
    async with with_topic(4) as (running, _), client_of(running) as client:
        (failure,) = (await widened(client, "t", to=2)).failures
        assert failure.startswith('topic "t" is not widened: ')
        assert "INVALID_PARTITIONS" in failure


@real_loop
async def test_a_dry_run_adds_no_partitions() -> None:
    async with with_topic(2) as (running, _), client_of(running) as client:
        said = await topic_tool.add_partitions(client, ["t"], by=1, dry_run=True)
        assert said.lines == ['topic "t" would have 3 partitions']
        assert len((await described(client, "t"))["partitions"]) == 2


@real_loop
@pytest.mark.parametrize("how", [{"to": 5}, {"by": 3}], ids=["to", "by"])
async def test_partitions_whose_answer_was_lost_are_added_once(how: dict[str, int]) -> None:
    async with (
        with_topic(2) as (running, _),
        Losing.answers_of(running, apis.CREATE_PARTITIONS) as client,
    ):
        said = await widened(client, "t", **how)
        assert (said.lines, said.failures) == (['topic "t" has 5 partitions now'], [])


@real_loop
async def test_partitions_that_were_there_are_not_taken_for_added_ones() -> None:
    async with (
        with_topic(5) as (running, _),
        Losing.answers_of(running, apis.CREATE_PARTITIONS) as client,
    ):
        assert len((await widened(client, "t", to=5)).failures) == 1
