"""`frazil quota`, asked of an agent."""

import json

import pytest

from broker.cli import main
from broker.cli.cluster import quota_tool
from broker.cli.command_result import ToolError
from tests.broker.agents import serving
from tests.broker.cli.topics.topics_kit import client_of

pytestmark = pytest.mark.real_loop


async def alter(client, entity, unsetting=(), **setting):
    said = await quota_tool.alter(
        client, entity, setting=setting, unsetting=unsetting, dry_run=False
    )
    return said.lines


async def test_quotas_are_set_told_and_taken_away():
    async with serving() as running, client_of(running) as client:
        assert (await quota_tool.describe(client, {}, as_json=False)).lines == [
            "there are no quotas"
        ]
        both = {"user": "bob", "client-id": None}
        assert await alter(client, both, producer_byte_rate=1048576) == [
            "quotas of user bob, default client-id are altered: set producer_byte_rate=1048576"
        ]
        await alter(client, {"ip": "127.0.0.9"}, connection_creation_rate=5)
        said = (await quota_tool.describe(client, {}, as_json=False)).lines
        assert [line.split() for line in said[1:]] == [
            ["ip", "127.0.0.9", "connection_creation_rate", "5"],
            ["user", "bob,", "default", "client-id", "producer_byte_rate", "1048576"],
        ]
        (line,) = (await quota_tool.describe(client, both, as_json=True)).lines
        assert json.loads(line) == [{"entity": both, "quotas": {"producer_byte_rate": 1048576.0}}]
        await alter(client, both, ["producer_byte_rate"])
        assert (await quota_tool.describe(client, both, as_json=False)).lines == [
            "user bob, default client-id has no quota"
        ]


async def test_quotas_of_one_entity_are_not_those_of_another_that_has_its_name_in_it():
    async with serving() as running, client_of(running) as client:
        await alter(client, {"user": "bob", "client-id": "app"}, request_percentage=50)
        said = await quota_tool.describe(client, {"user": "bob"}, as_json=False)
        assert said.lines == ["user bob has no quota"]


async def test_a_dry_run_sets_nothing():
    async with serving() as running, client_of(running) as client:
        said = await quota_tool.alter(
            client, {"user": None}, setting={"consumer_byte_rate": 9}, unsetting=[], dry_run=True
        )
        assert said.lines == ["quotas of default user would be altered: set consumer_byte_rate=9"]
        assert (await quota_tool.describe(client, {}, as_json=True)).lines == ["[]"]


async def test_a_refusal_names_whose_quotas_it_is_about():
    async with serving() as running, client_of(running) as client:
        with pytest.raises(ToolError, match=r"quotas of user bob: .*nothing"):
            await alter(client, {"user": "bob"}, nothing=1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["quota"], "describe or alter"),
        (["quota", "alter", "--set", "producer_byte_rate=1"], "whose? --user"),
        (["quota", "alter", "--user", "bob"], "what of them? --set or --unset"),
        (["quota", "alter", "--user", "a", "--set", "x"], "is no quota with its number"),
        (["quota", "alter", "--user", "a", "--set", "x=nan"], "is no quota with its number"),
        (["quota", "describe", "--user", "a", "--user-default"], "not allowed with"),
    ],
)
def test_mistakes_are_told(words, sentence, capsys):
    try:
        code = main.main(words)
    except SystemExit as ended:
        code = ended.code
    assert code in (main.FAILED, main.MISUSED)
    assert sentence in capsys.readouterr().err
