"""The S3 adapter on a slow way: what is steady ends well, what hangs is given up."""

import asyncio
from contextlib import aclosing, suppress

import pytest

from storage.stores import retry_policy, s3
from storage.stores.object_store import StoreUnavailableError
from storage.stores.s3 import S3Store
from tests.storage.stores.fake_s3 import Answer, FakeS3, Request, fake

pytestmark = pytest.mark.real_loop

BODY = bytes(1 << 20)
ANSWER_S = 0.3
MOVING_S = 1.5
"""What the adapter grants such a body, besides."""


@pytest.fixture(autouse=True)
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "RETRIES_MAX", 0)
    monkeypatch.setattr(s3, "REQUEST_SECONDS_MAX", ANSWER_S)
    monkeypatch.setattr(retry_policy, "BYTES_PER_SECOND_MIN", len(BODY) / MOVING_S)


def answer(request: Request) -> Answer:
    if request.method == "PUT":
        return Answer()
    size = len(BODY)
    ranged = (("content-range", f"bytes 0-{size - 1}/{size}"),)
    return Answer(206, BODY, ranged) if "range" in request.headers else Answer(200, BODY)


async def test_bytes_that_move_slowly_and_steadily_arrive() -> None:
    async with (
        FakeS3(answer, body_s=2 * ANSWER_S) as server,
        aclosing(S3Store(fake(server.url))) as store,
    ):
        await store.put_new("a", [BODY])
        assert await store.get("a") == BODY
        assert await store.get_range("a", 0, len(BODY)) == BODY
    assert [request.method for request in server.requests] == ["PUT", "GET", "GET"]


async def test_bytes_that_move_more_slowly_than_any_way_that_lives_are_given_up() -> None:
    async with (
        FakeS3(answer, body_s=3 * (ANSWER_S + MOVING_S)) as server,
        aclosing(S3Store(fake(server.url))) as store,
    ):
        calls = [store.put_new("a", [BODY]), store.get("a"), store.get_range("a", 0, len(BODY))]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, StoreUnavailableError)
        assert "did not end within 2 s" in str(outcome)


@pytest.mark.parametrize("status", [200, 206])
async def test_an_answer_that_stops_in_the_middle_is_given_up_however_long_it_is(
    status: int,
) -> None:
    size = len(BODY)
    writers: list[asyncio.StreamWriter] = []

    async def stop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        head = f'HTTP/1.1 {status} Said\r\ncontent-length: {size}\r\netag: "tag"\r\n'
        head += f"content-range: bytes 0-{size - 1}/{size}\r\n" if status == 206 else ""
        head += "last-modified: Sat, 21 Nov 2026 10:00:00 GMT\r\n\r\n"
        writer.write(head.encode() + BODY[:1000])

    server = await asyncio.start_server(stop, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop = asyncio.get_running_loop()
    async with server, aclosing(S3Store(fake(url))) as store:
        begun_s = loop.time()
        with pytest.raises(StoreUnavailableError):
            await (store.get("a") if status == 200 else store.get_range("a", 0, size))
        assert loop.time() - begun_s < ANSWER_S + MOVING_S / 2
    for writer in writers:
        writer.close()


async def test_a_put_that_hangs_is_ended_and_its_connection_closed() -> None:
    closed = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass
        closed.set()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop = asyncio.get_running_loop()
    async with server, aclosing(S3Store(fake(url))) as store:
        begun_s = loop.time()
        with pytest.raises(StoreUnavailableError, match="did not end"):
            await store.put_new("a", [b"x"])
        assert loop.time() - begun_s < 10 * ANSWER_S
        await asyncio.wait_for(closed.wait(), timeout=10)
