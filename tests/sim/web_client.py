"""One HTTP request in a simulated world, and its answer. A connection for each."""

import asyncio
import json
from typing import Any

from typing_extensions import override

from tests.kit.loop import SimLoop
from tests.sim.client import Address, LostError

TIMEOUT_S = 20.0
TOKEN = "a-token-of-simulated-agents"
"""Of their admin listeners, which others than their own machine can reach."""


class _Answer(asyncio.Protocol):
    def __init__(self, loop: SimLoop) -> None:
        self.done: asyncio.Future[tuple[int, Any]] = loop.create_future()
        # Who asked may be gone when it fails.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._data = b""

    @override
    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end or self.done.done():
            return
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ") for line in lines)}
        if len(body) >= int(headers["content-length"]):
            self.done.set_result((int(status.split(" ")[1]), json.loads(body)))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(LostError("the connection was lost"))


async def ask(
    loop: SimLoop,
    address: Address,
    method: str,
    path: str,
    body: object = None,
    *,
    late_s: float = 0.0,
) -> tuple[int, Any]:
    """Status and JSON of the answer. Raises LostError. `late_s`: how long the request is held up
    on its way, whoever sent it may have gone meanwhile."""
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\n"
        f"Authorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    try:
        made = await loop.create_connection(lambda: _Answer(loop), *address)
    except OSError as error:
        raise LostError(str(error)) from error
    transport: Any = made[0]
    answer = made[1]
    if late_s:
        transport.hold_back(late_s)
    transport.write(head.encode() + data)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await answer.done
    except TimeoutError:
        raise LostError("the request timed out") from None
    finally:
        transport.close()
