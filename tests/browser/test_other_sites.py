"""What a page of another site can do with the browser of an operator who is logged in at an agent: nothing."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import EVIL
from tests.browser.looking import looking
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration

TOKEN = "a-token-of-some-length"
CLUSTER = "the-bank"
RUN = "/jobs/snapshot/run"
"""A post that an operator may make, and that takes no body: what a form can send."""


@dataclass
class OtherSite:
    """Serves a page of somebody else's."""

    html: str = ""
    server: ThreadingHTTPServer = field(init=False)

    def __post_init__(self) -> None:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = site.html.encode() if self.path == "/" else b""
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        # Another site than 127.0.0.1 to a browser, and of the same machine.
        return f"http://localhost:{self.server.server_port}/"


@pytest.fixture(scope="module", params=["with a login", "on loopback"])
def agent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FrazilDev]:
    """One that asks who it is, and one that asks nobody, as `make run` starts it."""
    folder = tmp_path_factory.mktemp("sites")
    flags = [f"cluster.id={CLUSTER}"]
    if request.param == "with a login":
        (folder / "ann").write_text(TOKEN)
        flags += [f"http.tokens=ann:{folder / 'ann'}", "http.roles.operator=User:ann"]
    with FrazilDev(folder, *(word for flag in flags for word in ("--set", flag))) as it:
        yield it
        assert it.stop() == 0


@pytest.fixture
def other() -> Iterator[OtherSite]:
    site = OtherSite()
    thread = threading.Thread(target=site.server.serve_forever)
    thread.start()
    yield site
    site.server.shutdown()
    thread.join(30)
    site.server.server_close()


@pytest.fixture
def operator(chromium: Browser, agent: FrazilDev) -> Iterator[Page]:
    """The browser says the token whenever this agent asks."""
    login = {"username": "token", "password": TOKEN}
    # A browser tells in its console what it was refused.
    with looking(chromium, expected="", http_credentials=login) as page:
        page.goto(url(agent))
        expect(page.get_by_role("main")).to_contain_text("Agents")
        yield page


def url(agent: FrazilDev, path: str = "/") -> str:
    return f"http://127.0.0.1:{agent.http_port}{path}"


def test_the_operator_may_do_what_the_others_try(operator: Page) -> None:
    post = "path => fetch(path, {method: 'POST'}).then(told => told.status)"
    assert operator.evaluate(post, RUN) == 200


def test_a_form_of_another_site_changes_nothing(
    operator: Page, agent: FrazilDev, other: OtherSite
) -> None:
    other.html = f'<form method="post" action="{url(agent, RUN)}"><button>Win</button></form>'
    operator.goto(other.url)
    with operator.expect_navigation() as told:
        operator.get_by_role("button").click()
    answer = told.value
    assert answer is not None
    assert (answer.url, answer.status) == (url(agent, RUN), 403)


def test_a_script_of_another_site_neither_posts_nor_reads(
    operator: Page, agent: FrazilDev, other: OtherSite
) -> None:
    other.html = "<p>cats</p>"
    operator.goto(other.url)
    asked: list[int] = []
    operator.on("response", lambda answer: asked.append(answer.status))
    fetched = """([url, options]) => fetch(url, {credentials: "include", ...options})
        .then((told) => told.text()).catch((error) => `refused: ${error}`)"""
    for path, options in (
        (RUN, {"method": "POST"}),
        ("/", {}),
        ("/console/topics", {}),
        (RUN, {"method": "POST", "headers": {"Content-Type": "application/json"}}),
    ):
        said = operator.evaluate(fetched, [url(agent, path), options])
        assert said.startswith("refused: "), (path, said)
    blind = "url => fetch(url, {mode: 'no-cors', method: 'POST', credentials: 'include'}).catch(() => {})"
    asked.clear()
    operator.evaluate(blind, url(agent, RUN))
    assert 200 not in asked


def test_another_site_has_no_page_of_ours_in_a_frame(
    operator: Page, agent: FrazilDev, other: OtherSite
) -> None:
    other.html = f'<iframe src="{url(agent)}"></iframe>'
    operator.goto(other.url, wait_until="networkidle")
    frames = [frame for frame in operator.frames if frame != operator.main_frame]
    assert len(frames) == 1
    assert CLUSTER not in frames[0].content()


def test_a_window_that_another_site_opened_is_out_of_its_reach(
    operator: Page, agent: FrazilDev, other: OtherSite
) -> None:
    other.html = "<p>cats</p>"
    operator.goto(other.url)
    with operator.context.expect_page() as opened:
        operator.evaluate("url => { window.theirs = window.open(url) }", url(agent))
    opened.value.wait_for_load_state()
    expect(opened.value.get_by_role("main")).to_contain_text("Agents")
    assert operator.evaluate("window.theirs.closed"), "Cross-Origin-Opener-Policy"
    assert opened.value.evaluate("window.opener === null")


def test_a_name_that_was_made_to_lead_here_is_not_let_in(operator: Page, agent: FrazilDev) -> None:
    answer = operator.goto(f"http://{EVIL}:{agent.http_port}/")
    assert answer is not None
    assert answer.status == 421
    assert CLUSTER not in operator.content()
