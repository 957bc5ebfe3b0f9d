"""Who may act by the console, from where, and what a browser is led through."""

import base64
import json
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest

from broker.console.actions.action_pages import ACTIONS
from coordinator.commands.entries import CreateTopic
from tests.broker.agents import serving
from tests.broker.console.test_pages import BROWSER, TOKEN, words
from tests.kit.sockets import Running

pytestmark = pytest.mark.real_loop

PATHS = [action.path for action in ACTIONS]
FORM = "application/x-www-form-urlencoded"


def url_of(running: Running) -> str:
    return f"http://127.0.0.1:{running.agent.listening()['http'][1]}"


async def send(
    running: Running, path: str, form: dict[str, str], **headers: str
) -> tuple[int, str, str]:
    """Status, text and where it leads, of a form that a browser sends from this agent's own page."""
    sent = BROWSER | {"Content-Type": FORM, "Origin": url_of(running)} | headers
    sent = {name.replace("_", "-"): text for name, text in sent.items() if text}
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            url_of(running) + path, data=urlencode(form), headers=sent, allow_redirects=False
        ) as answer,
    ):
        return answer.status, await answer.text(), answer.headers.get("Location", "")


async def test_a_topic_is_deleted_by_whoever_types_its_name_and_told_once_it_is_done() -> None:
    async with serving() as running:
        client = await running.connect()
        assert await client.create("orders") == 0
        page = "/console/topic/delete?name=orders"
        _, html = await running.http("GET", page, headers=BROWSER)
        assert "Topic “orders” is deleted, with its 1 partition and the 0 offsets" in words(html)
        assert '<form class="confirm" method="post"' in html
        status, html, _ = await send(running, page, {"typed": "order"})
        assert (status, "type “orders” to confirm it" in html) == (400, True)
        machine = running.agent.node.log_client.machine
        assert machine.topics.by_name("orders") is not None
        status, _, path = await send(running, page, {"typed": "orders"})
        assert status == 303
        assert machine.topics.by_name("orders") is None
        _, html = await running.http("GET", path, headers=BROWSER)
        assert "Topic “orders” was deleted." in words(html)
        status, html, _ = await send(running, page, {"typed": "orders"})
        assert (status, "UNKNOWN_TOPIC_OR_PARTITION (3)" in words(html)) == (409, True)


async def test_what_is_refused_comes_back_with_the_form_as_it_was_filled_in() -> None:
    async with serving() as running:
        client = await running.connect()
        assert await client.create("orders") == 0
        form = {"name": "orders", "partitions": "7"}
        status, html, _ = await send(running, "/console/topic/create", form)
        assert status == 409
        assert "TOPIC_ALREADY_EXISTS (36). Choose another name." in words(html)
        assert 'name="partitions" type="number" value="7"' in html
        status, html, _ = await send(running, "/console/topic/create", form | {"name": "<b>"})
        assert (status, "INVALID_TOPIC_EXCEPTION (17)" in html, "<b>&" in html) == (
            409,
            True,
            False,
        )


async def test_a_question_leads_to_a_confirmation_and_changes_nothing() -> None:
    async with serving() as running:
        client = await running.connect()
        assert await client.create("orders") == 0
        _, html = await running.http("GET", "/console/topic/config?name=orders", headers=BROWSER)
        assert (
            '<form class="confirm" method="get" action="/console/topic/config?name=orders"' in html
        )
        assert 'type="hidden" name="name" value="orders"' in html
        status, html, _ = await send(running, "/console/topic/config?name=orders", {})
        assert (status, "Which config of topic “orders” is to change?" in html) == (200, True)


@pytest.mark.parametrize("path", PATHS)
async def test_to_ask_changes_nothing(path: str) -> None:
    async with serving() as running:
        client = await running.connect()
        assert await client.create("orders") == 0
        applied = []
        running.agent.node.log_client.on_applied(
            lambda each: applied.extend(
                command for command in each.entry.commands if isinstance(command, CreateTopic)
            )
        )
        said = urlencode({"name": "orders", "id": "g", "typed": "orders", "partitions": "9"})
        status, _ = await running.http("GET", f"{path}?{said}", headers=BROWSER)
        assert status in (200, 409)
        topic = running.agent.node.log_client.machine.topics.by_name("orders")
        assert (topic.partition_count, topic.configs, applied) == (1, {}, [])


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "", "Sec_Fetch_Site": "none"},
        {"Origin": "", "Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
async def test_a_form_of_another_site_or_of_nowhere_does_nothing(headers: dict[str, str]) -> None:
    async with serving() as running:
        form = {"name": "orders", "partitions": "1"}
        status, _, _ = await send(running, "/console/topic/create", form, **headers)
        assert status == 403
        assert running.agent.node.log_client.machine.topics.by_name("orders") is None


async def test_a_form_is_let_in_where_forms_are_taken_and_by_names_of_the_agent() -> None:
    async with serving() as running:
        status, _, _ = await send(running, "/jobs/snapshot/run", {"a": "b"})
        assert status == 415
        form = {"name": "orders", "partitions": "1"}
        status, _, _ = await send(
            running,
            "/console/topic/create",
            form,
            Host="evil.example",
            Origin="http://evil.example",
        )
        assert status == 421
        by_site = {"Origin": "", "Sec_Fetch_Site": "same-origin"}
        status, _, _ = await send(running, "/console/topic/create", form, **by_site)
        assert status == 303


async def test_a_form_has_bounds() -> None:
    async with serving() as running:
        many = {str(number): "x" for number in range(30)}
        assert (await send(running, "/console/topic/create", many))[0] == 400
        long = {"name": "x" * 70_000}
        assert (await send(running, "/console/topic/create", long))[0] == 413


async def test_viewers_see_no_buttons_and_may_not_act_and_operators_acts_are_audited(
    tmp_path, caplog
) -> None:
    flags = []
    for name in ("ann", "bob"):
        (tmp_path / name).write_text(TOKEN + name)
    tokens = ",".join(f"{name}:{tmp_path / name}" for name in ("ann", "bob"))
    flags = (f"http.tokens={tokens}", "http.roles.viewer=User:ann", "http.roles.operator=User:bob")
    caplog.set_level("INFO", "frazil.audit")

    def login(name: str) -> dict[str, str]:
        said = base64.b64encode(f"token:{TOKEN}{name}".encode()).decode()
        return {"Authorization": f"Basic {said}"}

    async with serving(None, *flags) as running:
        machine = running.agent.node.log_client.machine
        form = {"name": "orders", "partitions": "1"}
        for path in PATHS:
            headers = BROWSER | login("ann")
            assert (await running.http("GET", path, headers=headers))[0] == 403
            assert (await send(running, path, form, **login("ann")))[0] == 403
        assert machine.topics.by_name("orders") is None
        caplog.clear()
        assert (await send(running, "/console/topic/create", form, **login("bob")))[0] == 303
        assert machine.topics.by_name("orders") is not None
        (told,) = [json.loads(each.message) for each in caplog.records if "bob" in each.message]
        assert (told["event"], told["principal"]) == ("change", "User:bob")
        assert told["api"] == "HTTP POST /console/topic/create"
        page = "/console/topic?name=orders"
        for name, sees in (("ann", False), ("bob", True)):
            _, html = await running.http("GET", page, headers=BROWSER | login(name))
            assert ("/console/topic/delete?name=orders" in html) is sees


async def test_a_link_of_another_site_says_nothing_was_done() -> None:
    async with serving() as running:
        path = "/console/topics?done=topic-deleted&of=orders"
        for site, is_told in (("same-origin", True), ("none", True), ("cross-site", False)):
            _, html = await running.http("GET", path, headers=BROWSER | {"Sec-Fetch-Site": site})
            assert ("was deleted" in html) is is_told
        _, html = await running.http("GET", "/console/topics?done=x&of=y", headers=BROWSER)
        assert "notice" not in html


async def test_what_was_done_is_told_where_the_page_has_a_query_of_its_own() -> None:
    async with serving() as running:
        form = {"name": "a&b=c", "partitions": "1"}
        assert (await send(running, "/console/topic/create", form))[0] == 409
        form = {"name": "orders", "partitions": "1"}
        _, _, path = await send(running, "/console/topic/create", form)
        query = parse_qs(urlsplit(path).query)
        assert query == {"name": ["orders"], "done": ["topic-created"], "of": ["orders"]}
