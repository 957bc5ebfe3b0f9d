"""A record that an operator writes with a browser, and who may not."""

import json
import logging
import re
from pathlib import Path

import pytest

from tests.broker.agents import serving
from tests.broker.console.actions.test_action_pages import send
from tests.broker.console.test_record_pages import (
    BROWSER,
    create,
    page,
    said_by,
    tokens,
    words,
)
from tests.kit.sockets import Running

pytestmark = pytest.mark.real_loop

CONFIRM, PRODUCED = "/console/records/confirm", "/console/records/produced"
FORM = {
    "topic": "orders",
    "partition": "",
    "key": "ann",
    "key_form": "text",
    "value": '{"a": 1}\r\n',
    "value_form": "JSON",
    "headers": "trace: 7\r\nnote: <b>",
}


async def post(running: Running, path: str, fields: dict[str, str], **headers: str):
    """As a browser posts a form of a page of this agent, unless the headers say otherwise."""
    host, port = running.agent.listening()["http"]
    own = {"Origin": f"http://{host}:{port}", "Sec-Fetch-Site": "same-origin"}
    return await running.http("POST", path, data=fields, headers=BROWSER | own | headers)


def hidden(html: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', html)
    return {
        name: said.replace("&lt;", "<").replace("&#34;", '"').replace("&gt;", ">")
        for name, said in found
    }


async def test_a_record_is_shown_before_it_is_written_and_found_where_the_answer_says() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders", 3)
        status, html = await page(running, "/console/records/produce?topic=orders")
        assert (status, "Show what will be written" in html) == (200, True)
        status, html = await post(running, CONFIRM, FORM)
        said = words(html)
        assert status == 200
        assert (
            "appended to partition 2 of orders , with the time of then, as User:ANONYMOUS" in said
        )
        assert "note <b>" in said
        assert "no record" in words((await page(running, "/console/records?topic=orders"))[1])
        status, html = await post(running, PRODUCED, hidden(html))
        assert (status, "offset 0 of partition 2" in words(html)) == (200, True)
        _, html = await page(running, "/console/record?topic=orders&partition=2&offset=0")
        said = words(html)
        assert "Key text, 3 bytes ann" in said
        assert 'Value JSON, 9 bytes { "a": 1 }' in said
        assert "trace 7 note <b>" in said


async def test_the_page_that_says_where_a_record_was_written_may_be_loaded_again_and_writes_none() -> (
    None
):
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        status, _, where = await send(running, PRODUCED, FORM)
        assert status == 303
        for _ in range(2):
            status, html = await page(running, where)
            assert (status, "offset 0 of partition 0" in words(html)) == (200, True)
        topic = running.agent.node.log_client.machine.topics.by_name("orders")
        row = running.agent.node.log_client.machine.partitions.get(topic.topic_id, 0)
        assert row.end_offset == 1


async def test_what_is_no_record_is_told_above_the_form_which_keeps_what_was_written() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        for wrong, said in (
            ({"value": "{"}, "the value is not JSON"),
            ({"partition": "1"}, "the partition is a number from 0 to 0"),
            ({"headers": "trace"}, "a header is a line"),
        ):
            for path in (CONFIRM, PRODUCED):
                status, html = await post(running, path, FORM | wrong)
                assert (status, said in words(html)) == (400, True)
                assert ">\nann</textarea>" in html
        assert (await post(running, CONFIRM, FORM | {"topic": "nothing"}))[0] == 404


async def test_what_producers_are_refused_is_refused_here_in_the_same_words() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders", **{"max.message.bytes": "100"})
        status, html = await post(
            running, PRODUCED, FORM | {"value": "x" * 200, "value_form": "text"}
        )
        assert (status, "MESSAGE_TOO_LARGE" in words(html)) == (409, True)


async def test_no_page_of_another_site_writes_and_no_address_alone() -> None:
    async with serving() as running:
        client = await running.connect()
        await create(client, "orders")
        for headers, status in (
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
        ):
            assert (await post(running, PRODUCED, FORM, **headers))[0] == status
        # Nobody says that it comes from a page of this agent.
        assert (await running.http("POST", PRODUCED, data=FORM, headers=BROWSER))[0] == 403
        body = json.dumps(FORM)
        assert (await running.http("POST", PRODUCED, data=body))[0] == 415
        assert (await page(running, f"{CONFIRM}?topic=orders&value=x"))[0] == 405
        # That says where a record was written, and writes none.
        assert (await page(running, f"{PRODUCED}?topic=orders&partition=0&offset=0"))[0] == 200
        assert "no record" in words((await page(running, "/console/records?topic=orders"))[1])


async def test_an_operator_writes_and_a_reader_does_not_and_where_rights_are_on_it_takes_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "frazil.audit")
    flags = [
        tokens(tmp_path, "rea", "ope"),
        "http.roles.reader=User:rea",
        "http.roles.operator=User:ope",
    ]
    with_rights = [
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
    ]
    for rights, expected in (([], 200), (with_rights, 403)):
        async with serving(None, *flags, *rights) as running:
            await create(await running.connect(), "orders")
            for path in (CONFIRM, PRODUCED):
                assert (await post(running, path, FORM, **said_by("rea")))[0] == 403
                assert (await post(running, path, FORM, **said_by("ope")))[0] == expected
            form = "/console/records/produce?topic=orders"
            assert (await page(running, form, **said_by("rea")))[0] == 403
            assert (await page(running, form, **said_by("ope")))[0] == expected
    told = [json.loads(each.message) for each in caplog.records if each.name == "frazil.audit"]
    told = [each for each in told if each["api"].startswith("HTTP")]
    changes = [each for each in told if each["event"] == "change"]
    assert {each["principal"] for each in changes} == {"User:ope"}
    assert f"HTTP POST {PRODUCED}" in {each["api"] for each in changes}
    assert {
        each["operation"]
        for each in told
        if each["principal"] == "User:ope" and "operation" in each
    } == {"WRITE"}
