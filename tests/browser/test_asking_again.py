"""How often a page of the console asks again, by a clock that a test turns. No agent: the test answers."""

import time
from collections.abc import Callable
from importlib.resources import files

import pytest
from playwright.sync_api import Browser, Route

pytestmark = pytest.mark.integration

URL = "http://console.test/page"
PAGE = """<!doctype html><title>t</title><main id="main"></main><span id="freshness"></span>
<button id="theme" hidden></button><script src="/idiomorph.min.js"></script><script src="/console.js"></script>"""


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("told", "pause_ms"),
    [({}, 2_000), ({"Ask-Again-Ms": "400"}, 2_000), ({"Ask-Again-Ms": "7000"}, 7_000)],
)
def test_a_page_asks_every_two_seconds_or_as_seldom_as_its_agent_says(
    chromium: Browser, told: dict[str, str], pause_ms: int
) -> None:
    asked: list[str] = []

    def answer(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        if name == "page":
            asked.append(name)
            route.fulfill(body=PAGE, content_type="text/html", headers=told)
        else:
            body = files("broker.console").joinpath("static", name).read_text()
            route.fulfill(body=body, content_type="text/javascript")

    page = chromium.new_page()
    page.route("http://console.test/**", answer)
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.goto(URL)
    # What the address answered says nothing to a script, so the first question is asked in any case.
    before = page.evaluate("timer")
    with page.expect_response(URL):
        page.clock.run_for(2_000)
    assert len(asked) == 2
    _until(lambda: page.evaluate("timer") != before)
    page.clock.run_for(pause_ms - 100)
    page.wait_for_timeout(200)
    assert len(asked) == 2
    with page.expect_response(URL):
        page.clock.run_for(200)
    assert len(asked) == 3
    page.close()
