"""Every API, without the rights that it asks for: beside Apache Kafka with the same ACLs.

The requests are those of the matrix (`tests.broker.handlers.test_rights_matrix`), the answers are
compared by their error codes. Kafka's own broker is User:ANONYMOUS here, as everybody is, so the
cluster lets everybody do what has no ACL, and what is asked about is denied by name.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from broker.api import Api
from broker.handlers import SERVED
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.records import TRANSACTIONAL
from protocol.types import TopicId
from tests.broker.handlers.test_every_api import errors, request_of
from tests.broker.handlers.test_rights_matrix import BY_NAME
from tests.clients.bounded import until
from tests.clients.raw import Connection, ask
from tests.clients.test_rights_clients import EVERYBODY, RIGHTS
from tests.kit import requests
from tests.kit.batches import batch
from tests.parts.servers import FrazilDev, KafkaServer
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

TOPIC = [(ResourceType.TOPIC, "t")]
EVERYTHING = [*TOPIC, (ResourceType.GROUP, "t"), (ResourceType.TRANSACTIONAL_ID, "t")]
CLUSTER = (
    AclOperation.DESCRIBE,
    AclOperation.CREATE,
    AclOperation.IDEMPOTENT_WRITE,
    AclOperation.ALTER,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.DELETE,
)
"""All but what brokers among themselves need."""
NOT_COMPARED = {
    apis.DESCRIBE_ACLS: "Kafka closes the connection for a filter with unknown elements",
    apis.CREATE_ACLS: "likewise, for an ACL with unknown elements",
    apis.DELETE_ACLS: "likewise",
}
COMPARED = [api for api in SERVED.values() if api.key not in NOT_COMPARED]


def acl(
    resource_type: ResourceType,
    name: str,
    operation: AclOperation = AclOperation.ALL,
    permission: AclPermissionType = AclPermissionType.DENY,
) -> AclBinding:
    return AclBinding(
        resource_type,
        name,
        ResourcePatternType.LITERAL,
        EVERYBODY,
        "*",
        operation,
        permission,
    )


@contextlib.contextmanager
def closed(
    folder: Any, names: list[tuple[ResourceType, str]], *, cluster: bool
) -> Iterator[list[str]]:
    """Kafka and an agent, at which nobody may do anything with what is named."""
    settings = [word for setting in RIGHTS for word in ("--set", setting)]
    kafka = KafkaServer(folder / "kafka", *RIGHTS)
    kafka.start()
    try:
        with FrazilDev(folder / "frazil", *settings) as agent:
            for bootstrap in (kafka.bootstrap, agent.bootstrap):
                admin = AdminClient({"bootstrap.servers": bootstrap})
                create_topic(admin, "t", 2)
                acls = [acl(*each) for each in names]
                if cluster:
                    whole = (ResourceType.BROKER, "kafka-cluster")
                    acls += [acl(*whole, operation) for operation in CLUSTER]
                    among = (AclOperation.CLUSTER_ACTION, AclPermissionType.ALLOW)
                    acls.append(acl(*whole, *among))
                for future in admin.create_acls(acls).values():
                    future.result(30)
                # Kafka's broker hears of them a moment later than its controller.
                until(partial(told, bootstrap, SERVED[apis.METADATA]), lambda codes: 29 in codes)
            if not cluster:
                # Nor has it a coordinator before somebody asks for one.
                fetched = partial(told, kafka.bootstrap, SERVED[apis.OFFSET_FETCH])
                told(kafka.bootstrap, SERVED[apis.FIND_COORDINATOR])
                until(fetched, lambda codes: not {14, 15, 16} & {*codes})
            yield [kafka.bootstrap, agent.bootstrap]
    finally:
        kafka.stop()


@pytest.fixture(scope="module")
def all_closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with closed(tmp_path_factory.mktemp("all"), EVERYTHING, cluster=True) as both:
        yield both


@pytest.fixture(scope="module")
def topic_closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with closed(tmp_path_factory.mktemp("topic"), TOPIC, cluster=False) as both:
        yield both


def told(bootstrap: str, api: Api) -> list[int]:
    version = BY_NAME.get(api.key, apis.APIS[api.key].max_version)
    with Connection(bootstrap, seconds=30) as connection:
        answer = connection.ask(api.key, version, request_of(api))
    return sorted(map(int, errors(answer)))


@pytest.mark.parametrize("api", COMPARED, ids=lambda api: api.name)
def test_where_nothing_may_be_done_an_api_refuses_as_kafka_does(
    all_closed: list[str], api: Api
) -> None:
    kafka, frazil = (told(bootstrap, api) for bootstrap in all_closed)
    assert frazil == kafka


def configs(kind: type, resource: type, *kinds: int) -> Any:
    names = {2: "t", 4: "1", 32: "t"}
    rows = [resource(resource_type=each, resource_name=names[each]) for each in kinds]
    return kind(resources=rows)


FINER: dict[str, tuple[int, int, Any]] = {
    "configs of a broker and a group": (
        apis.DESCRIBE_CONFIGS,
        4,
        configs(messages.DescribeConfigsRequest, messages.DescribeConfigsResource, 4, 32),
    ),
    "configs of a group are altered": (
        apis.INCREMENTAL_ALTER_CONFIGS,
        1,
        configs(
            messages.IncrementalAlterConfigsRequest, messages.IncrementalAlterConfigsResource, 32
        ),
    ),
    "the coordinator of a transactional id": (
        apis.FIND_COORDINATOR,
        6,
        messages.FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]),
    ),
    "the coordinator of a group that is named twice": (
        apis.FIND_COORDINATOR,
        6,
        messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["t", "t"]),
    ),
    "the coordinator of one group, as older clients ask": (
        apis.FIND_COORDINATOR,
        3,
        messages.FindCoordinatorRequest(key_type=0, key="t"),
    ),
    "metadata of a topic that is not there": (
        apis.METADATA,
        12,
        messages.MetadataRequest(
            topics=[messages.MetadataRequestTopic(name=each) for each in ("t", "nowhere")],
            allow_auto_topic_creation=False,
        ),
    ),
    "metadata of an unknown id": (
        apis.METADATA,
        12,
        messages.MetadataRequest(
            topics=[messages.MetadataRequestTopic(topic_id=TopicId(bytes(15) + b"x"))]
        ),
    ),
    "operations on the cluster and a topic": (
        apis.METADATA,
        10,
        messages.MetadataRequest(
            topics=[messages.MetadataRequestTopic(name="t")],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ),
    ),
    "a topic is created": (
        apis.CREATE_TOPICS,
        7,
        messages.CreateTopicsRequest(
            topics=[messages.CreatableTopic(name="new", num_partitions=1, replication_factor=1)],
            timeout_ms=5_000,
            validate_only=True,
        ),
    ),
    "topics are deleted by name": (
        apis.DELETE_TOPICS,
        6,
        messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicState(name=each) for each in ("t", "nowhere")],
            timeout_ms=5_000,
        ),
    ),
    "a topic is deleted by an unknown id": (
        apis.DELETE_TOPICS,
        6,
        messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicState(topic_id=TopicId(bytes(15) + b"x"))],
            timeout_ms=5_000,
        ),
    ),
    "offsets of all topics of a group": (
        apis.OFFSET_FETCH,
        9,
        messages.OffsetFetchRequest(
            groups=[messages.OffsetFetchRequestGroup(group_id="t", topics=None)]
        ),
    ),
    "a producer without a transactional id": (
        apis.INIT_PRODUCER_ID,
        5,
        messages.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1_000, producer_id=-1, producer_epoch=-1
        ),
    ),
    "a batch of a transaction": (
        apis.PRODUCE,
        11,
        requests.produce(
            {("t", 0): batch(b"a", attributes=TRANSACTIONAL, producer_id=7, epoch=0, sequence=0)},
            transactional_id="t",
        ),
    ),
    "a batch of a transaction without an id": (
        apis.PRODUCE,
        11,
        requests.produce(
            {("t", 0): batch(b"a", attributes=TRANSACTIONAL, producer_id=7, epoch=0, sequence=0)}
        ),
    ),
    "records of an unknown id": (
        apis.FETCH,
        17,
        requests.fetch({("t", 0): 0}, topic_id=TopicId(bytes(15) + b"x")),
    ),
    "a topic that is not there": (apis.LIST_OFFSETS, 7, requests.list_offsets([("no", 0)], -1)),
    "partitions of topics": (
        apis.DESCRIBE_TOPIC_PARTITIONS,
        0,
        messages.DescribeTopicPartitionsRequest(
            topics=[messages.TopicRequest(name=each) for each in ("t", "nowhere")],
            response_partition_limit=10,
        ),
    ),
}


@pytest.mark.parametrize("case", FINER)
def test_finer_questions_are_refused_as_by_kafka(all_closed: list[str], case: str) -> None:
    key, version, request = FINER[case]
    # Kafka hands out producer ids a moment after its start.
    kafka, frazil = (
        until(
            partial(ask, bootstrap, key, version, request),
            lambda answer: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in errors(answer),
        )
        for bootstrap in all_closed
    )
    assert refusals(frazil) == refusals(kafka)


NAMES = ("name", "topic", "group_id", "resource_name", "key", "resource_type")


def refusals(answer: Any) -> list[tuple[object, ...]]:
    """Names and error codes of all rows, in some order; and operations that are told."""
    if isinstance(answer, list):
        return sorted((row for each in answer for row in refusals(each)), key=repr)
    if not dataclasses.is_dataclass(answer):
        return []
    values = {each.name: getattr(answer, each.name) for each in dataclasses.fields(answer)}
    told = [
        (name, int(value))
        for name, value in values.items()
        if name.endswith(("error_code", "authorized_operations"))
    ]
    if not told:
        return sorted((row for each in values.values() for row in refusals(each)), key=repr)
    row = (*[values.get(name) for name in NAMES], *told)
    inner = [each for value in values.values() for each in refusals(value)]
    return sorted([row, *inner], key=repr)


REFUSALS = {29, 30, 31, 53}


@pytest.mark.parametrize(
    "api",
    # Of OffsetDelete Kafka says first that there is no such group.
    [api for api in COMPARED if api.key != apis.OFFSET_DELETE],
    ids=lambda api: api.name,
)
def test_where_a_topic_may_not_be_used_an_api_refuses_that_as_kafka_does(
    topic_closed: list[str], api: Api
) -> None:
    """What else is said of a group or a transaction that is not there is no matter of rights."""
    kafka, frazil = (told(bootstrap, api) for bootstrap in topic_closed)
    assert REFUSALS & {*frazil} == REFUSALS & {*kafka}


@pytest.mark.parametrize("cluster", [AclPermissionType.ALLOW, AclPermissionType.DENY])
def test_who_may_delete_on_the_cluster_deletes_any_topic_as_at_kafka(
    topic_closed: list[str], cluster: AclPermissionType
) -> None:
    """What is denied of the topic itself does not count then; elsewhere it is all that does."""
    name = f"doomed-{cluster.name.lower()}"
    request = messages.DeleteTopicsRequest(
        topics=[messages.DeleteTopicState(name=name)], timeout_ms=10_000
    )
    acls = [
        acl(ResourceType.TOPIC, name),
        acl(ResourceType.BROKER, "kafka-cluster", AclOperation.DELETE, cluster),
        acl(ResourceType.BROKER, "kafka-cluster", AclOperation.ALL, AclPermissionType.ALLOW),
    ]
    codes = []
    for bootstrap in topic_closed:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        create_topic(admin, name, 1)
        for future in admin.create_acls(acls).values():
            future.result(30)
        shown = messages.MetadataRequest(topics=[messages.MetadataRequestTopic(name=name)])
        until(
            partial(ask, bootstrap, apis.METADATA, 12, shown), lambda answer: 29 in errors(answer)
        )
        codes.append(
            [row.error_code for row in ask(bootstrap, apis.DELETE_TOPICS, 6, request).responses]
        )
    allowed = cluster is AclPermissionType.ALLOW
    assert codes == [[0 if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED]] * 2
