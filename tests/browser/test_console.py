"""The console as a person sees it: what it shows, both themes, keyboard, phone; and while agents are killed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.looking import (
    CONTRAST_MIN,
    NAMELESS,
    PALE,
    PHONE,
    WIDE,
    focus_stops,
    links,
    looking,
)
from tests.browser.scene import GROUP, OPEN, SHIPMENTS, SUBJECT, TOPICS, Scene
from tests.clients.conftest import QUICK_PUTS
from tests.faults.load import Load
from tests.parts.servers import EtcdServer, FrazilCluster, MinioServer

pytestmark = pytest.mark.integration

PAGES_MAX = 60
SCREENSHOTS = os.environ.get("FRAZIL_SCREENSHOTS", "")
"""A folder: there those of the docs are put (`make screenshots`)."""
PATIENCE_MS = 60_000.0
BYTES_MAX = 300_000
REFUSED = "status of 409"
"""As a browser tells of a page that says why something cannot be done."""


def tile(page: Page, name: str):
    return page.locator(f'dt:text-is("{name}") + dd')


def pages(page: Page, start: str) -> Iterator[str]:
    """Goes to each page that can be reached from the first by links; of those that differ in a number only, one."""
    wanted, seen = [start], set()
    while wanted:
        url = wanted.pop(0)
        kind = re.sub(r"\d+", "0", url)
        if kind in seen or "/console/static/" in url or "/console/record/bytes" in url:
            continue
        seen.add(kind)
        assert len(seen) < PAGES_MAX, seen
        answer = page.goto(url)
        assert answer is not None
        # Of a group that has members, or that another agent coordinates, it is said why nothing can be done.
        assert answer.status in ((200, 409) if "/console/group/" in url else (200,)), url
        yield url
        wanted += links(page)


def screenshot(page: Page, name: str, folder: Path) -> None:
    """One of the docs'; put where it is asked for, or away."""
    target = Path(SCREENSHOTS or folder) / f"{name}.png"
    page.screenshot(path=target, animations="disabled")
    assert target.stat().st_size > 10_000


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_each_page_can_be_read_in_both_themes_on_a_screen_and_on_a_phone(
    chromium: Browser, shown: Scene, viewport: dict[str, int]
) -> None:
    with looking(chromium, expected=REFUSED, viewport=viewport) as page:
        seen = list[str]()
        for url in pages(page, shown.url()):
            seen.append(url)
            assert page.locator("h1").count() == 1, url
            assert page.evaluate(NAMELESS) == [], url
            too_wide = "document.documentElement.scrollWidth - innerWidth"
            assert page.evaluate(too_wide) <= 0, f"{url} is too wide"
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                assert page.evaluate(PALE, CONTRAST_MIN) == [], (url, scheme)
    for path in ("topic?name=orders", f"group?id={GROUP}", f"schema?subject={SUBJECT}"):
        assert shown.url(f"/console/{path}") in seen


def test_each_page_is_used_with_the_keyboard_alone(chromium: Browser, shown: Scene) -> None:
    # Without scripts nothing moves meanwhile.
    with looking(chromium, expected=REFUSED, java_script_enabled=False) as page:
        for url in pages(page, shown.url()):
            stops = focus_stops(page)
            assert [each["place"] for each in stops] == list(range(stops[0]["stops"])), url
            assert [each["what"] for each in stops if not each["seen"]] == [], url


def test_the_first_link_skips_what_stands_on_every_page(chromium: Browser, shown: Scene) -> None:
    with looking(chromium) as page:
        page.goto(shown.url("/console/topics"))
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_role("searchbox")).to_be_focused()


def test_the_first_page_shows_agents_topics_and_jobs(
    chromium: Browser, shown: Scene, tmp_path: Path
) -> None:
    with looking(chromium) as page:
        page.goto(shown.url())
        expect(tile(page, "Agents")).to_have_text("3")
        expect(tile(page, "Topics")).to_have_text(str(len(TOPICS)))
        screenshot(page, "console", tmp_path)
        page.emulate_media(color_scheme="dark")
        screenshot(page, "console-dark", tmp_path)


def test_a_first_view_is_small(chromium: Browser, shown: Scene) -> None:
    with looking(chromium) as page:
        sizes: list[int] = []
        page.on("requestfinished", lambda done: sizes.append(done.sizes()["responseBodySize"]))
        page.goto(shown.url(), wait_until="networkidle")
        assert len(sizes) >= 6
        assert sum(sizes) < BYTES_MAX


def test_every_page_is_there_without_scripts(chromium: Browser, shown: Scene) -> None:
    with looking(chromium, java_script_enabled=False) as page:
        page.goto(shown.url())
        expect(tile(page, "Agents")).to_have_text("3")
        page.get_by_role("link", name="Topics").click()
        page.get_by_role("searchbox").fill("ship")
        page.keyboard.press("Enter")
        expect(page.get_by_role("rowheader")).to_have_text(["shipments"])


def test_topics_are_searched_as_one_types_and_the_address_can_be_kept(
    chromium: Browser, shown: Scene
) -> None:
    with looking(chromium) as page:
        page.goto(shown.url("/console/topics"))
        expect(page.get_by_role("rowheader")).to_have_text(sorted(TOPICS))
        page.get_by_role("searchbox").press_sequentially("pay")
        expect(page.get_by_role("rowheader")).to_have_text(["payments"])
        expect(page.get_by_role("searchbox")).to_be_focused()
        assert page.url.endswith("?search=pay")
        page.reload()
        expect(page.get_by_role("rowheader")).to_have_text(["payments"])


def test_a_theme_that_was_chosen_stays_chosen(chromium: Browser, shown: Scene) -> None:
    with looking(chromium, color_scheme="light") as page:
        page.goto(shown.url())
        page.get_by_role("button", name="Theme").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.get_by_role("link", name="Groups").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert page.evaluate(PALE, CONTRAST_MIN) == []


def test_what_goes_on_is_put_in_while_somebody_looks(chromium: Browser, shown: Scene) -> None:
    with looking(chromium) as page:
        page.goto(shown.url("/console/topic?name=orders"))
        page.evaluate("window.isTheSamePage = true")
        page.get_by_role("link", name="Groups").focus()
        main = page.get_by_role("main")
        before = main.inner_text()
        expect(main).not_to_have_text(before, timeout=PATIENCE_MS, use_inner_text=True)
        assert page.evaluate("window.isTheSamePage")
        expect(page.get_by_role("link", name="Groups")).to_be_focused()


def test_whoever_reads_is_there_with_their_lag_and_whoever_writes_in_a_transaction(
    chromium: Browser, shown: Scene, tmp_path: Path
) -> None:
    with looking(chromium) as page:
        page.goto(shown.url(f"/console/group?id={GROUP}"))
        expect(page.get_by_role("main")).to_contain_text("reader")
        expect(page.get_by_role("main")).to_contain_text("orders")
        screenshot(page, "console-group", tmp_path)
        page.goto(shown.url("/console/transactions"))
        expect(page.get_by_role("main")).to_contain_text(OPEN)


def test_records_are_shown_and_found_by_a_word_in_them(
    chromium: Browser, shown: Scene, tmp_path: Path
) -> None:
    with looking(chromium) as page:
        page.goto(shown.url("/console/records?topic=shipments&from=beginning"))
        keys = [key for key, _ in SHIPMENTS]
        for key in keys:
            expect(page.get_by_role("main")).to_contain_text(key)
        screenshot(page, "console-records", tmp_path)
        page.get_by_label("Text in them").fill("oslo")
        page.get_by_role("button", name="Look").click()
        expect(page.get_by_role("rowheader")).to_have_count(1)
        expect(page.get_by_role("main")).to_contain_text("Oslo")
        page.get_by_role("rowheader").get_by_role("link").click()
        expect(page.get_by_role("main")).to_contain_text(keys[1])


def test_live_figures_draw_curves_while_somebody_looks(chromium: Browser, shown: Scene) -> None:
    with looking(chromium) as page:
        page.goto(shown.url("/console/live"))
        expect(page.locator("svg polyline").first).to_be_attached(timeout=PATIENCE_MS)


def test_the_cluster_is_watched_while_one_of_its_agents_is_killed_and_then_the_one_that_shows_it(
    chromium: Browser, tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    cluster = FrazilCluster(tmp_path / "killed", etcd, minio, *QUICK_PUTS)
    with cluster, looking(chromium, expected="net::ERR_") as page:
        load = Load(cluster.bootstrap, "orders", per_second=100)
        load.start()
        page.goto(f"http://127.0.0.1:{cluster.agents[0].http_port}/")
        expect(tile(page, "Agents")).to_have_text("3")
        page.evaluate("window.isTheSamePage = true")
        load.wait_for_acks(100, seconds=60)
        cluster.agents[2].child.kill()
        expect(tile(page, "Agents")).to_have_text("2", timeout=PATIENCE_MS)
        load.wait_for_acks(100, seconds=60)
        load.stop()
        cluster.agents[0].child.kill()
        freshness = page.get_by_role("status")
        expect(freshness).to_contain_text("does not answer", timeout=PATIENCE_MS)
        expect(tile(page, "Agents")).to_have_text("2")
        cluster.agents[0].start()
        expect(freshness).to_be_empty(timeout=PATIENCE_MS)
        assert page.evaluate("window.isTheSamePage")
