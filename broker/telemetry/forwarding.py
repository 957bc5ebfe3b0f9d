"""Payloads of clients, sent on to a collector of OpenTelemetry over HTTP (OTLP/HTTP, Protobuf).

What holds:

* A payload is sent as it came, but inflated, and with what is known of its client among the attributes of
  its resources: a collector could not tell clients apart otherwise.
* The queue has `QUEUE_BYTES_MAX`; what does not fit, and what the collector does not take at once, is
  dropped and counted. Nobody waits for the collector, and it is asked for one thing at a time.
* That it is away is said once, and that it is back.
* Certificates to trust are read when the first payload leaves, and again behind each one that did not arrive.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

QUEUE_BYTES_MAX: Final = 8 << 20
SEND_S_MAX: Final = 10.0
PATH: Final = "/v1/metrics"
"""Of an endpoint that has none, as OpenTelemetry's exporters have it."""
_TYPE: Final = {"Content-Type": "application/x-protobuf"}


class Forwarder:
    """To one endpoint; `run` sends."""

    def __init__(
        self, endpoint: str, headers: Mapping[str, str], *, trusted: str | None = None
    ) -> None:
        """`trusted`: a file of certificates (PEM); None: those that the system trusts."""
        scheme, _, rest = endpoint.partition("://")
        host, _, path = rest.partition("/")
        self._url = f"{scheme}://{host}{f'/{path}' if path else PATH}"
        self._headers = {**headers, **_TYPE}
        self._trusted = trusted
        self._context: ssl.SSLContext | None = None
        self._queue: deque[bytes] = deque()
        self._queued = asyncio.Event()
        self._is_away = False
        self.bytes_queued = 0
        self.counts: dict[str, int] = {}
        """Payloads by what became of them: "sent", "failed", "full" (of the queue)."""

    def offer(self, payload: bytes) -> None:
        """Send it, or drop it when too much waits already."""
        if self.bytes_queued + len(payload) > QUEUE_BYTES_MAX:
            self._count("full")
            return
        self._queue.append(payload)
        self.bytes_queued += len(payload)
        self._queued.set()

    async def run(self) -> None:
        """Send what is offered, for ever."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=SEND_S_MAX)
        async with aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session:
            while True:
                await self._queued.wait()
                payload = self._queue.popleft()
                self.bytes_queued -= len(payload)
                if not self._queue:
                    self._queued.clear()
                await self._send(session, payload)

    async def _send(self, session: "aiohttp.ClientSession", payload: bytes) -> None:
        from aiohttp import ClientError

        trouble = None
        try:
            if self._context is None:
                self._context = await asyncio.to_thread(
                    ssl.create_default_context, cafile=self._trusted
                )
            async with session.post(
                self._url, data=payload, allow_redirects=False, ssl=self._context
            ) as answer:
                if not answer.ok or answer.status >= 300:
                    trouble = f"it answers {answer.status}"
        # OSError: TimeoutError, too. ValueError: of a name that can be nobody's, two dots in a row say.
        except (OSError, ClientError, ValueError) as error:
            trouble = str(error) or type(error).__name__
        self._count("sent" if trouble is None else "failed")
        if trouble is not None and not self._is_away:
            logger.warning("metrics of clients are dropped, %s takes none: %s", self._url, trouble)
        elif trouble is None and self._is_away:
            logger.info("%s takes metrics of clients again", self._url)
        if trouble is not None:
            self._context = None
        self._is_away = trouble is not None

    def _count(self, outcome: str) -> None:
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
