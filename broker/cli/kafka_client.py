"""A small Kafka client for Frazil's own tools, in neutral shapes: ask an agent, get its answer.

Each request goes out in the newest version that both sides know (ApiVersions). A connection has
one request under way at a time. Everything ends at the client's deadline; no agent gets more
than a part of that time, so that one that is silent leaves some for the others. What may pass by
itself (an agent that is gone, a coordinator that moves) is a `PassingError`, and `until_done`
tries again. It speaks to any cluster that speaks Kafka's protocol.

Leaves out: what settings say of TLS and logins (`broker.client`), several requests in flight, records.
"""

import asyncio
import contextlib
import os
import re
import secrets
import ssl
import struct
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from typing_extensions import override

from broker.client import tls_failures
from broker.sasl.bearer_messages import OAUTHBEARER
from broker.sasl.login_failures import LoginError, TokenError
from protocol import apis, messages
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.fault_codes import FaultCode, FaultError
from protocol.framing import (
    FRAME_BYTES_MAX_DEFAULT,
    parse_response_header,
    request_frame,
)

if TYPE_CHECKING:
    from broker.client.bearer_tokens import BearerTokens
    from broker.sasl.client import ClientExchange, Login

    AnyLogin = Login | BearerTokens

T = TypeVar("T")

CLIENT_ID: Final = "frazil"
FIRST_VERSION: Final = 3
"""Of ApiVersions, asked before anything is known; every server of the last years has it."""
RETRY_S: Final = 0.2
ASK_SHARE: Final = 3
"""One request may take a third of the time there is."""
GOODBYE_S: Final = 2.0
"""How long is waited for the end of TLS when a connection is closed."""

GROUP: Final = 0
TRANSACTION: Final = 1
"""Types of coordinators."""
_COORDINATED: Final = {GROUP: "group", TRANSACTION: "transactional id"}

_TLS_ALERT: Final = b"\x15\x03"
"""What a listener of TLS says to who does not speak it; as a length it would be 336 MiB and more."""
_NO_TLS: Final = "ended TLS; does it speak it? (security.protocol)"

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")

PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors that go away when one looks for the right agent again, or waits."""


class ClientError(FaultError):
    """The cluster cannot be asked; the sentence says why, and what to do where that is known."""


class PassingError(ClientError):
    """As its parent, but it may work when tried again."""


class Address(NamedTuple):
    host: str
    port: int

    @override
    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def addresses(text: str) -> tuple[Address, ...]:
    """The addresses in `host:port,host:port`. Raises ValueError with a sentence."""
    found = []
    for item in text.split(","):
        match = _ADDRESS.fullmatch(item.strip())
        if match is None or not 0 < int(match["port"]) < 1 << 16:
            raise ValueError(f'"{item.strip()}" is not an address (example: localhost:9092)')
        found.append(Address(match["host"].strip("[]"), int(match["port"])))
    return tuple(found)


def check(error_code: int, message: str = "") -> None:
    """Nothing for NONE. Raises PassingError for what may pass, else KafkaError."""
    if error_code == ErrorCode.NONE:
        return
    try:
        code = ErrorCode(error_code)
    except ValueError:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        message = message or f"an error of number {error_code}, which this tool does not know"
    if code in PASSING:
        raise PassingError(f"{message or 'the cluster is not ready for it'} ({code.name})")
    raise KafkaError(code, message)


class _Connection:
    """To one agent; opened by the first request, and again after a failure."""

    def __init__(
        self, address: Address, login: "AnyLogin | None", tls: ssl.SSLContext | None
    ) -> None:
        self.address = address
        self._login = login
        self._tls = tls
        self.is_open = False
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._ranges: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0

    async def ask(self, key: int, request: object, versions: tuple[int, int], *, end: float) -> Any:
        """The answer, before `end` (the loop's time). Raises PassingError, ClientError."""
        try:
            async with asyncio.timeout_at(end), self._lock:
                if not self.is_open:
                    await self._open()
                return await self._exchange(key, self._version(key, versions), request)
        except TimeoutError as error:
            raise PassingError(f"{self.address} does not answer") from error
        except ssl.SSLError as error:
            tls = FaultCode.TLS_FAILED
            if tls_failures.is_passing(error):
                raise PassingError(f"{self.address} {_NO_TLS}", fault=tls) from error
            raise ClientError(
                f"{self.address}: {tls_failures.sentence(error)}", fault=tls
            ) from error
        except OSError as error:
            reason = _reason(error)
            if self._tls is not None and not reason:
                # As asyncio tells of a handshake that the other side has ended.
                text = f"{self.address} {_NO_TLS}"
                raise PassingError(text, fault=FaultCode.TLS_FAILED) from error
            raise PassingError(f"{self.address} cannot be reached ({reason})") from error
        except asyncio.IncompleteReadError as error:
            raise PassingError(
                f"{self.address} closed the connection instead of answering"
                " (is it a Kafka listener without TLS? If not, or to log in: --command-config)"
            ) from error
        except LoginError as error:
            raise ClientError(f"{self.address}: {error}", fault=error.fault) from error
        except TokenError as error:
            raise (PassingError if error.may_pass else ClientError)(str(error)) from error
        except ProtocolError as error:
            raise ClientError(f"{self.address} does not speak Kafka's protocol: {error}") from error

    async def _open(self) -> None:
        self._streams = await self._connected()
        asked = messages.ApiVersionsRequest(
            client_software_name=CLIENT_ID, client_software_version="0"
        )
        answer = await self._exchange(apis.API_VERSIONS, FIRST_VERSION, asked)
        self._ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        if self._login is not None:
            logged_in = False
            try:
                await self._log_in(self._login)
                logged_in = True
            finally:
                if not logged_in:
                    self.is_open = False
                    self._streams[1].transport.abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.address
        if self._tls is None:
            return await asyncio.open_connection(host, port)
        return await asyncio.open_connection(
            host, port, ssl=self._tls, server_hostname=host, ssl_shutdown_timeout=GOODBYE_S
        )

    async def _log_in(self, login: "AnyLogin") -> None:
        """Raises KafkaError with the cluster's own words, LoginError, and TokenError."""
        exchange = await _exchange_of(login)
        wanted = messages.SaslHandshakeRequest(mechanism=login.mechanism)
        answer = await self._exchange(apis.SASL_HANDSHAKE, 1, wanted)
        offered = ", ".join(answer.mechanisms) or "no SASL"
        check(answer.error_code, f"{self.address} offers {offered} (sasl.mechanism)")
        is_bearers = login.mechanism == OAUTHBEARER
        hint = "" if is_bearers else " (sasl.jaas.config has user and password)"
        message: bytes | None = exchange.begin()
        while message is not None:
            token = messages.SaslAuthenticateRequest(auth_bytes=message)
            answer = await self._exchange(apis.SASL_AUTHENTICATE, 1, token)
            check(answer.error_code, f"{answer.error_message or 'the login'}{hint}")
            message = exchange.respond(answer.auth_bytes)

    def _version(self, key: int, versions: tuple[int, int]) -> int:
        oldest, newest = self._ranges.get(key, (0, -1))
        version = min(newest, versions[1])
        if version < max(oldest, versions[0]):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} serves {apis.APIS[key].name} in no version that this tool knows",
            )
        return version

    async def _exchange(self, key: int, version: int, request: object) -> Any:
        assert self._streams is not None
        reader, writer = self._streams
        self._correlation_id += 1
        body = messages.encode_request(key, version, request)
        # Closed until the whole answer is here: a late one must not be taken for another's.
        self.is_open = False
        try:
            writer.write(request_frame(key, version, self._correlation_id, CLIENT_ID, body))
            begin = await reader.readexactly(4)
            if begin.startswith(_TLS_ALERT):
                raise ClientError(
                    f"{self.address} speaks TLS: security.protocol, in the file of --command-config, is"
                    " SSL or SASL_SSL"
                )
            (length,) = struct.unpack(">i", begin)
            if not 4 <= length <= FRAME_BYTES_MAX_DEFAULT:
                raise ProtocolError(f"an answer of {length} bytes")
            answered, rest = parse_response_header(key, version, await reader.readexactly(length))
            if answered != self._correlation_id:
                raise ProtocolError("an answer to something else")
            answer = messages.decode_response(key, version, rest)
            self.is_open = True
            return answer
        finally:
            if not self.is_open:
                # Nobody waits for TLS to take its leave: another connection may follow at once.
                writer.transport.abort()

    async def close(self) -> None:
        self.is_open = False
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(OSError):
                await self._streams[1].wait_closed()


async def _exchange_of(login: "AnyLogin") -> "ClientExchange":
    """Imported here: most clients need not log in."""
    from broker.client.bearer_tokens import BearerTokens
    from broker.sasl.client import exchange_of

    if isinstance(login, BearerTokens):
        return await login.exchange()
    return exchange_of(login, nonce=secrets.token_hex(16))


def _reason(error: OSError) -> str:
    """The system's own words: asyncio says "Connect call failed", once for every address."""
    number = re.search(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(number[1])) if number else error.strerror or str(error)


class KafkaClient:
    """One cluster, as a tool sees it. To be used in `async with`, within one event loop."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        timeout_ms: int,
        login: "AnyLogin | None" = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        assert bootstrap
        self.brokers: dict[int, Address] = {}
        """The agents by node id, as of the last `refresh`."""
        self._bootstrap = tuple(bootstrap)
        self._login = login
        self._tls = tls
        self._timeout_s = timeout_ms / 1000
        self._deadline = 0.0
        self._connections: dict[Address, _Connection] = {}

    async def __aenter__(self) -> Self:
        """The time runs from here on. Raises ClientError when no agent answers."""
        self._deadline = asyncio.get_running_loop().time() + self._timeout_s
        async with contextlib.AsyncExitStack() as unless_it_is_entered:
            unless_it_is_entered.push_async_callback(self._close)
            await self.refresh()
            unless_it_is_entered.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        for connection in self._connections.values():
            await connection.close()

    @property
    def request_timeout_ms(self) -> int:
        """How long a server may take for a request that says so: a little less than `ask` waits."""
        return max(int(self._timeout_s * 900 / ASK_SHARE), 1)

    async def ask(
        self,
        key: int,
        request: object,
        *,
        node: int | None = None,
        oldest: int = 0,
        newest: int | None = None,
    ) -> Any:
        """The answer of an agent, of any one when no `node` is given, as a neutral shape.

        `oldest` and `newest` narrow the versions that may be used. Raises PassingError,
        ClientError, and KafkaError (UNSUPPORTED_VERSION) when there is no version in common.
        """
        api = apis.APIS[key]
        versions = (
            max(oldest, api.min_version),
            api.max_version if newest is None else min(newest, api.max_version),
        )
        now = asyncio.get_running_loop().time()
        end = min(self._deadline, now + self._timeout_s / ASK_SHARE)
        if node is not None:
            if node not in self.brokers:
                raise PassingError(f"agent {node} is gone")
            return await self._connection(self.brokers[node]).ask(key, request, versions, end=end)
        reasons, fault = [], FaultCode.CLUSTER_UNREACHABLE
        for connection in self._anyone():
            try:
                return await connection.ask(key, request, versions, end=end)
            except PassingError as error:
                reasons.append(str(error))
                fault = error.fault or fault
                now = asyncio.get_running_loop().time()
                end = min(self._deadline, now + self._timeout_s / ASK_SHARE)
        raise PassingError(
            f"no agent answers: {'; '.join(reasons)}: is one running? (--bootstrap says where)",
            fault=fault,
        )

    def _connection(self, address: Address) -> _Connection:
        return self._connections.setdefault(address, _Connection(address, self._login, self._tls))

    def _anyone(self) -> list[_Connection]:
        """Connections to try in turn, open ones first."""
        known = dict.fromkeys([*self._bootstrap, *self.brokers.values()])
        return sorted(map(self._connection, known), key=lambda connection: not connection.is_open)

    async def refresh(self, topics: Collection[str] | None = ()) -> messages.MetadataResponse:
        """Learn who the agents are; the answer also tells of the topics (None: of all)."""
        asked = None
        if topics is not None:
            asked = [messages.MetadataRequestTopic(name=name) for name in topics]
        request = messages.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer: messages.MetadataResponse = await self.ask(apis.METADATA, request, oldest=1)
        self.brokers = {row.node_id: Address(row.host, row.port) for row in answer.brokers}
        return answer

    async def find_coordinator(self, key: str, *, key_type: int = GROUP) -> int:
        """Node id of the coordinator of a group, or whatever. Raises as `ask` and `check`."""
        request = messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        answer = await self.ask(apis.FIND_COORDINATOR, request, oldest=4)
        (found,) = answer.coordinators
        check(found.error_code, f'the coordinator of {_COORDINATED[key_type]} "{key}" is not known')
        self.brokers[found.node_id] = Address(found.host, found.port)
        return int(found.node_id)

    async def until_done(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` returns, tried again after a PassingError with the agents refreshed.

        Raises ClientError with the last reason when the time is up, else what `attempt` raises.
        """
        loop = asyncio.get_running_loop()
        again = False
        while True:
            try:
                if again:
                    await self.refresh()
                return await attempt()
            except PassingError as error:
                again = True
                if loop.time() + RETRY_S >= self._deadline:
                    raise ClientError(
                        f"{error}; tried for {self._timeout_s:g} s (--timeout-ms gives it longer)"
                    ) from error
            await asyncio.sleep(RETRY_S)
