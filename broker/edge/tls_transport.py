"""A connection of TLS: between the socket and what speaks Kafka, as a transport of its own.

What holds:

* The protocol above is told of the connection when it is accepted, so that its bounds hold from then
  on, and gets bytes when the handshake is done. Until then it has no requester but the anonymous one.
* A handshake begins when its turn has come (`broker.edge.handshakes`) and ends by a deadline. Its
  costly part is done in threads. One that fails is counted by reason, told in one line, and answered
  with TLS's alert.
* All ciphertext is numbered, and a delivery has the number of its oldest record
  (`broker.edge.numbering`). What was taken from the socket is delivered at once, or, when the
  protocol above does not read, before anything else is taken.
* Answers are encrypted as the socket takes them: what waits is plaintext, once.

Why not the event loop's own TLS: it says neither how much it holds that it has not delivered, nor
where records begin, and proofs need both (docs/design/security.md §1.3); and a context is chosen once
for a listener there.

Left out: certificates (`broker.edge.tls_listener`).
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from typing_extensions import override

from broker.calls.requester import Requester
from broker.edge.handshakes import PATIENCE_MS, Handshakes
from broker.edge.numbering import NotTlsError, RecordNumbering
from broker.edge.tls import failure_of
from broker.edge.unread import unread_bytes
from broker.node import EdgeStats
from broker.rights.principal_names import NoRuleError
from protocol.types import Buffer, Position

if TYPE_CHECKING:
    from broker.edge.tls_listener import TlsListener

KiB: Final = 1 << 10
TAKEN_BYTES: Final = 64 * KiB
"""Of ciphertext, in one read of the socket; so much a connection holds at most that does not read."""
ENCRYPTED_BYTES_MAX: Final = 256 * KiB
"""That wait for the socket; the rest waits as it is."""
PIECE_BYTES: Final = 128 * KiB
"""Of ciphertext, given to the socket's transport at once."""
RECORD_BYTES: Final = 16 * KiB
"""Parts smaller than this are joined: every record costs a header, a tag, and a call."""
HANDSHAKE_MS_MAX: Final = 10_000
THREADS: Final = 2


class SecuredProtocol(Protocol):
    """What speaks Kafka above (`broker.edge.connection`), or HTTP (`broker.http.connections`)."""

    requester: Requester

    @property
    def address(self) -> str: ...
    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def abort(self, kind: str, reason: str) -> None: ...


class Shaker:
    """All handshakes of an agent."""

    def __init__(
        self,
        stats: EdgeStats,
        *,
        boot_ms: Callable[[], int],
        clock: Callable[[], Position],
        handshake_ms_max: int = HANDSHAKE_MS_MAX,
    ) -> None:
        """`clock`: the position that the agent has applied."""
        self.stats = stats
        self.clock = clock
        self.handshake_ms_max = handshake_ms_max
        self.taken = memoryview(bytearray(TAKEN_BYTES))
        """What every connection takes ciphertext into; emptied before anybody else does."""
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="frazil-handshakes")
        self._boot_ms = boot_ms
        self._handshakes = Handshakes()
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, transport: "TlsTransport") -> None:
        """Have `transport.begin()` called when its turn has come."""
        self._handshakes.ask(transport)
        self._serve()

    def end(self, transport: "TlsTransport") -> None:
        """It is through, or gone."""
        self._handshakes.end(transport)
        self._serve()

    def close(self) -> None:
        """No handshake begins any more."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        if self._timer is not None:
            self._timer.cancel()

    def _serve(self) -> None:
        turns = self._handshakes.due(self._boot_ms())
        for guest in cast("list[TlsTransport]", turns.give_way):
            guest.fail("late", "others wait, and its handshake takes long")
        for guest in cast("list[TlsTransport]", turns.begin):
            guest.begin()
        if self._handshakes.waiting and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PATIENCE_MS / 1000, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._serve()


class _State(Enum):
    ACCEPTED = "nothing has been sent"
    WAITING = "it waits for its turn"
    SHAKING = "the handshake is under way"
    OPEN = "both ways"
    CLOSING = "what waits is sent, nothing is read"
    CLOSED = "nothing goes any way"


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """To the socket a protocol, to the protocol above a transport."""

    def __init__(self, listener: "TlsListener", shaker: Shaker, above: SecuredProtocol) -> None:
        super().__init__()
        self._listener = listener
        self._shaker = shaker
        self._above = above
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = listener.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._records = RecordNumbering()
        self._state = _State.ACCEPTED
        self._raw: asyncio.Transport
        self._stepping = False
        """A thread has the TLS object."""
        self._steps = 0
        self._above_reads = True
        self._short = False
        """A read of the socket, which is being delivered, took all that there was."""
        self._eof = False
        self._backlog: deque[Buffer] = deque()
        """Not yet encrypted."""
        self._backlog_bytes = 0
        self._raw_full = False
        self._above_paused = False
        self._high = 64 * KiB
        self._deadline: asyncio.TimerHandle | None = None

    # What the socket's transport calls.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        self._raw.set_write_buffer_limits(high=ENCRYPTED_BYTES_MAX)
        self._above.connection_made(self)
        if self._state is _State.ACCEPTED:
            self._watch_deadline()
            # uvloop begins to read behind this call, whatever was said in it.
            asyncio.get_running_loop().call_soon(self._regulate)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shaker.taken

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self._state in (_State.CLOSING, _State.CLOSED):
            return
        assert not self._stepping, "nothing is taken while a thread has the TLS object"
        data = self._shaker.taken[:nbytes]
        try:
            self._records.taken(data, self._shaker.clock(), waiting=self._undelivered > 0)
        except NotTlsError as error:
            if self._state is _State.OPEN:
                self._above.abort("malformed", str(error))
            else:
                self.fail("not tls", str(error))
            return
        self._incoming.write(data)
        if self._state is _State.OPEN:
            # What is delivered later says nothing about the socket as it is then.
            self._short = nbytes < TAKEN_BYTES
            self._deliver()
            self._short = False
            self._regulate()
        elif self._state is _State.ACCEPTED:
            self._state = _State.WAITING
            self._shaker.ask(self)
            self._regulate()
        elif self._state is _State.SHAKING:
            self._step()

    @override
    def eof_received(self) -> bool:
        if self._state is _State.OPEN:
            self._eof = True
            self._deliver()
            return True
        if self._state in (_State.WAITING, _State.SHAKING):
            self.fail("closed", "the client closed it within the handshake")
        return False

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._state in (_State.WAITING, _State.SHAKING):
            self._count("closed")
        self._leave(_State.CLOSED)
        self._backlog.clear()
        self._backlog_bytes = 0
        self._above.connection_lost(exc)

    @override
    def pause_writing(self) -> None:
        self._raw_full = True

    @override
    def resume_writing(self) -> None:
        self._raw_full = False
        self._encrypt()

    # The handshake.

    @property
    def address(self) -> str:
        """The client's (`handshakes.Guest`)."""
        return self._above.address

    def begin(self) -> None:
        """Its turn has come."""
        if self._state is _State.WAITING:
            self._state = _State.SHAKING
            self._step()

    def fail(self, kind: str, reason: str) -> None:
        """The handshake comes to nothing: tell the client, count, close."""
        if self._state in (_State.CLOSING, _State.CLOSED):
            return
        self._count(kind)
        self._leave(_State.CLOSING)
        if not self._stepping:
            self._flush()
        self._above.abort("handshake", f"no TLS: {reason}")

    def _count(self, kind: str) -> None:
        failed = self._shaker.stats.handshakes_failed
        failed[kind] = failed.get(kind, 0) + 1

    def _step(self) -> None:
        """Go on with what has arrived. The first step has the signature, and others none."""
        self._steps += 1
        self._stepping = True
        self._regulate()
        if self._steps == 1 or self._listener.asks_clients:
            loop = asyncio.get_running_loop()
            done = loop.run_in_executor(self._shaker.threads, _handshake, self._tls)
            done.add_done_callback(self._stepped)
        else:
            self._after_step(_handshake(self._tls))

    def _stepped(self, done: "asyncio.Future[ssl.SSLError | OSError | None]") -> None:
        if not done.cancelled():  # By the end of the agent.
            self._after_step(done.result())

    def _after_step(self, error: ssl.SSLError | OSError | None) -> None:
        self._stepping = False
        if self._state is not _State.SHAKING:
            return
        if isinstance(error, ssl.SSLWantReadError):
            self._flush()
            self._regulate()
            return
        if error is not None:
            self.fail(failure_of(getattr(error, "reason", None) or ""), _sentence(error))
            return
        try:
            principal = self._listener.principal(self._tls.getpeercert(binary_form=True))
        except NoRuleError as refused:
            self.fail("principal", str(refused))
            return
        self._above.requester = Requester(principal, self.address)
        self._shaker.stats.handshakes_total += 1
        self._leave(_State.OPEN)
        self._flush()
        self._deliver()
        self._regulate()

    def _watch_deadline(self) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._shaker.handshake_ms_max / 1000
        self._deadline = loop.call_later(seconds, self._look_at_deadline)

    def _look_at_deadline(self) -> None:
        if self._state is _State.WAITING or self._stepping or not self._above_reads:
            self._watch_deadline()  # It is not the client who is late.
        elif self._state in (_State.ACCEPTED, _State.SHAKING):
            self.fail("late", f"no handshake within {self._shaker.handshake_ms_max} ms")

    def _leave(self, state: _State) -> None:
        """The handshake is over, one way or the other."""
        before, self._state = self._state, state
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if before in (_State.WAITING, _State.SHAKING):
            self._shaker.end(self)

    # Towards the protocol above.

    @property
    def _undelivered(self) -> int:
        """Bytes that were taken from the socket and could be delivered."""
        return 0 if self._stepping else self._incoming.pending + self._tls.pending()

    def _deliver(self) -> None:
        """Decrypt what there is, while the protocol above reads."""
        while self._above_reads and self._state is _State.OPEN and self._undelivered:
            room = self._above.get_buffer(-1)
            filled, ended = self._fill(room)
            del room
            if filled:
                self._records.numbering.dry = self._short and not self._undelivered
                self._above.buffer_updated(filled)
            if ended or not filled:
                break
        if self._state is _State.OPEN:
            self._flush()
            if self._eof and self._above_reads:
                self._above.eof_received()
                self.close()

    def _fill(self, room: memoryview) -> tuple[int, bool]:
        """How many bytes were decrypted, and whether no more can be."""
        filled, size = 0, len(room)
        incoming, tls = self._incoming, self._tls
        try:
            while filled < size and (incoming.pending or tls.pending()):
                count = tls.read(size - filled, room[filled:])
                if not count:  # The client said that it sends no more.
                    self._eof = True
                    return filled, True
                filled += cast("int", count)
        except ssl.SSLWantReadError:
            return filled, True
        except (ssl.SSLError, OSError) as error:
            self._above.abort("malformed", f"TLS: {_sentence(error)}")
            return 0, True
        return filled, False

    # Transport: reading.

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "numbering":
                return self._records.numbering
            case "unread_bytes":
                return unread_bytes(self._raw)
            case "undelivered_bytes":
                return self._undelivered
            case "ssl_object":
                return self._tls
            case _:
                return self._raw.get_extra_info(name, default)

    @override
    def is_reading(self) -> bool:
        return self._above_reads

    @override
    def pause_reading(self) -> None:
        self._above_reads = False
        self._regulate()

    @override
    def resume_reading(self) -> None:
        self._above_reads = True
        if self._state is _State.OPEN and (self._undelivered or self._eof):
            asyncio.get_running_loop().call_soon(self._resumed)
        else:
            self._regulate()

    def _resumed(self) -> None:
        self._deliver()
        self._regulate()

    def _regulate(self) -> None:
        """Read from the socket, or stop."""
        if self._raw.is_closing():
            return
        reads = (
            self._above_reads
            and not self._stepping
            and not self._eof
            and self._state in (_State.ACCEPTED, _State.SHAKING, _State.OPEN)
        )
        if reads != self._raw.is_reading():
            if reads:
                self._raw.resume_reading()
            else:
                self._raw.pause_reading()

    # Transport: writing.

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high

    @override
    def get_write_buffer_size(self) -> int:
        if self._state is _State.CLOSED:
            return 0
        waiting = 0 if self._stepping else self._outgoing.pending
        return self._backlog_bytes + waiting + self._raw.get_write_buffer_size()

    @override
    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    @override
    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._state is not _State.OPEN:
            return
        for data in list_of_data:
            if data:
                self._backlog.append(data)
                self._backlog_bytes += len(data)
        self._encrypt()

    def _encrypt(self) -> None:
        """As much as the socket's transport takes; then tell the protocol above."""
        if self._state not in (_State.OPEN, _State.CLOSING):
            return
        try:
            while self._backlog and not self._raw_full:
                # OpenSSL makes one record at a time.
                while self._backlog and self._outgoing.pending < PIECE_BYTES:
                    self._take_off(self._tls.write(self._piece()))
                self._flush()
        except (ssl.SSLError, OSError) as error:
            self._above.abort("malformed", f"TLS: {_sentence(error)}")
            return
        size = self.get_write_buffer_size()
        if self._above_paused:
            if size <= self._high // 4 or not (self._backlog or self._raw_full):
                self._above_paused = False
                self._above.resume_writing()
        elif size > self._high:
            self._above_paused = True
            self._above.pause_writing()
        if self._state is _State.CLOSING and not self._backlog:
            self._say_goodbye()

    def _piece(self) -> Buffer:
        """What is encrypted next; stays in the backlog."""
        first = self._backlog[0]
        if len(first) >= RECORD_BYTES or len(self._backlog) == 1:
            return memoryview(first)[:RECORD_BYTES]
        parts, size = [], 0
        for part in self._backlog:
            parts.append(memoryview(part)[: RECORD_BYTES - size])
            size += len(parts[-1])
            if size == RECORD_BYTES:
                break
        return b"".join(parts)

    def _take_off(self, count: int) -> None:
        """So much of the backlog is encrypted."""
        self._backlog_bytes -= count
        while count:
            first = self._backlog[0]
            if len(first) > count:
                self._backlog[0] = memoryview(first)[count:]
                return
            count -= len(first)
            self._backlog.popleft()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    # Transport: the end.

    @override
    def is_closing(self) -> bool:
        return self._state in (_State.CLOSING, _State.CLOSED)

    @override
    def close(self) -> None:
        if self._state is _State.OPEN:
            self._state = _State.CLOSING
            self._regulate()
            if not self._backlog:
                self._say_goodbye()
        elif self._state is not _State.CLOSING and self._state is not _State.CLOSED:
            self.abort()

    def _say_goodbye(self) -> None:
        """All is encrypted: say that nothing follows, and close behind it."""
        with contextlib.suppress(ssl.SSLError, OSError):  # The client's own is not waited for.
            self._tls.unwrap()
        self._flush()
        self._state = _State.CLOSED
        self._raw.close()

    @override
    def abort(self) -> None:
        was_failing = self._state is _State.CLOSING and not self._backlog
        self._leave(_State.CLOSED)
        if was_failing:
            self._raw.close()  # Behind the alert that says why.
        else:
            self._raw.abort()


def _handshake(tls: ssl.SSLObject) -> ssl.SSLError | OSError | None:
    """One step; what it raised, since a thread may have done it."""
    try:
        tls.do_handshake()
    except (ssl.SSLError, OSError) as error:
        return error
    return None


def _sentence(error: ssl.SSLError | OSError) -> str:
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return str(reason or error).replace("_", " ").lower()
