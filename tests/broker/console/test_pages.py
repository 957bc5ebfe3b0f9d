"""What a browser gets from an agent's console, and what keeps other sites out of it."""

import asyncio
import base64
import re
import sys

import aiohttp
import pytest

from tests.broker.agents import serving
from tests.kit.sockets import Running

pytestmark = pytest.mark.real_loop

TOKEN = "a-token-of-some-length"
PAGES = (
    "/",
    *(
        f"/console/{name}"
        for name in (
            "topics",
            "groups",
            "transactions",
            "tables",
            "jobs",
            "schemas",
            "live",
            "costs",
        )
    ),
)
"""Of viewers."""
BROWSER = {"Accept": "text/html,application/xhtml+xml"}


async def page(running: Running, path: str, **headers: str) -> tuple[int, str]:
    return await running.http("GET", path, headers=BROWSER | headers)


def words(html: str) -> str:
    """What is read on a page."""
    main = html[html.index("<main") : html.index("</main>")]
    return " ".join(re.sub(r"<[^>]*>", " ", main).split())


async def test_the_first_page_shows_agents_and_jobs() -> None:
    async with serving(None, "node.name=one") as running:
        status, html = await page(running, "/")
        assert status == 200
        said = words(html)
        assert re.search(r"Agents 1 Topics 0 Partitions 0", said)
        assert re.search(r"Clock behind one \d+ - PLAINTEXT 127\.0\.0\.1:\d+", said)
        for job in ("snapshot", "retention", "merge", "spill", "compact", "collect"):
            assert job in said
        assert "Drawn by agent <b>one</b>" in html


async def test_a_topic_is_found_in_the_list_and_shown_with_its_partitions() -> None:
    async with serving() as running:
        client = await running.connect()
        assert await client.create("orders") == 0
        assert await client.create("payments") == 0
        assert await client.produce("orders", [b"a", b"b", b"c"]) == (0, 0)
        _, html = await page(running, "/console/topics?search=ORD")
        assert re.search(r"Topics 2 .* orders 1 3 \d+ bytes - 0$", words(html))
        assert "payments" not in words(html)
        assert 'href="/console/topic?name=orders"' in html
        _, html = await page(running, "/console/topic?name=orders")
        assert re.search(r"Open transactions Size 0 0 3 3 - 0 \d+ bytes", words(html))
        assert "All configs have their defaults." in words(html)


async def test_what_is_not_there_is_a_page_that_says_so_and_json_to_programs() -> None:
    async with serving() as running:
        status, html = await page(running, "/console/topic?name=<b>x</b>")
        assert status == 404
        assert "<b>x</b>" not in html
        assert "there is no topic named" in words(html)
        status, said = await running.http("GET", "/console/group?id=g")
        assert (status, said) == (404, {"error": 'there is no group of the id "g"'})


async def test_no_page_may_be_framed_or_run_what_is_not_ours_and_no_browser_keeps_it() -> None:
    async with serving() as running:
        url = f"http://127.0.0.1:{running.agent.listening()['http'][1]}"
        async with aiohttp.ClientSession(url) as session:
            for path in (*PAGES, "/console/access", "/console/topic?name=none"):
                async with session.get(path, headers=BROWSER) as answer:
                    policy = answer.headers["Content-Security-Policy"]
                    assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
                    assert "frame-ancestors 'none'" in policy
                    assert answer.headers["X-Frame-Options"] == "DENY"
                    assert answer.headers["Cache-Control"] == "no-store"
                    html = await answer.text()
                # What the policy would not let in is not there: it would do nothing.
                assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", html)
                assert not re.search(r"<script(?! src=\"/console/static/)", html)


async def test_every_file_that_pages_name_is_served_for_ever_by_its_digest() -> None:
    async with serving() as running:
        _, html = await page(running, "/")
        named = set(re.findall(r'(?:src|href)="(/console/static/[^"]+)"', html))
        assert len(named) == 5
        url, size = f"http://127.0.0.1:{running.agent.listening()['http'][1]}", len(html)
        async with aiohttp.ClientSession(url) as session:
            for path in named:
                async with session.get(path) as answer:
                    assert (answer.status, "immutable" in answer.headers["Cache-Control"]) == (
                        200,
                        True,
                    )
                    size += len(await answer.read())
        assert size < 300_000
        assert (await running.http("GET", "/console/static/nothing.css"))[0] == 404


async def test_a_page_of_another_name_is_not_let_in() -> None:
    async with serving(None, "node.name=one", "cluster.id=mine") as running:
        status, html = await page(running, "/", Host="evil.example")
        assert (status, "mine" in html, "<b>one</b>" in html) == (421, False, False)


async def test_a_browser_is_asked_for_a_token_and_a_viewer_sees_pages_and_no_log(tmp_path) -> None:
    (tmp_path / "ann").write_text(TOKEN)
    flags = (f"http.tokens=ann:{tmp_path / 'ann'}", "http.roles.viewer=User:ann")
    async with serving(None, *flags) as running:
        url = f"http://127.0.0.1:{running.agent.listening()['http'][1]}"
        async with aiohttp.ClientSession(url) as session, session.get("/", headers=BROWSER) as told:
            assert told.status == 401
            basic = 'Basic realm="frazil", charset="UTF-8"'
            assert told.headers.getall("WWW-Authenticate") == ["Bearer", basic]
        said = f"Basic {base64.b64encode(f'token:{TOKEN}'.encode()).decode()}"
        for path in PAGES:
            assert (await page(running, path, Authorization=said))[0] == 200
        for path in ("/console/access", "/log"):
            assert (await page(running, path, Authorization=said))[0] == 403


async def test_an_agent_at_which_nobody_looks_has_not_imported_the_template_engine() -> None:
    code = (
        "import sys, broker.http_composition;"
        "assert 'broker.console.pages' in sys.modules and 'jinja2' not in sys.modules"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await child.wait() == 0
