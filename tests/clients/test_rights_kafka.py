"""Every API, without the rights that it asks for: beside Apache Kafka with the same ACLs.

The requests are those of the matrix (`tests.broker.handlers.test_rights_matrix`), the answers are
compared by their error codes. Kafka's own broker is User:ANONYMOUS here, as everybody is, so the
cluster lets everybody do what has no ACL, and what is asked about is denied by name.
"""

import contextlib
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
from protocol import apis
from tests.broker.handlers.test_every_api import errors, request_of
from tests.broker.handlers.test_rights_matrix import BY_NAME
from tests.clients.bounded import until
from tests.clients.raw import Connection
from tests.clients.test_rights_clients import EVERYBODY, RIGHTS
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
