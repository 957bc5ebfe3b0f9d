"""A thin client of etcd's v3 API over grpc.aio: what the metadata log needs, with own failover.

One channel per endpoint. A try has a deadline of a second, then the next endpoint is asked; a call
goes on until its own deadline and raises LogUnavailableError. So every call may be carried out
more than once: callers send only what may be repeated. (A gRPC channel over several addresses
stays with a frozen member for minutes.) A watch that hears nothing, though it asks for progress
all the time, is given up.

All endpoints must belong to one etcd cluster, whose revision never goes back: an answer of another
cluster, or of an older revision than was seen before it was asked for, raises LogReplacedError.
(A backup that is restored under the old names has the old cluster's id.) A member may be behind the
others: a call is then answered elsewhere, and a watch is given up (`etcd_lag`).

Login is by user and password; the token is renewed when etcd no longer accepts it.

Certificates and passwords may change (`look`): then calls go over new channels, those that are under
way end on the old ones, and a watch ends without an error. The password before counts as long as
etcd takes the new one for wrong, so it does not matter which of the two learns of it first.

The messages are generated from etcd.proto, which is our own excerpt:
`python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. coordinator/log/etcd.proto`
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

import grpc
import grpc.aio
from grpc.aio import EOF  # type: ignore[attr-defined]  # Not in the published stubs.

from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd_lag import Lag
from coordinator.log.metadata_log import LogRefusedError, LogReplacedError, LogUnavailableError
from protocol.fault_codes import FaultCode

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRY_S = 1.0
CALL_S_MAX = 4.0
ROUND_PAUSE_S = 0.1
"""After all endpoints have failed once."""
LOGIN_PAUSE_S = 0.5
"""After a password that etcd refused; it may be about to change."""

PROGRESS_S = 0.5
QUIET_S_MAX = 2.0
"""A watch that hears nothing for so long is given up."""

LOOK_S = 2.0
"""How often is looked whether passwords or certificates have changed."""
assert LOOK_S > TRY_S, "a try on an old channel has ended when the channel is closed"

RESPONSE_BYTES_MAX = 64 * 1024 * 1024

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", RESPONSE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Finds dead connections under calls; etcd refuses pings more often than every 5 s.
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 2000),
]

UNAVAILABLE_CODES = {
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
}

OTHERS_MAY = ("not supported for learner", "not leader")
"""Ends of what a member says that refuses what others do."""


ASKS_WHO = "user name is empty"
"""In what a member says that asks for a login, to a call without one."""


class _AwayError(LogUnavailableError):
    fault = FaultCode.ETCD_UNREACHABLE


class _DeniedError(LogRefusedError):
    fault = FaultCode.ETCD_REFUSED


class LeaseNotFoundError(Exception):
    """The lease does not exist, or no longer."""


class CompactedError(Exception):
    """The revision asked for is gone from etcd's history."""


class _BrokenStreamError(Exception):
    """A stream ended before it answered."""


class _TokenError(Exception):
    """etcd does not accept our token (any more)."""


class Endpoint(NamedTuple):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of `host:port` or `host` (port 2379). Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not colon:
            host, port = text, "2379"
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{text!r} is no address of an etcd endpoint, like etcd-0:2379")
        return cls(host, int(port))

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """How to reach and convince etcd. Certificates and key are PEM."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: bytes | None = None
    """None: the system's."""
    cert: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    @property
    def login(self) -> tuple[str | None, str | None]:
        return self.user, self.password

    @property
    def connection(self) -> tuple[bool, bytes | None, bytes | None, bytes | None]:
        """What a channel is made of."""
        return self.tls, self.ca, self.cert, self.key


class _Method(NamedTuple):
    path: str
    request: Any
    response: Any


RANGE = _Method("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
TXN = _Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
COMPACT = _Method("/etcdserverpb.KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
GRANT = _Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
REVOKE = _Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
KEEP_ALIVE = _Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
)
TIME_TO_LIVE = _Method(
    "/etcdserverpb.Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse
)
WATCH = _Method("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
AUTHENTICATE = _Method(
    "/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse
)


class _Member:
    """One endpoint and its channel, made at the first use."""

    def __init__(self, endpoint: Endpoint, options: EtcdOptions) -> None:
        self.endpoint = endpoint
        self._options = options
        self._channel: grpc.aio.Channel | None = None
        self._old: list[grpc.aio.Channel] = []
        """Calls may be under way on them."""
        self._calls: dict[str, Any] = {}

    def unary(self, method: _Method) -> Any:
        return self._made(method, "unary_unary")

    def stream(self, method: _Method) -> Any:
        return self._made(method, "stream_stream")

    def renew(self, options: EtcdOptions) -> None:
        """Calls from now on go over another channel."""
        self._options = options
        self._calls = {}
        if self._channel is not None:
            self._old.append(self._channel)
            self._channel = None

    async def close_old(self) -> None:
        """What is still under way there ends."""
        old, self._old = self._old, []
        for channel in old:
            await channel.close(None)

    async def aclose(self) -> None:
        channel, self._channel = self._channel, None
        self._calls = {}
        await self.close_old()
        if channel is not None:
            await channel.close(None)

    def _made(self, method: _Method, kind: str) -> Any:
        if self._channel is None:
            self._channel = self._connect()
        if (call := self._calls.get(method.path)) is None:
            call = self._calls[method.path] = getattr(self._channel, kind)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return call

    def _connect(self) -> grpc.aio.Channel:
        options = self._options
        if not options.tls:
            return grpc.aio.insecure_channel(self.endpoint.target, options=CHANNEL_OPTIONS)
        credentials = grpc.ssl_channel_credentials(options.ca, options.key, options.cert)
        return grpc.aio.secure_channel(self.endpoint.target, credentials, options=CHANNEL_OPTIONS)


class EtcdClient:
    """Calls raise LogUnavailableError (repeat), LogRefusedError, and what they name."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        options: EtcdOptions = EtcdOptions(),
        look: Callable[[], EtcdOptions | None] | None = None,
    ) -> None:
        """`look` is called in a thread, every LOOK_S at most; it returns options that have changed."""
        assert endpoints
        self._members = [_Member(endpoint, options) for endpoint in endpoints]
        self._options = options
        self._options_before: EtcdOptions | None = None
        """With another password."""
        self._look = look
        self._look_next_s = 0.0
        self._generation = 0
        """Of channels."""
        self._current = 0
        self._cluster_id: int | None = None
        self._revision_seen = 0
        """The newest in an answer that was linearizable, or came by a watch."""
        self._token: str | None = None
        self._closed = False

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Linearizable. Raises CompactedError when it names a revision that is gone."""
        response: pb.RangeResponse = await self._linearizable(RANGE, request)
        return response

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """Raises LeaseNotFoundError when it puts under a lease that is gone."""
        response: pb.TxnResponse = await self._linearizable(TXN, request)
        return response

    async def compact(self, revision: int) -> None:
        """Let go of the history before `revision`. Raises CompactedError when it is gone."""
        await self._unary(COMPACT, pb.CompactionRequest(revision=revision))

    async def grant(self, ttl_s: int) -> int:
        """A new lease's id."""
        response: pb.LeaseGrantResponse = await self._unary(GRANT, pb.LeaseGrantRequest(TTL=ttl_s))
        return response.ID

    async def revoke(self, lease: int) -> None:
        """Raises LeaseNotFoundError."""
        await self._unary(REVOKE, pb.LeaseRevokeRequest(ID=lease))

    async def time_to_live(self, lease: int) -> int:
        """Seconds; -1 when the lease does not exist."""
        request = pb.LeaseTimeToLiveRequest(ID=lease)
        response: pb.LeaseTimeToLiveResponse = await self._unary(TIME_TO_LIVE, request)
        return response.TTL

    async def keep_alive(self, lease: int) -> None:
        """Renew once. Raises LeaseNotFoundError."""
        request = pb.LeaseKeepAliveRequest(ID=lease)

        async def attempt(member: _Member, timeout_s: float) -> pb.LeaseKeepAliveResponse:
            call = member.stream(KEEP_ALIVE)(timeout=timeout_s, metadata=self._metadata())
            try:
                await call.write(request)
                response = await call.read()
                if response is EOF:
                    raise _BrokenStreamError(await call.details())
            finally:
                call.cancel()
            answer: pb.LeaseKeepAliveResponse = response
            return answer

        response = await self._call(attempt)
        if response.TTL <= 0:
            raise LeaseNotFoundError

    async def watch(
        self, *, key: bytes, range_end: bytes, start_revision: int
    ) -> AsyncGenerator[Sequence[pb.KeyValue], None]:
        """Keys put into a range from a revision on, in order, until certificates change.

        Raises LogUnavailableError, or CompactedError when the revision is gone.
        """
        create = pb.WatchCreateRequest(
            key=key,
            range_end=range_end,
            start_revision=start_revision,
            progress_notify=True,
            filters=[pb.WatchCreateRequest.FilterType.NODELETE],
            fragment=True,
        )
        await self._login()
        self._check_open()
        member = self._members[self._current]
        generation = self._generation
        call = member.stream(WATCH)(
            _watch_requests(create), metadata=(*self._metadata(), ("hasleader", "true"))
        )
        lag = Lag(every_s=PROGRESS_S)
        try:
            while True:
                try:
                    response = await self._next(call, member, lag)
                except LogUnavailableError:
                    if generation != self._generation and not self._closed:
                        return  # Its channel had older certificates, and was closed.
                    raise
                self._check_watch(response)
                if response.events:
                    yield [event.kv for event in response.events]
        finally:
            call.cancel()

    async def aclose(self) -> None:
        """Calls under way raise LogUnavailableError."""
        self._closed = True
        for member in self._members:
            await member.aclose()

    async def _linearizable(self, method: _Method, request: Any) -> Any:
        """An answer that knows of all that was seen when it was asked for."""
        seen = self._revision_seen
        response = await self._unary(method, request)
        revision: int = response.header.revision
        if revision < seen:
            raise LogReplacedError(
                f"etcd answers at revision {revision} and was at {seen} before: it was restored from"
                " a backup, or its data were set back"
            )
        self._revision_seen = max(self._revision_seen, revision)
        return response

    async def _unary(self, method: _Method, request: Any) -> Any:
        async def attempt(member: _Member, timeout_s: float) -> Any:
            return await member.unary(method)(request, timeout=timeout_s, metadata=self._metadata())

        return await self._call(attempt)

    async def _call(self, attempt: Callable[[_Member, float], Awaitable[T]]) -> T:
        """The first answer of any endpoint, within the deadline."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + CALL_S_MAX
        failures = 0
        while True:
            self._check_open()
            member = self._members[self._current]
            timeout_s = min(TRY_S, end_s - loop.time())
            try:
                await self._look_at_files()
                await self._login_or_wait()
                response = await self._translated(attempt(member, timeout_s))
            except (LogUnavailableError, _TokenError) as error:
                failures += 1
                pause_s = 0.0 if failures % len(self._members) else ROUND_PAUSE_S
                if isinstance(error, _TokenError):
                    self._token = None
                else:
                    self._switch_from(member)
                refused = error.__cause__
                is_refused = isinstance(refused, LogRefusedError)
                if is_refused:
                    pause_s = LOGIN_PAUSE_S
                if self._closed or loop.time() + pause_s >= end_s:
                    if is_refused:
                        raise _DeniedError(str(refused)) from refused
                    raise _AwayError(f"no answer from etcd, {failures} tries: {error}") from error
                await asyncio.sleep(pause_s)
            else:
                self._check_cluster(member, response)
                return response

    async def _translated(self, answer: Awaitable[T]) -> T:
        """The answer, or its error in our words."""
        try:
            return await answer
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            if ASKS_WHO in details and self._options.user is not None:
                # It did not when we asked for a token, and has been told to since.
                raise _TokenError(details) from error
            raise _translated(error.code(), details) from error
        except _BrokenStreamError as error:
            raise _AwayError(f"the stream ended: {error}") from error
        except asyncio.CancelledError:
            # A call that was ended (a closed channel, a silent watch) "cancels" whoever reads it,
            # though nobody cancelled that task. Passed on, it would end the task without a word.
            if _is_cancelled():
                raise
            raise LogUnavailableError("the call to etcd was ended") from None
        except grpc.aio.UsageError:
            if self._closed:
                raise LogUnavailableError("the connection to etcd was closed") from None
            raise

    async def _next(self, call: Any, member: _Member, lag: Lag) -> pb.WatchResponse:
        """The watch's next message."""
        silence = _Silence(call)
        timer = asyncio.get_running_loop().call_later(QUIET_S_MAX, silence.fell)
        try:
            response = await self._translated(call.read())
        except (LogUnavailableError, _TokenError) as error:
            self._switch_from(member)
            self._token = None
            why = f"etcd at {member.endpoint.target} fell silent" if silence.fallen else str(error)
            raise _AwayError(f"the watch broke off: {why}") from error
        finally:
            timer.cancel()
        if response is EOF:
            self._switch_from(member)
            raise _AwayError(f"the watch ended: {await call.details()}")
        self._check_cluster(member, response)
        message: pb.WatchResponse = response
        revision, now_s = message.header.revision, asyncio.get_running_loop().time()
        # Events say the revision that they are of, which may be an old one.
        if not message.events and lag.is_too_long(revision, seen=self._revision_seen, now_s=now_s):
            self._switch_from(member)
            raise _AwayError(f"the watch broke off: etcd at {member.endpoint.target} is behind")
        self._revision_seen = max(self._revision_seen, revision)
        return message

    def _check_watch(self, response: pb.WatchResponse) -> None:
        if not response.canceled:
            return
        if response.compact_revision:
            raise CompactedError
        reason = response.cancel_reason or "no reason given"
        if "permission denied" in reason:
            raise _DeniedError(f"etcd refuses the watch: {reason}")
        self._token = None
        raise _AwayError(f"etcd ended the watch: {reason}")

    async def _look_at_files(self) -> None:
        """Take passwords and certificates that have changed. Keeping alive calls, if nobody else."""
        now_s = asyncio.get_running_loop().time()
        if self._look is None or now_s < self._look_next_s:
            return
        self._look_next_s = now_s + LOOK_S
        for member in self._members:
            await member.close_old()
        changed = await asyncio.to_thread(self._look)
        if changed is None:
            return
        before, self._options = self._options, changed
        if before.login != changed.login:
            self._options_before = before
        if before.connection != changed.connection:
            self._generation += 1
            for member in self._members:
                member.renew(changed)

    async def _login(self) -> None:
        if self._options.user is None or self._token is not None:
            return
        try:
            self._token = await self._authenticate(self._options)
        except LogRefusedError:
            self._look_next_s = 0.0  # The next try may know better.
            if self._options_before is None:
                raise
            self._token = await self._authenticate(self._options_before)

    async def _login_or_wait(self) -> None:
        """As `_login`, but where the password may change a refusal is a reason to try again."""
        try:
            await self._login()
        except LogRefusedError as error:
            if self._look is None:
                raise
            raise _TokenError(str(error)) from error

    async def _authenticate(self, options: EtcdOptions) -> str:
        """A token, empty where none is asked for."""
        assert options.user is not None
        request = pb.AuthenticateRequest(name=options.user, password=options.password or "")
        member = self._members[self._current]
        try:
            answer = member.unary(AUTHENTICATE)(request, timeout=TRY_S)
            response: pb.AuthenticateResponse = await self._translated(answer)
        except LogRefusedError as error:
            if "authentication is not enabled" in str(error):
                return ""
            raise
        return response.token

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("token", self._token),) if self._token else ()

    def _switch_from(self, member: _Member) -> None:
        if self._members[self._current] is member:
            self._current = (self._current + 1) % len(self._members)

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailableError("the connection to etcd is closed")

    def _check_cluster(self, member: _Member, response: Any) -> None:
        cluster_id: int = response.header.cluster_id
        if self._cluster_id is None:
            self._cluster_id = cluster_id
        if cluster_id != self._cluster_id:
            raise LogReplacedError(
                f"the endpoint {member.endpoint.target} belongs to etcd cluster {cluster_id:x}, and the"
                f" log was in {self._cluster_id:x}: etcd was replaced or restored from a backup, or the"
                " endpoints name members of several clusters"
            )


class _Silence:
    """Ends a call when its timer fires, and remembers that it was that."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.fallen = False

    def fell(self) -> None:
        self.fallen = True
        self._call.cancel()


async def _watch_requests(create: pb.WatchCreateRequest) -> AsyncIterator[pb.WatchRequest]:
    """gRPC asks for these in a task of its own that ends with the call."""
    yield pb.WatchRequest(create_request=create)
    while True:
        await asyncio.sleep(PROGRESS_S)
        yield pb.WatchRequest(progress_request=pb.WatchProgressRequest())


def _translated(code: grpc.StatusCode, details: str) -> Exception:
    if code == grpc.StatusCode.NOT_FOUND and "lease not found" in details:
        return LeaseNotFoundError()
    if code == grpc.StatusCode.OUT_OF_RANGE:
        if "compacted" in details:
            return CompactedError()
        return _AwayError(f"this member of etcd is behind: {details}")
    if "database space exceeded" in details:
        # It may have taken effect nevertheless: etcd carries out the request that found its
        # quota reached. Whoever must know repeats it.
        return _DeniedError(
            "etcd's database has reached its quota and takes no more: compact and defragment it,"
            " then `etcdctl alarm disarm`"
        )
    if code in UNAVAILABLE_CODES or details.endswith(OTHERS_MAY):
        return _AwayError(f"{code.name}: {details}")
    if code == grpc.StatusCode.UNAUTHENTICATED or "auth store is old" in details:
        return _TokenError(details)
    if ASKS_WHO in details:
        return _DeniedError("etcd asks for a user and a password")
    return _DeniedError(f"etcd refuses: {code.name}: {details}")


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
