"""`frazil export plan` and `apply` with a project file, against an agent."""

from collections.abc import Sequence

import pytest

from broker.cli.command_result import ToolError
from broker.cli.kafka_client import Address, KafkaClient
from broker.cli.topics import project_tool
from protocol import apis
from protocol.messages import DeleteTopicsRequest, DeleteTopicState
from tests.broker.cli.topics.topics_kit import client_of, create, with_topic

pytestmark = pytest.mark.real_loop

PREFIX = "frazil.iceberg."


async def test_a_project_file_is_planned_and_applied_and_then_there_is_nothing_to_change() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        first = {"t": {f"{PREFIX}value.mode": "json", f"{PREFIX}value.schema": "infer"}}
        said = ["t: value.mode: (default) -> json", "t: value.schema: (default) -> infer"]
        assert (await project_tool.plan(client, first)).lines == [*said, "2 settings of 1 topics"]
        assert (await project_tool.apply(client, first)).lines == [*said, "2 settings of 1 topics"]
        nothing = ["nothing to change: all topics are as the file says"]
        assert (await project_tool.plan(client, first)).lines == nothing
        assert (await project_tool.apply(client, first)).lines == nothing
        second = {"t": {f"{PREFIX}value.mode": "string"}}
        assert (await project_tool.apply(client, second)).lines == [
            "t: value.mode: json -> string",
            "t: value.schema: infer -> (default)",
            "2 settings of 1 topics",
        ]
        _, view = await running.http("GET", "/topics/t")
        assert view["configs"] == {f"{PREFIX}value.mode": "string"}


async def test_of_a_project_file_with_a_mistake_nothing_is_set() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        wanted = {"t": {f"{PREFIX}layout": "nested", f"{PREFIX}value.mode": "xml"}}
        told = await project_tool.apply(client, wanted)
        assert told.lines == []
        assert (
            "t: Invalid value xml for configuration frazil.iceberg.value.mode" in told.failures[0]
        )
        assert told.failures[-1] == "nothing was changed"
        _, view = await running.http("GET", "/topics/t")
        assert view["configs"] == {}


async def test_a_project_file_that_names_a_topic_that_there_is_not_changes_nothing() -> None:
    async with with_topic() as (running, _), client_of(running) as client:
        wanted = {"t": {f"{PREFIX}layout": "nested"}, "u": {}}
        with pytest.raises(ToolError, match="there is no topic u; nothing was changed"):
            await project_tool.apply(client, wanted)
        _, view = await running.http("GET", "/topics/t")
        assert view["configs"] == {}


class DeletedMeanwhile(KafkaClient):
    """Deletes topics once what is wanted of them has been checked."""

    names: Sequence[str] = ()

    async def ask(self, api, request, **how):
        if api == apis.INCREMENTAL_ALTER_CONFIGS and not request.validate_only:
            topics = [DeleteTopicState(name=name) for name in self.names]
            await super().ask(
                apis.DELETE_TOPICS, DeleteTopicsRequest(topics=topics, timeout_ms=5000)
            )
        return await super().ask(api, request, **how)


@pytest.mark.parametrize("names", [("u",), ("t", "u")])
async def test_topics_that_are_refused_at_last_are_not_told_as_changed(names) -> None:
    async with with_topic() as (running, _):
        await create(await running.connect(), "u")
        place = [Address("127.0.0.1", running.port)]
        async with DeletedMeanwhile(place, timeout_ms=10_000) as client:
            client.names = names
            wanted = {name: {f"{PREFIX}layout": "nested"} for name in ("t", "u")}
            told = await project_tool.apply(client, wanted)
        done = ["t: layout: (default) -> nested", "1 settings of 1 topics"]
        assert told.lines == ([] if "t" in names else done)
        assert [one.partition(":")[0] for one in told.failures] == list(names)
