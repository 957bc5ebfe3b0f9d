"""A server that speaks just enough HTTP to be a bad S3: it answers as the test tells it to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, Self

from storage.stores.s3 import S3Address, S3Store

PIECES = 30
"""A body on a slow way comes in so many."""


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    """Close the connection in the middle of the body."""


HANG_UP = Answer(0)
"""Read the request, then close the connection."""


def error(status: int, code: str, message: str = "told so") -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, body.encode(), (("content-type", "application/xml"),))


class FakeS3:
    """Records requests and answers them by a function."""

    def __init__(self, answer: Callable[[Request], Answer], *, body_s: float = 0.0) -> None:
        """`body_s`: what a body takes on its way, however long it is."""
        self._answer = answer
        self._body_s = body_s
        self.requests: list[Request] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *rows = head.rstrip().split("\r\n")
                method, path, _ = line.split(" ")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (r.partition(":") for r in rows)
                }
                body = b""
                for length in _pieces(int(headers.get("content-length", 0))):
                    await asyncio.sleep(self._body_s / PIECES)
                    body += await reader.readexactly(length)
                request = Request(method, path, headers, body)
                self.requests.append(request)
                answer = self._answer(request)
                if answer == HANG_UP:
                    return
                head, body = _encoded(answer)
                writer.write(head)
                for length in _pieces(len(body)):
                    await asyncio.sleep(self._body_s / PIECES)
                    writer.write(body[:length])
                    body = body[length:]
                    await writer.drain()
                if answer.cut:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


def _pieces(length: int) -> list[int]:
    size = max(1, -(-length // PIECES))
    return [min(size, length - at) for at in range(0, length, size)]


def _encoded(answer: Answer) -> tuple[bytes, bytes]:
    headers = {
        "content-length": str(len(answer.body)),
        "etag": '"tag"',
        "last-modified": "Sat, 21 Nov 2026 10:00:00 GMT",
    } | dict(answer.headers)
    rows = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    body = answer.body[: len(answer.body) // 2] if answer.cut else answer.body
    return f"HTTP/1.1 {answer.status} Said\r\n{rows}\r\n".encode(), body


@contextlib.asynccontextmanager
async def against(
    answer: Callable[[Request], Answer],
) -> AsyncIterator[tuple[S3Store, list[Request]]]:
    """A store on a server that answers so, and the requests it got."""
    async with FakeS3(answer) as server, aclosing(S3Store(fake(server.url))) as store:
        yield store, server.requests


def fake(endpoint: str, **more: Any) -> S3Address:
    keys = {"access_key": "key", "secret_key": "hidden-one"}
    return S3Address("bucket", endpoint=endpoint, **keys, **more)
