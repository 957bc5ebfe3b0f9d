"""An aiohttp application behind a port, guarded: what holds for every HTTP listener of an agent.

A request that reaches the application's handlers is let in (`admission`), its body is read, within
the time and the bytes that a body may take, and its connection is counted (`connections`). Refusals
are HTTP errors whose reason is a sentence; the application says them in its own form.

What is wrong with a request, or a client that leaves, is never an error of the agent: of malformed
requests the log has a line now and then, of clients that left none.
"""

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.http import HttpProcessingError
from typing_extensions import override

from broker.calls.requester import Requester
from broker.http.admission import HostNames, RequestHead, refusal
from broker.http.connections import HttpConnections, HttpLimits, SecuredConnection
from broker.http.turns import Turns

HEADER_BYTES_MAX: Final = 8190
"""Of the first line, and of one header."""
HEADERS_MAX: Final = 100
TELL_AGAIN_S: Final = 10.0
"""Malformed requests are told of this often."""
DESCRIPTORS_PART: Final = 16
"""A listener has at most one of so many of the process's descriptors: Kafka's clients, the store and
the log need the others."""

SCRATCH_BYTES: Final = 1 << 16

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Secure = Callable[[SecuredConnection], asyncio.BaseProtocol]
"""Puts TLS between a connection and its socket."""
TURNS: web.AppKey[Turns] = web.AppKey("turns", Turns)
"""Handlers that have waited take another one before they compute."""
LISTENER: web.AppKey["HttpListener"] = web.AppKey("listener")
FORMS_BELOW: web.AppKey[str] = web.AppKey("forms_below", str)
"""Where an application takes forms of its own pages, if it does: paths that begin so."""


class MisdirectedRequest(web.HTTPClientError):
    status_code = 421


class _Lines(logging.Filter):
    """Turns aiohttp's tracebacks about malformed requests into a line now and then."""

    def __init__(self) -> None:
        super().__init__()
        self._told_s = -TELL_AGAIN_S
        self._untold = 0

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ConnectionError):
            return False
        if not _is_malformed(error):
            return True
        self._untold += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s < TELL_AGAIN_S:
            return False
        record.levelno, record.levelname = logging.INFO, "INFO"
        record.msg, record.args = "malformed HTTP requests were refused: %d", (self._untold,)
        record.exc_info = record.exc_text = None
        self._told_s, self._untold = now_s, 0
        return True


def _is_malformed(error: BaseException | None) -> bool:
    return isinstance(error, HttpProcessingError | web.RequestPayloadError)


class HttpListener:
    """`start` is called once, and `aclose` after it, even if it raised."""

    def __init__(self, app: web.Application, *, names: HostNames, limits: HttpLimits) -> None:
        """The application's own middlewares make answers of the errors that are raised here."""
        self._names = names
        self._limits = limits
        app.middlewares.append(self._guard)
        app[TURNS] = Turns()
        app[LISTENER] = self
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=1.0,
            logger=_logger(),
            auto_decompress=False,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            lingering_time=1.0,
        )
        self.connections: HttpConnections

    async def start(self, secure: Secure | None = None) -> Callable[[], asyncio.BaseProtocol]:
        """Be ready for connections; what makes their protocols. `secure`: None without TLS."""
        await self._runner.setup()
        protocols = self._runner.server
        assert protocols is not None
        protocols.request_handler = partial(_expected, protocols.request_handler)
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = self._limits.connections_max
        if descriptors != resource.RLIM_INFINITY:
            room = max(1, min(room, descriptors // DESCRIPTORS_PART))
        self.connections = HttpConnections(replace(self._limits, connections_max=room), protocols)
        return self._factory(secure)

    def _factory(self, secure: Secure | None) -> Callable[[], asyncio.BaseProtocol]:
        if secure is None:
            return self.connections.factory
        scratch = memoryview(bytearray(SCRATCH_BYTES))
        return lambda: secure(SecuredConnection(self.connections.factory(), scratch))

    def requester(self, request: web.Request) -> Requester:
        """Who asks, as far as the connection tells."""
        connection = self.connections.of(request.transport)
        return Requester() if connection is None else connection.requester

    async def aclose(self) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = self.connections.of(request.transport)
        if connection is None:
            return _nobody_listens()
        connection.begin()
        try:
            self._let_in(request)
            await self._read_body(request)
            connection.serve()
            await request.app[TURNS].take()
            return await handler(request)
        except (RecursionError, OverflowError) as error:
            # Only what was sent is that deep, or has numbers like Infinity.
            said = "it is nested too deeply, or has numbers that are too large"
            raise web.HTTPBadRequest(reason=said) from error
        except ConnectionError:
            if self.connections.of(request.transport) is not None:
                raise
            return _nobody_listens()
        finally:
            connection.end()

    def _let_in(self, request: web.Request) -> None:
        headers, forms = request.headers, request.app.get(FORMS_BELOW)
        head = RequestHead(
            method=request.method,
            host=headers.get("Host"),
            origin=headers.get("Origin"),
            site=headers.get("Sec-Fetch-Site"),
            has_body=request.body_exists,
            content_type=headers.get("Content-Type"),
            content_encoding=headers.get("Content-Encoding"),
            takes_forms=forms is not None and request.path.startswith(forms),
        )
        refused = refusal(head, self._names)
        if refused is not None:
            raise _REFUSALS[refused.status](reason=refused.reason)

    async def _read_body(self, request: web.Request) -> None:
        """Have it in memory; who asks the request for it then need not wait."""
        if not request.body_exists:
            return
        try:
            async with asyncio.timeout(self._limits.body_s_max):
                await request.read()
        except TimeoutError as error:
            said = f"the body did not come within {self._limits.body_s_max:.0f} s"
            raise web.HTTPRequestTimeout(reason=said) from error
        except web.RequestPayloadError as error:
            raise web.HTTPBadRequest(reason="the body cannot be read: it is malformed") from error


_REFUSALS: Final[dict[int, type[web.HTTPClientError]]] = {
    403: web.HTTPForbidden,
    415: web.HTTPUnsupportedMediaType,
    421: MisdirectedRequest,
}


async def _expected(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], request: web.BaseRequest
) -> web.StreamResponse:
    """Refuses what nobody can meet. aiohttp would repeat it in its answer, and fail where it is no text."""
    expect = request.headers.get("Expect", "")
    if expect and expect.lower() != "100-continue":
        said = {"error_code": 417, "message": "Expect: 100-continue is all that can be expected"}
        return web.json_response(said | {"error": said["message"]}, status=417)
    return await handle(request)


def requester_of(request: web.Request) -> Requester:
    """Who asks, as far as the connection tells: by a certificate, or somebody at an address."""
    return request.app[LISTENER].requester(request)


def _nobody_listens() -> web.Response:
    """For a client that has gone; nobody reads it."""
    return web.Response(status=400)


def _logger() -> logging.Logger:
    """aiohttp's complaints about requests."""
    logger = logging.getLogger("broker.http")
    if not any(isinstance(each, _Lines) for each in logger.filters):
        logger.addFilter(_Lines())
    return logger
