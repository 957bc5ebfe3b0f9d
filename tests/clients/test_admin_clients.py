"""The admin clients of librdkafka, kafka-python, sarama and franz-go, method by method, beside Kafka itself."""

import contextlib
import functools
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ConfigResource as PythonConfig
from kafka.admin import ConfigResourceType as PythonConfigType
from kafka.admin import NewPartitions as PythonPartitions
from kafka.admin import NewTopic as PythonTopic
from kafka.admin import OffsetSpec as PythonOffset
from kafka.admin import ResourceType as PythonType
from kafka.admin import ScramMechanism as PythonMechanism
from kafka.admin import UserScramCredentialUpsertion as PythonUpsertion
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotControllerError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    TransactionalIdNotFoundError,
)
from kafka.errors import KafkaError as PythonError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from tests.clients.bounded import until
from tests.clients.side_by_side import Pair, pair, plain
from tests.parts import install
from tests.parts.topics import NotNowError, patiently

pytestmark = pytest.mark.integration

AUTHORIZER: Final = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)
HOUR: Final = "3600000"
COORDINATED: Final = 50
"""Transactional ids that are asked for until somebody coordinates each: as many as there are partitions."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both have an authorizer, and everybody may do everything."""
    with pair(tmp_path_factory.mktemp("admin"), *AUTHORIZER) as both:
        for bootstrap in both:
            _until_transactions_are_coordinated(bootstrap)
        yield both


def _until_transactions_are_coordinated(bootstrap: str) -> None:
    """Kafka makes the topic when somebody asks for the first time, and loads each partition of it."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def is_coordinated() -> bool:
        try:
            for number in range(COORDINATED):
                with contextlib.suppress(TransactionalIdNotFoundError):
                    admin.describe_transactions([f"nobody{number or ''}"])
        except (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError):
            return False
        return True

    try:
        until(is_coordinated, bool, seconds=30)
    finally:
        admin.close()


Calls = Mapping[str, Callable[[], object]]
Client = Callable[[str], dict[str, str]]
"""What each of its calls tells of a cluster."""


NOT_NOW: Final = (
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
PYTHON_NOT_NOW: Final = (
    NotControllerError,
    NotLeaderForPartitionError,
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
)


def told_of(calls: Calls, errors: type[Exception]) -> dict[str, str]:
    """What each call returns, or its error, as text; one that is refused for a moment is made again."""

    def made(call: Callable[[], object]) -> object:
        try:
            return call()
        except KafkaException as error:
            if error.args[0].code() in NOT_NOW:
                raise NotNowError from error
            raise
        except PYTHON_NOT_NOW as error:
            raise NotNowError from error

    told = {}
    for name, call in calls.items():
        try:
            told[name] = str(patiently(functools.partial(made, call), NotNowError))
        except errors as error:
            told[name] = f"{type(error).__name__}: {error}"
    return told


def only(futures: Mapping[Any, Future[Any]]) -> Any:
    """The result of the only one."""
    (future,) = futures.values()
    return future.result(30)


def by_librdkafka(bootstrap: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = "librdkafka-admin"
    place = TopicPartition(topic, 0)
    resource = ConfigResource(ResourceType.TOPIC, topic)

    # Kafka's broker hears of what its controller took a moment later: hence `until`.
    def produced() -> int:
        producer = Producer({"bootstrap.servers": bootstrap})
        for _ in range(3):
            producer.produce(topic, b"a", partition=0)
        return producer.flush(30)

    def config() -> str:
        def heard_of() -> Any:
            return only(admin.describe_configs([resource]))["retention.ms"]

        found = until(heard_of, lambda entry: entry.value == HOUR, seconds=30)
        return f"{found.value} {found.source} {found.is_read_only} {found.is_sensitive}"

    def changed(value: str) -> object:
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        return only(admin.incremental_alter_configs([wanted]))

    def offset(spec: OffsetSpec) -> int:
        found = admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
        return int(only(found).offset)

    def described() -> str:
        def heard_of() -> Any:
            return only(admin.describe_topics(TopicCollection([topic])))

        found = until(heard_of, lambda topic: len(topic.partitions) == 2, seconds=30)
        return f"{found.name} {found.is_internal} {len(found.partitions)}"

    def cluster() -> str:
        found = admin.describe_cluster(include_authorized_operations=True).result(30)
        operations = sorted(each.name for each in found.authorized_operations)
        return f"{len(found.nodes)} {found.controller.id} {operations}"

    calls: Calls = {
        "create_topics": lambda: only(admin.create_topics([NewTopic(topic, 1, 1)])),
        "create_topics again": lambda: only(admin.create_topics([NewTopic(topic, 1, 1)])),
        "create_partitions": lambda: only(admin.create_partitions([NewPartitions(topic, 2)])),
        "produce": produced,
        "describe_topics": described,
        "list_topics": lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions),
        "describe_cluster": cluster,
        "incremental_alter_configs": lambda: changed(HOUR),
        "incremental_alter_configs to nonsense": lambda: changed("never"),
        "describe_configs": config,
        "list_offsets earliest": lambda: offset(OffsetSpec.earliest()),
        "list_offsets latest": lambda: offset(OffsetSpec.latest()),
        "list_offsets max timestamp": lambda: offset(OffsetSpec.max_timestamp()) >= 0,
        "list_offsets of a time": lambda: offset(OffsetSpec.for_timestamp(0)),
        "elect_leaders": lambda: admin.elect_leaders(ElectionType.PREFERRED, [place]).result(30),
        **groups_by_librdkafka(admin, topic),
        **rights_by_librdkafka(admin, topic),
        "delete_records": lambda: (
            only(admin.delete_records([TopicPartition(topic, 0, 2)])).low_watermark
        ),
        "delete_records beyond the end": lambda: only(
            admin.delete_records([TopicPartition(topic, 0, 1_000)])
        ),
        "delete_topics": lambda: only(admin.delete_topics([topic])),
        "delete_topics again": lambda: only(admin.delete_topics([topic])),
    }
    return told_of(calls, KafkaException)


def groups_by_librdkafka(admin: AdminClient, topic: str) -> Calls:
    group = "librdkafka-group"

    def committed() -> object:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])

        def attempt() -> Any:
            return only(admin.alter_consumer_group_offsets([asked])).topic_partitions[0]

        # Kafka's coordinator has to make its topic first.
        return until(attempt, lambda row: row.error is None, seconds=30).offset

    def group_offsets() -> list[int]:
        asked = ConsumerGroupTopicPartitions(group)
        rows = only(admin.list_consumer_group_offsets([asked])).topic_partitions
        return [row.offset for row in rows]

    def groups() -> list[str]:
        listed = admin.list_consumer_groups().result(30)
        return [f"{each.group_id} {each.state}" for each in listed.valid if each.group_id == group]

    def described_group() -> str:
        found = only(admin.describe_consumer_groups([group]))
        return f"{found.group_id} {found.state} {found.members} {found.is_simple_consumer_group}"

    return {
        "alter_consumer_group_offsets": committed,
        "list_consumer_group_offsets": group_offsets,
        "list_consumer_groups": groups,
        "describe_consumer_groups": described_group,
        "delete_consumer_groups": lambda: only(admin.delete_consumer_groups([group])),
        "delete_consumer_groups again": lambda: only(admin.delete_consumer_groups([group])),
    }


def rights_by_librdkafka(admin: AdminClient, topic: str) -> Calls:
    user = "librdkafka-user"
    acl = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*")
    rule = AclBinding(*acl, AclOperation.READ, AclPermissionType.ALLOW)
    rules = AclBindingFilter(*acl, AclOperation.ANY, AclPermissionType.ANY)
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)

    def rights() -> int:
        return len(admin.describe_acls(rules).result(30))

    def credentials() -> list[str]:
        try:
            known = only(admin.describe_user_scram_credentials([user]))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.RESOURCE_NOT_FOUND:
                raise
            return []
        return [f"{each.mechanism} {each.iterations}" for each in known.scram_credential_infos]

    return {
        "create_acls": lambda: only(admin.create_acls([rule])),
        "describe_acls": lambda: until(rights, bool, seconds=30),
        "delete_acls": lambda: len(only(admin.delete_acls([rules]))),
        "alter_user_scram_credentials": lambda: only(
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, scram, b"secret")]
            )
        ),
        "describe_user_scram_credentials": lambda: until(credentials, bool, seconds=30),
        "alter_user_scram_credentials away": lambda: only(
            admin.alter_user_scram_credentials(
                [UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)]
            )
        ),
    }


def by_kafka_python(bootstrap: str) -> dict[str, str]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    topic, group, user = "python-admin", "python-group", "python-user"
    place = PythonPartition(topic, 0)
    rule = ACL(
        f"User:{user}",
        "*",
        ACLOperation.READ,
        ACLPermissionType.ALLOW,
        ResourcePattern(PythonType.TOPIC, topic),
    )
    rules = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(PythonType.TOPIC, topic, ACLResourcePatternType.ANY),
    )

    # Kafka's broker hears of what its controller took a moment later: hence `until`.
    def is_known(told: dict[str, Any]) -> bool:
        return bool(told[user]["credential_infos"])

    def has_grown(told: list[dict[str, Any]]) -> bool:
        return len(told[0]["partitions"]) == 2

    scram = PythonUpsertion(user, PythonMechanism.SCRAM_SHA_512, "secret", iterations=4096)

    def config(**wanted: str) -> list[PythonConfig]:
        return [PythonConfig(PythonConfigType.TOPIC, topic, wanted or None)]

    def offset(spec: PythonOffset) -> object:
        return admin.list_partition_offsets({place: spec})

    calls: Calls = {
        "create_topics": lambda: admin.create_topics([PythonTopic(topic, 1, 1)]),
        "create_topics again": lambda: admin.create_topics([PythonTopic(topic, 1, 1)]),
        "create_partitions": lambda: admin.create_partitions({topic: PythonPartitions(2)}),
        "wait_for_topics": lambda: admin.wait_for_topics([topic]),
        "list_topics": lambda: topic in admin.list_topics(),
        "describe_topics": lambda: until(
            lambda: admin.describe_topics([topic]), has_grown, seconds=30
        ),
        "describe_topic_partitions": lambda: admin.describe_topic_partitions([topic]),
        "describe_cluster": admin.describe_cluster,
        "describe_configs": lambda: admin.describe_configs(config()),
        "alter_configs": lambda: admin.alter_configs(config(**{"retention.ms": HOUR})),
        "reset_configs": lambda: admin.reset_configs(config(**{"retention.ms": ""})),
        "list_config_resources": lambda: len(admin.list_config_resources()) > 0,
        "list_partition_offsets earliest": lambda: offset(PythonOffset.EARLIEST),
        "list_partition_offsets latest": lambda: offset(PythonOffset.LATEST),
        "elect_leaders": lambda: admin.elect_leaders(0, {topic: [0]}),
        "list_partition_reassignments": lambda: admin.list_partition_reassignments({topic: [0]}),
        "describe_log_dirs": lambda: len(admin.describe_log_dirs()),
        "describe_producers": lambda: admin.describe_producers([place]),
        "list_transactions": admin.list_transactions,
        "describe_transactions": lambda: admin.describe_transactions(["nobody"]),
        "find_hanging_transactions": admin.find_hanging_transactions,
        "alter_group_offsets": lambda: admin.alter_group_offsets(
            group, {place: OffsetAndMetadata(0, "", -1)}
        ),
        "list_group_offsets": lambda: admin.list_group_offsets({group: None}),
        "list_groups": lambda: [each for each in admin.list_groups() if each["group_id"] == group],
        "describe_groups": lambda: admin.describe_groups([group]),
        "reset_group_offsets": lambda: admin.reset_group_offsets(
            group, {place: PythonOffset.LATEST}
        ),
        "delete_group_offsets": lambda: admin.delete_group_offsets(group, [place]),
        "delete_groups": lambda: admin.delete_groups([group]),
        "delete_groups again": lambda: admin.delete_groups([group]),
        "create_acls": lambda: len(admin.create_acls([rule])["succeeded"]),
        "describe_acls": lambda: until(
            lambda: admin.describe_acls(rules), lambda told: told[0], seconds=30
        ),
        "delete_acls": lambda: admin.delete_acls([rules]),
        "alter_user_scram_credentials": lambda: admin.alter_user_scram_credentials([scram]),
        "describe_user_scram_credentials": lambda: until(
            lambda: admin.describe_user_scram_credentials([user]), is_known, seconds=30
        ),
        "delete_records": lambda: admin.delete_records({place: 0}),
        "delete_records beyond the end": lambda: admin.delete_records({place: 1_000}),
        "delete_topics": lambda: admin.delete_topics([topic]),
        "delete_topics again": lambda: admin.delete_topics([topic]),
    }
    try:
        return told_of(calls, PythonError)
    finally:
        admin.close()


def by_program(name: str) -> Client:
    """A program that tells a line for each call."""

    def run(bootstrap: str) -> dict[str, str]:
        done = subprocess.run(
            [str(install.go_clients()[name]), bootstrap],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        told: dict[str, str] = {}
        for line in done.stdout.splitlines():
            call, tab, result = line.partition("\t")
            assert tab
            told[call] = result
        return told

    return run


CLIENTS: Final[Mapping[str, Client]] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "sarama": by_program("sarama_admin"),
    "franz-go": by_program("franz_admin"),
}
OTHER_WORDS: Final = "other words for what is wrong with a value"
DIFFERENT: Final = {
    ("librdkafka", "incremental_alter_configs to nonsense"): OTHER_WORDS,
    ("sarama", "IncrementalAlterConfig to nonsense"): OTHER_WORDS,
    ("kafka-python", "create_topics"): "Frazil's own configs of topics are told, too",
}
"""By client, calls that are told otherwise, and why."""
IDS: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<='cluster_id': ')[^']*")


@pytest.mark.parametrize("name", CLIENTS)
def test_each_method_of_an_admin_client_tells_of_an_agent_what_it_tells_of_kafka(
    name: str, guarded: Pair
) -> None:
    kafka, frazil = (
        {
            call: IDS.sub("ID", plain(text, bootstrap))
            for call, text in CLIENTS[name](bootstrap).items()
        }
        for bootstrap in guarded
    )
    assert kafka.keys() == frazil.keys()
    differ = {call for call in kafka if kafka[call] != frazil[call]}
    told = "\n".join(f"{call}\n  {kafka[call]}\n  {frazil[call]}" for call in sorted(differ))
    assert {(name, call) for call in differ} == {each for each in DIFFERENT if each[0] == name}, (
        told
    )
