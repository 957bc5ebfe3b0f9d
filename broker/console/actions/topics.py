"""Actions on topics: create, delete, add partitions, change a config."""

from collections.abc import Mapping

from broker.config.changes import OpType
from broker.config.config_row import Kind
from broker.config.topic_configs import TABLE_OF_TOPICS, describe_topic
from broker.console.actions.asking import Operator
from broker.console.actions.parameters import Parameters, topic_page
from broker.console.confirming import (
    Confirmation,
    Done,
    FormField,
    RefusalError,
    check,
    counted,
    refusal_of,
)
from broker.console.views.topics import topic_view
from broker.handlers.describe_configs import ResourceType
from coordinator.tables.topics import Topic
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError

TIMEOUT_MS = 30_000
LIST = "/console/topics"


async def plan_creation(by: Operator, said: Parameters) -> Confirmation:
    partitions = said.text("partitions") or str(by.node.kafka.num_partitions)
    return Confirmation(
        title="Create a topic",
        sentence=(
            "A topic of this name is created, empty, with default configs. Partitions can be added later, and never"
            " be taken away."
        ),
        button="Create it",
        path="/console/topic/create",
        back=LIST,
        fields=(
            FormField("name", "Name", said.text("name")),
            FormField("partitions", "Partitions", partitions, "number"),
        ),
    )


async def create(by: Operator, said: Parameters) -> Done:
    name = said.text("name").strip()
    topic = messages.CreatableTopic(
        name=name, num_partitions=said.number("partitions"), replication_factor=-1
    )
    request = messages.CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    (result,) = (await by.ask(apis.CREATE_TOPICS, request)).topics
    check(result.error_code, result.error_message)
    return Done(topic_page(name), "topic-created", name)


async def plan_deletion(by: Operator, said: Parameters) -> Confirmation:
    topic = topic_of(by, said)
    view = topic_view(by.machine, topic, 1)
    sums = view.row.sums
    assert sums is not None  # One topic is always summed up.
    sentence = (
        f"Topic “{topic.name}” is deleted, with its {counted(topic.partition_count, 'partition')}"
        f" and the {counted(sums.offsets, 'offset')} in them."
    )
    if view.groups:
        committed = "has" if len(view.groups) == 1 else "have"
        sentence += f" {counted(len(view.groups), 'group')} {committed} committed offsets of it; these are forgotten."
    if sums.waits_for_export:
        waits = "waits" if sums.waits_for_export == 1 else "wait"
        sentence += f" {counted(sums.waits_for_export, 'offset')} of it {waits} for export, and will be in no table."
    return Confirmation(
        title="Delete a topic",
        sentence=sentence,
        warning="Nothing brings its records back.",
        typed=topic.name,
        button="Delete it",
        path=topic_page(topic.name, "/delete"),
        back=topic_page(topic.name),
        hidden=(("topic_id", topic.topic_id.hex()),),
    )


async def delete(by: Operator, said: Parameters) -> Done:
    topic = topic_of(by, said)
    # By its id: a topic that was made anew under the name is another one.
    state = messages.DeleteTopicState(topic_id=topic.topic_id)
    request = messages.DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
    (result,) = (await by.ask(apis.DELETE_TOPICS, request)).responses
    check(result.error_code, result.error_message)
    return Done(LIST, "topic-deleted", topic.name)


async def plan_growth(by: Operator, said: Parameters) -> Confirmation:
    topic = topic_of(by, said)
    count = said.text("partitions") or str(topic.partition_count + 1)
    return Confirmation(
        title="Add partitions",
        sentence=(
            f"Topic “{topic.name}” has {counted(topic.partition_count, 'partition')}, and gets more: as many as you say"
            " in all. Producers that choose a partition by key put the same key elsewhere from then on, so the order of"
            " a key's records is no longer kept."
        ),
        warning="Partitions cannot be taken away again.",
        button="Add them",
        path=topic_page(topic.name, "/partitions"),
        back=topic_page(topic.name),
        fields=(FormField("partitions", "Partitions in all", count, "number"),),
        hidden=(("topic_id", topic.topic_id.hex()),),
    )


async def grow(by: Operator, said: Parameters) -> Done:
    topic = topic_of(by, said)
    wanted = messages.CreatePartitionsTopic(name=topic.name, count=said.number("partitions"))
    request = messages.CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    (result,) = (await by.ask(apis.CREATE_PARTITIONS, request)).results
    check(result.error_code, result.error_message)
    return Done(topic_page(topic.name), "topic-grown", topic.name)


async def plan_config(by: Operator, said: Parameters) -> Confirmation:
    topic = topic_of(by, said)
    name = said.text("config")
    path, back = topic_page(topic.name, "/config"), topic_page(topic.name)
    if not name:
        options = tuple((each, each) for each in TABLE_OF_TOPICS)
        return Confirmation(
            title="Change a config",
            sentence=f"Which config of topic “{topic.name}” is to change?",
            button="Go on",
            path=path,
            back=back,
            fields=(FormField("config", "Config", kind="select", options=options),),
            hidden=(("name", topic.name),),
            is_question=True,
        )
    row = TABLE_OF_TOPICS.get(name)
    if row is None:
        raise RefusalError(f"There is no config of topics named “{name}”.")
    found = {each.name: each for each in describe_topic(topic.configs, by.node.kafka)}[name]
    value, is_set = found.value or "", name in topic.configs
    whose = "set for it" if is_set else "not set for it, so that is the default"
    field = FormField("value", "New value", said.get("value", value), is_required=False)
    choices = ("true", "false") if row.kind is Kind.BOOLEAN else row.choices
    if choices and row.kind is not Kind.LIST:
        options = tuple((choice, choice) for choice in choices)
        field = field._replace(kind="select", options=options)
    then = (("set", "as above"), ("unset", "the default"))
    return Confirmation(
        title=f"Change {name}",
        sentence=(
            f"Config {name} of topic “{topic.name}” is “{value}” ({whose}), and becomes what you say."
            f" {row.documentation}"
        ),
        warning=_of_losing(name),
        button="Change it",
        path=path,
        back=back,
        fields=(field, FormField("then", "It is to be", said.get("then", "set"), "select", then)),
        hidden=(("config", name), ("topic_id", topic.topic_id.hex())),
    )


async def change_config(by: Operator, said: Parameters) -> Done:
    topic, name = topic_of(by, said), said.text("config")
    is_unset = said.text("then") == "unset"
    config = messages.IncrementalAlterableConfig(
        name=name,
        config_operation=OpType.DELETE if is_unset else OpType.SET,
        value=None if is_unset else said.text("value"),
    )
    resource = messages.IncrementalAlterConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic.name, configs=[config]
    )
    request = messages.IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = (await by.ask(apis.INCREMENTAL_ALTER_CONFIGS, request)).responses
    check(result.error_code, result.error_message)
    return Done(topic_page(topic.name), "topic-config", f"{name} of {topic.name}")


def topic_of(by: Operator, said: Parameters) -> Topic:
    """The topic that is named, if it is the one that the page showed. Raises RefusalError."""
    name, topic_id = said.text("name"), said.text("topic_id")
    topic = by.machine.topics.by_name(name)
    if topic is None:
        reason = f"There is no topic “{name}”"
        raise refusal_of(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason))
    if topic_id and topic.topic_id.hex() != topic_id:
        reason = f"Topic “{name}” was deleted and made anew meanwhile"
        raise refusal_of(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, reason))
    return topic


_LOSING: Mapping[str, str] = {
    "retention.ms": "Records that are older than the new value are deleted, and nothing brings them back.",
    "retention.bytes": "Records beyond the new size are deleted, and nothing brings them back.",
    "cleanup.policy": "By another policy records are deleted or compacted away, and nothing brings them back.",
}


def _of_losing(name: str) -> str:
    return _LOSING.get(name, "")
