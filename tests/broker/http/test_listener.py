"""A guarded HTTP listener over sockets, on both applications of an agent."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from broker.doors import Door
from broker.http.admission import HostNames
from broker.http.connections import HttpLimits
from broker.http.listener import HttpListener
from broker.http.turns import SharedAnswer, Turns
from tests.broker.registry.client import RECORD, registry_of
from tests.kit.sockets import Place, agent_of

pytestmark = pytest.mark.real_loop

LIMITS = HttpLimits(connections_max=10, head_s_max=0.2, body_s_max=0.2)


@asynccontextmanager
async def listening(limits: HttpLimits = LIMITS) -> AsyncIterator[int]:
    """The port of a listener whose application echoes bodies."""

    async def echo(request: web.Request) -> web.StreamResponse:
        return web.Response(body=await request.read())

    async def fail(_request: web.Request) -> web.StreamResponse:
        raise ConnectionError("the store is away")

    app = web.Application(client_max_size=1000)
    app.router.add_post("/", echo)
    app.router.add_get("/fail", fail)
    listener = HttpListener(app, names=HostNames([]), limits=limits)
    door = Door(backlog=100, setting="http")
    _, port = await door.bind("127.0.0.1", 0)
    try:
        await door.open(await listener.start())
        yield port
    finally:
        door.close()
        await listener.aclose()


async def told(port: int, *parts: bytes) -> bytes:
    """All that comes in answer, until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def post(body: bytes, *headers: str, length: int | None = None) -> bytes:
    head = ["POST / HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    head.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*head, "", ""]).encode() + body


async def test_a_request_is_served() -> None:
    async with listening() as port:
        assert (await told(port, post(b"{}"))).endswith(b"\r\n\r\n{}")


async def test_a_head_that_is_not_finished_is_not_waited_for() -> None:
    async with listening() as port:
        assert await told(port, b"POST / HTTP/1.1\r\nHost: localhost\r\n") == b""


async def test_a_body_that_does_not_come_is_refused_in_time() -> None:
    async with listening() as port:
        assert (await told(port, post(b"{", length=10))).startswith(b"HTTP/1.1 408 ")


async def test_a_body_over_the_bound_is_refused_before_it_is_all_there() -> None:
    async with listening() as port:
        assert (await told(port, post(bytes(2000), length=10**9))).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "text",
    [
        b"no HTTP at all\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: \xff\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
    ids=range(8),
)
async def test_what_is_malformed_is_refused_without_a_traceback(
    text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as port:
        assert (await told(port, text)).startswith(b"HTTP/1.")
    assert not [record for record in caplog.records if record.exc_info]
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_an_expectation_that_nobody_can_meet_is_refused_whatever_its_bytes() -> None:
    async with listening() as port:
        for said in (b"\xff", b"200-ok", b"100-continue, \xf0"):
            text = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: %b\r\n\r\n"
            assert (await told(port, text % said)).startswith(b"HTTP/1.1 417 ")
        text = post(b"{}", "Expect: 100-continue")
        assert (await told(port, text)).endswith(b"\r\n\r\n{}")


async def test_malformed_requests_are_told_of_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with listening() as port:
        for _ in range(20):
            await told(port, b"POST / HTTP/1.1\r\nbroken\r\n\r\n")
    assert len([each for each in caplog.records if "malformed HTTP" in each.message]) <= 1


async def test_a_client_that_leaves_in_its_body_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(HttpLimits(connections_max=10)) as port:
        for text in (post(b"{", length=10), post(b"{}", length=2)):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        await told(port, post(b"{}"))
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_an_error_of_the_agents_own_is_not_taken_for_a_client_that_left() -> None:
    async with listening() as port:
        answer = await told(port, b"GET /fail HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 500 ")


PAGES = [
    ({"Host": "evil.example"}, 421),
    ({"Origin": "http://evil.example"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ({"Content-Type": "application/json; charset=zlib"}, 415),
    ({"Content-Encoding": "gzip"}, 415),
]


@pytest.mark.parametrize(("headers", "status"), PAGES, ids=range(len(PAGES)))
async def test_a_web_page_registers_no_schema(headers: dict[str, str], status: int) -> None:
    async with registry_of(Place()) as registry:
        body = {"schema": RECORD}
        told = await registry.ask("POST", "/subjects/s/versions", body, headers=headers)
        assert (told[0], told[1]["error_code"]) == (status, status)
        assert await registry.get("/subjects") == []


@pytest.mark.parametrize(("headers", "status"), PAGES, ids=range(len(PAGES)))
async def test_a_web_page_sets_no_pin(headers: dict[str, str], status: int) -> None:
    async with agent_of(Place()) as running:
        await running.until(ready=True)
        text = json.dumps({"name": "p", "lifetime_ms": 1000})
        headers = {"Content-Type": "application/json"} | headers
        told, body = await running.http("POST", "/export/pin", data=text, headers=headers)
        assert told == status
        assert body["error"]
        assert len(running.agent.node.log_client.machine.pins) == 0


async def test_names_that_are_set_are_let_in() -> None:
    async with registry_of(Place(), "http.hosts=frazil.example.com,*.example.org") as registry:
        for name in ("frazil.example.com", "a.example.org"):
            assert (await registry.ask("GET", "/subjects", headers={"Host": name}))[0] == 200
        assert (await registry.ask("GET", "/subjects", headers={"Host": "evil.example"}))[0] == 421


ADMIN = [
    ("GET", f"/log?after={'9' * 5000}", None),
    ("GET", f"/topics/t?from={'9' * 5000}", None),
    ("GET", "/export/plan?topic=t&partition=99999999999999999999", None),
    *(("POST", path, "[" * 100_000) for path in ("/export/plan", "/export/pin")),
    ("POST", "/export/progress", '{"a":' * 50_000),
    ("POST", "/export/plan", '{"topic": "t", "offsets": {"0": Infinity}}'),
    ("POST", "/export/plan", '{"topic": "t", "offsets": {}, "others": 1e999}'),
    ("POST", "/export/progress", '{"topic": "t", "topic_id": "a", "offsets": {"0": Infinity}}'),
]


@pytest.mark.parametrize(("method", "path", "body"), ADMIN, ids=range(len(ADMIN)))
async def test_numbers_and_nesting_that_make_no_sense_are_the_clients_mistake(
    method: str, path: str, body: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with agent_of(Place()) as running:
        await running.until(ready=True)
        status, answer = await running.http(method, path, data=body)
        assert (status, bool(answer["error"])) == (400, True)
    assert not [record for record in caplog.records if record.exc_info]


async def test_of_many_requests_at_once_one_computes_in_an_iteration_of_the_loop() -> None:
    turns, iterations = Turns(), 0
    computed: list[int] = []

    async def request() -> None:
        await turns.take()
        computed.append(iterations)

    waiting = [asyncio.ensure_future(request()) for _ in range(20)]
    while not all(each.done() for each in waiting):
        iterations += 1
        await asyncio.sleep(0)
    assert len(set(computed)) == 20
    assert computed == sorted(computed)


async def test_handlers_wait_for_their_turn_and_so_do_all_that_waited_at_a_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = 0
    take = Turns.take

    async def counted(self: Turns) -> None:
        nonlocal taken
        taken += 1
        await take(self)

    monkeypatch.setattr(Turns, "take", counted)
    async with listening() as port:
        await told(port, post(b"{}"))
    assert taken == 1
    async with registry_of(Place()) as registry:
        before = taken
        assert await registry.get("/subjects") == []
        assert taken == before + 2


async def test_what_streams_is_not_asked_for_by_head_whose_answers_have_no_body() -> None:
    async with registry_of(Place()) as registry:
        bound = registry.running.agent.listening()
        for place, path in (("registry", "/schemas"), ("http", "/log?after=0")):
            url = f"http://127.0.0.1:{bound[place][1]}{path}"
            async with registry.session.head(url) as answer:
                assert answer.status == 405


async def test_who_asks_before_an_answer_is_made_shares_it_and_who_asks_after_gets_another() -> (
    None
):
    shared, made = SharedAnswer(0.01), 0

    async def make() -> bytes:
        nonlocal made
        made += 1
        return b"%d" % made

    assert await asyncio.gather(*(shared.get(make) for _ in range(50))) == [b"1"] * 50
    assert await shared.get(make) == b"2"
    gone = asyncio.ensure_future(shared.get(make))
    await asyncio.sleep(0)
    other = asyncio.ensure_future(shared.get(make))
    await asyncio.sleep(0)
    gone.cancel()
    assert await other == b"3"
