"""`frazil cluster describe` and `frazil config`, asked of an agent."""

import json

import pytest

from broker.cli.cluster import cluster_tool, config_tool
from broker.cli.cluster.config_tool import Resource, ResourceKind, resource
from broker.cli.command_result import ToolError
from broker.cli.topics.requests import APPEND, DELETE, SET
from broker.cli.topics.topic_tool import Alteration
from tests.broker.cli.topics.topics_kit import client_of, with_topic

pytestmark = pytest.mark.real_loop
TOPIC = Resource(ResourceKind.TOPIC, "t")


def words(lines):
    return [line.split() for line in lines]


async def test_a_cluster_is_described_with_its_brokers():
    async with with_topic() as (running, _), client_of(running) as client:
        said = (await cluster_tool.describe(client, as_json=False)).lines
        (line,) = (await cluster_tool.describe(client, as_json=True)).lines
    told = json.loads(line)
    (broker,) = told["brokers"]
    assert said[0] == f"{told['cluster_id']}: 1 broker"
    assert words(said[2:]) == [
        ["ID", "ADDRESS", "RACK", "ROLE"],
        [str(broker["id"]), f"{broker['host']}:{broker['port']}", "-", "controller"],
    ]
    assert broker["port"] == running.port
    assert (broker["rack"], told["controller"]) == (None, broker["id"])


async def test_configs_are_altered_and_described():
    async with with_topic() as (running, _), client_of(running) as client:
        before = await config_tool.describe(client, TOPIC, every=False, as_json=False)
        assert before.lines == ["all configs of topic t are defaults"]
        wanted = [
            Alteration(SET, "retention.ms", "5"),
            Alteration(APPEND, "cleanup.policy", "compact"),
        ]
        said = await config_tool.alter(client, TOPIC, wanted, dry_run=False)
        assert said.lines == [
            "topic t is altered: set retention.ms=5, append cleanup.policy=compact"
        ]
        found = await config_tool.describe(client, TOPIC, every=False, as_json=False)
        assert words(found.lines) == [
            ["CONFIG", "VALUE", "SOURCE"],
            ["cleanup.policy", "delete,compact", "DYNAMIC_TOPIC_CONFIG"],
            ["retention.ms", "5", "DYNAMIC_TOPIC_CONFIG"],
        ]
        await config_tool.alter(client, TOPIC, [Alteration(DELETE, "retention.ms")], dry_run=False)
        (line,) = (await config_tool.describe(client, TOPIC, every=False, as_json=True)).lines
        assert [one["name"] for one in json.loads(line)] == ["cleanup.policy"]


async def test_defaults_are_told_to_who_asks_for_all():
    async with with_topic() as (running, _), client_of(running) as client:
        (line,) = (await config_tool.describe(client, TOPIC, every=True, as_json=True)).lines
    told = {one["name"]: one for one in json.loads(line)}
    assert told["retention.ms"] == {
        "name": "retention.ms",
        "value": "604800000",
        "source": "DEFAULT_CONFIG",
    }


async def test_a_dry_run_changes_nothing():
    async with with_topic() as (running, _), client_of(running) as client:
        wanted = [Alteration(SET, "retention.ms", "5")]
        said = await config_tool.alter(client, TOPIC, wanted, dry_run=True)
        assert said.lines == ["topic t would be altered: set retention.ms=5"]
        found = await config_tool.describe(client, TOPIC, every=False, as_json=True)
        assert found.lines == ["[]"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ResourceKind.GROUP, "g"),
        (ResourceKind.CLIENT_METRICS, "m"),
        (ResourceKind.BROKER, ""),
    ],
)
async def test_whatever_has_configs_can_be_asked(kind, name):
    settings = {
        ResourceKind.GROUP: ("consumer.session.timeout.ms", "50000"),
        ResourceKind.CLIENT_METRICS: ("interval.ms", "60000"),
        ResourceKind.BROKER: ("log.retention.ms", "5000"),
    }
    about = resource(kind, name)
    async with with_topic() as (running, _), client_of(running) as client:
        await config_tool.alter(client, about, [Alteration(SET, *settings[kind])], dry_run=False)
        (line,) = (await config_tool.describe(client, about, every=False, as_json=True)).lines
    assert settings[kind] in [(one["name"], one["value"]) for one in json.loads(line)]


async def test_a_broker_is_asked_itself_and_one_that_is_not_there_is_told():
    async with with_topic() as (running, _), client_of(running) as client:
        (line,) = (await cluster_tool.describe(client, as_json=True)).lines
        own = str(json.loads(line)["brokers"][0]["id"])
        about = resource(ResourceKind.BROKER, own)
        (told,) = (await config_tool.describe(client, about, every=True, as_json=True)).lines
        assert len(json.loads(told)) > 50
        other = resource(ResourceKind.BROKER, "77")
        with pytest.raises(ToolError) as refused:
            await config_tool.describe(client, other, every=False, as_json=False)
    assert str(refused.value) == f"there is no broker 77 (known: {own})"


async def test_a_refusal_names_what_it_is_about():
    async with with_topic() as (running, _), client_of(running) as client:
        nowhere = Resource(ResourceKind.TOPIC, "nowhere")
        with pytest.raises(ToolError, match="configs of topic nowhere: there is no such topic"):
            await config_tool.describe(client, nowhere, every=False, as_json=False)
        wanted = [Alteration(SET, "retention.ms", "long")]
        with pytest.raises(ToolError, match=r"configs of topic t: .*retention\.ms"):
            await config_tool.alter(client, TOPIC, wanted, dry_run=False)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(ResourceKind.BROKER, "one"), (ResourceKind.BROKER_LOGGER, ""), (ResourceKind.BROKER, "٣")],
)
def test_what_is_no_brokers_id_is_told(kind, name):
    with pytest.raises(ToolError, match="is no id of a broker"):
        resource(kind, name)
