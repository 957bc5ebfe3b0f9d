"""One client's connection: requests in, answers out in order, and bounds on what it may hold.

What holds:

* Effects happen in the order of the requests (P10). Produce requests start while earlier Produce
  requests are unanswered; anything else starts when all before it are answered, and nothing
  starts behind something else. Answers leave in the order of requests, whenever they come
  (librdkafka aborts its process otherwise).
* A connection is not read from while it has too many unanswered requests, or bytes of them, a full
  write buffer, or a request that waits in line or for room (P15).
* Its frames are small until it has shown itself: a request of it was answered.
* Who does not speak Kafka is disconnected without an answer, as Kafka does (SocketServer), after
  the requests before have been answered; logged and counted.
* What was read around a stall is marked stale (P17, `broker.calls.stalls`).
* Each call knows the position applied when its first byte was read, and whether it was read in
  reply to a challenge (`broker.calls.challenges`).

Bytes arrive in the server's one scratch buffer, or in place when much of a big frame is there. No
task per hot request. Left out: what requests mean (`broker.edge.dispatch`), all connections together
(`broker.edge.server`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, cast

from typing_extensions import override

from broker.calls.call import Call
from broker.calls.challenges import Challenge, Challenges
from broker.calls.requester import Requester
from broker.calls.shares import owner_of
from broker.calls.software import UNKNOWN
from broker.calls.stalls import Trust
from broker.edge.authentication import ExpiredError, admitted, splitter_of
from broker.edge.connections import Connections
from broker.edge.gather import HEAVY_BYTES, is_big, write_gathered
from broker.edge.limits import REQUEST_BYTES
from broker.edge.numbering import FrameUnderWay, Numbering
from broker.edge.unread import unread_bytes
from protocol import apis
from protocol.errors import ProtocolError
from protocol.types import Buffer

logger = logging.getLogger(__name__)

CLOSING_MS_MAX: Final = 5_000
"""A closed connection whose last answers nobody takes is cut off after this."""


class KafkaServerProtocol(asyncio.BufferedProtocol):
    """One connection; implements `dispatch.Connection`."""

    __slots__ = (
        "_active_ms",
        "_buffered",
        "_bytes",
        "_challenges",
        "_ending",
        "_ending_kind",
        "_exclusive",
        "_limits",
        "_memory",
        "_numbering",
        "_pending",
        "_reading",
        "_room",
        "_server",
        "_splitter",
        "_started",
        "_transport",
        "_trust",
        "_under_way",
        "_waiting",
        "_writing",
        "address",
        "authentication",
        "blocked",
        "closed",
        "heavy",
        "listener",
        "marked",
        "muted",
        "number",
        "opened_ms",
        "owner",
        "peer",
        "queued",
        "requester",
        "shown",
        "software",
        "throttled",
    )

    def __init__(self, server: Connections["KafkaServerProtocol"], listener: str) -> None:
        self.number = 0
        self.listener = listener
        self.peer = ""
        self.address = ""
        """The host part of `peer`."""
        self.owner = owner_of("")
        """Whose share it counts for (`broker.calls.shares`)."""
        self.requester = Requester()
        self.software = UNKNOWN
        self.authentication = server.authenticator.begin(listener)
        self.opened_ms = 0
        """When it was let in."""
        self.shown = False
        """A request of it was answered."""
        self.closed = True
        """Until it is made, and from the moment it is closed."""
        self.marked = False
        """It has its turn soon (`KafkaServer.mark`)."""
        self.heavy = False
        """Its newest answers were big, or its next one is."""
        self.blocked = False
        """The next request to start is a Produce request, and there is no room for it; or there are
        too many new connections a second."""
        self.queued = False
        """It waits until a request of it may start (`broker.edge.starts`)."""
        self.muted = False
        """Nothing is read, and nothing begins (`broker.edge.muting`)."""
        self.throttled = False
        """It is over a quota, and no answer has left since that did not say so."""
        self._server = server
        self._memory = server.memory
        self._limits = server.limits.connection
        self._splitter = splitter_of(self.authentication, self._limits, server.memory.growth)
        self._trust = Trust(server.watch)
        self._challenges = Challenges()
        self._pending: deque[Call] = deque()
        """Read and not yet answered towards the client, in order."""
        self._waiting: deque[Call] = deque()
        """The end of `_pending` that has not been started."""
        self._started = 0
        """Started and unanswered."""
        self._exclusive = False
        """The one that is started is not a Produce request."""
        self._bytes = 0
        """Memory of those in `_pending`."""
        self._buffered = 0
        """Memory of the frame under way, as last told to the server."""
        self._under_way = FrameUnderWay()
        self._numbering = Numbering()
        self._room = 0
        self._reading = True
        self._writing = True
        self._ending = ""
        """Why nothing more is read; closed when all is answered."""
        self._ending_kind = "malformed"
        self._active_ms = 0

    # What asyncio calls.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        self._transport = cast("asyncio.Transport", transport)
        self._numbering = transport.get_extra_info("numbering") or self._numbering
        self.opened_ms = self._active_ms = server.node.boot_ms()
        server.watch.observe(self._active_ms)
        self._trust = Trust(server.watch)
        name = transport.get_extra_info("peername")
        self.address = str(name[0] if isinstance(name, tuple) else name)
        self.number = server.admit(self)
        if self.number == 0:
            self._transport.abort()
            return
        self.closed = False
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else self.address
        self.owner = owner_of(self.peer)
        self.requester = Requester(host=self.address)
        self._regulate()
        if not self._reading:
            # uvloop begins to read behind this call, whatever was said in it.
            asyncio.get_running_loop().call_soon(self._stop_reading)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._splitter.wanted(self._server.scratch)
        self._room = len(room)
        return room

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self.closed:
            return
        server = self._server
        now_ms = self._active_ms = server.node.boot_ms()
        server.watch.observe(now_ms)
        numbering = self._numbering
        if numbering.exact:
            numbering.delivered(nbytes, self._room, server.node.log_client.machine.position)
        continued = self._under_way.read(numbering, nbytes)
        try:
            if self._splitter.in_place:
                frames = self._splitter.received(nbytes)
            else:
                frames = self._splitter.receive(server.scratch[:nbytes])
        except ProtocolError as error:
            self._fail(error)
            return
        if self._trust.stalls != server.watch.stalls:
            for call in self._waiting:  # The loop stood still while they waited to start.
                call.stale = True
        stale = self._trust.read(
            server.watch,
            begun=numbering.begun,
            drained=numbering.dry,
            continued=continued,
            frames=len(frames),
        )
        for index, frame in enumerate(frames):
            if not self._accept(frame, now_ms, stale=index < stale):
                break
            self._under_way.ended(numbering, 4 + len(frame))
        if self._challenges.leaving:
            self._count_challenges()
        if self._splitter.error is not None:
            self._fail(self._splitter.error)
        self._count_buffered(began=bool(frames))
        self._start_calls()
        self._regulate()

    @override
    def eof_received(self) -> bool:
        return False

    @override
    def pause_writing(self) -> None:
        self._writing = False
        self._server.taken(self)
        self._regulate()

    @override
    def resume_writing(self) -> None:
        self._writing = True
        self._server.taken(self)
        self._active_ms = self._server.node.boot_ms()
        self._server.mark(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self.number == 0:
            return
        if not self.closed:
            self._closing("client", "the client closed it" if exc is None else f"{exc}")
        self._server.forget(self)

    # What handlers call.

    def call_answered(self, call: Call) -> None:
        """One of this connection's calls has its answer (`dispatch.Connection`)."""
        if self.closed:
            return
        self._started -= 1
        self._exclusive = False
        assert self._started >= 0
        if call.api_key == apis.FETCH and call.parts is not None:
            self._server.untaken.made(self.number, sum(map(len, call.parts)))
        if self._pending[0] is call:
            self._server.mark(self)

    def close(self, reason: str) -> None:
        """Close without answering what is open (`dispatch.Connection`)."""
        if not self.closed:
            self._closing("handler", reason)
            self._transport.close()

    def refuse(self, call: Call, body: Sequence[Buffer] | None, reason: str) -> None:
        """Answer a while later, and close (`dispatch.Connection`)."""
        self._ending, self._ending_kind = reason, "authentication"
        self._server.refusals.add(call, body)

    def replied(self, call: Call, challenge: Challenge) -> bool:
        """Whether the call was read in reply to this challenge (`dispatch.Connection`)."""
        return self._challenges.answered_by(challenge, call.first_byte)

    # What the server calls.

    def turn(self) -> None:
        """Write what is answered, start what may start, read on or stop. Once per loop turn."""
        if self.closed:
            return
        if not self.heavy and self._pending and is_big(self._pending[0]):
            self.heavy = True
            self._server.mark(self)
            return
        if self._challenges.leaving:
            self._count_challenges()
        self._write_answers()
        self._start_calls()
        if self._ending and not self._pending and not self._server.keeps_connections:
            self._finish()
        else:
            self._regulate()

    def start_in_turn(self) -> None:
        """Start the next call, if it still may (`starts.Starter`)."""
        self.blocked = False
        self._start_calls()
        self._regulate()

    def unmuted(self) -> None:
        """It is heard again (`muting.Mutable`)."""
        if self._buffered:
            self._memory.set_receiving(self, receiving=True)
        self._server.mark(self)

    def leave(self) -> None:
        """Read no more; close when all that was read is answered, unless connections are kept."""
        if not self._ending:
            self._ending, self._ending_kind = "the agent is leaving", "leaving"
            self._server.mutes.lift(self)
        is_kept = self._server.keeps_connections
        # A parked fetch is no reason to stay: nothing is lost when it gets no answer.
        if not is_kept and all(call.api_key == apis.FETCH for call in self._pending):
            self._finish()
        else:
            self._regulate()

    def abort(self, kind: str, reason: str) -> None:
        """Cut off, unsent answers too."""
        if not self.closed:
            self._closing(kind, reason)
        self._transport.abort()

    def close_if_idle(self, now_ms: int, idle_ms_max: int) -> None:
        """Close when nothing moved for too long: no request is open, or no answer is taken."""
        quiet_ms = now_ms - self._active_ms
        if self.closed:
            if quiet_ms > CLOSING_MS_MAX:
                self._transport.abort()
        elif not self.muted and quiet_ms > idle_ms_max and (not self._pending or not self._writing):
            self.abort("idle", f"nothing for {quiet_ms} ms")

    # What the bounds of all connections look at (`broker.edge.pressure`, `broker.edge.places`).

    @property
    def active_ms(self) -> int:
        """When it last sent something, or was read from again."""
        return self._active_ms

    @property
    def asks(self) -> bool:
        """It waits for an answer."""
        return bool(self._pending)

    @property
    def held_bytes(self) -> int:
        """Of its unanswered requests, and of the frame under way."""
        return self._bytes + self._buffered

    @property
    def unsent_bytes(self) -> int:
        """Of answers, when too many wait for the client to take them; else 0."""
        is_taken = self._writing or self.closed
        return 0 if is_taken else self._transport.get_write_buffer_size()

    @property
    def missing_bytes(self) -> int:
        """Of the frame under way."""
        return self._splitter.missing_bytes

    @property
    def waits_since_ms(self) -> int | None:
        """When its oldest unanswered request came; None: there is none, or a Produce among them."""
        pending = self._pending
        if not pending or any(call.api_key == apis.PRODUCE for call in pending):
            return None
        return pending[0].received_ms

    def arrived(self) -> tuple[int, int]:
        """How many bytes arrived in all, and how many of these were not read yet."""
        unread = unread_bytes(self._transport)
        # On TLS, what was taken from the socket may wait as well.
        waiting: int = self._transport.get_extra_info("undelivered_bytes", 0)
        return self._numbering.read + unread, unread + waiting

    # Requests.

    def _accept(self, frame: Buffer, now_ms: int, *, stale: bool) -> bool:
        """Queue one frame; False when it is not a request."""
        if self._ending:
            return False
        try:
            header = admitted(self.authentication, frame, asks=bool(self._pending), boot_ms=now_ms)
        except ProtocolError as error:
            self._fail(error)
            return False
        call = Call(
            api_key=header.api_key,
            version=header.version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            body=header.body,
            connection=self,
            received_ms=now_ms,
            frame_bytes=len(frame),
            stale=stale,
            clock=self._under_way.clock,
            first_byte=self._under_way.number,
        )
        self._pending.append(call)
        self._waiting.append(call)
        self._bytes += len(frame) + REQUEST_BYTES
        self._server.node.stats.request_bytes += len(frame)
        self._memory.hold(len(frame) + REQUEST_BYTES)
        return True

    def _start_calls(self) -> None:
        """Start every call whose turn it is; most often the one that was just read."""
        waiting = self._waiting
        starts = self._server.starts
        while waiting and self._writing and not (self.closed or self.queued or self.muted):
            call = waiting[0]
            if call.api_key == apis.PRODUCE:
                if self._exclusive or (self.throttled and self._started):
                    return
                if self._server.node.producing.full:
                    self.blocked = True
                    starts.block(self)
                    return
            elif self._started:
                return
            if call.api_key == apis.FETCH and not self._server.untaken.admits(self.number):
                return
            if not starts.admits(self, call.api_key):
                return
            waiting.popleft()
            self._start(call)

    def _start(self, call: Call) -> None:
        self._started += 1
        self._exclusive = call.api_key != apis.PRODUCE
        if self._trust.stalls != self._server.watch.stalls:
            call.stale = True
        sound = False
        try:
            self._server.dispatcher.dispatch(call, self._server.tasks)
            self.throttled = self.throttled or call.throttle_ms > 0
            sound = True
        except ProtocolError as error:
            sound = True
            self._started -= 1
            self._waiting.clear()
            self._forget_from(call)
            self._fail(error)
        finally:
            if not sound:  # A bug in a handler ends its connection; the loop logs the error.
                self._server.node.stats.failed_handlers += 1
                self.abort("handler", f"{call!r} failed")

    def _forget_from(self, call: Call) -> None:
        """Drop a call that cannot be answered, and those behind it."""
        while self._pending:
            last = self._pending.pop()
            self._release(last)
            if last is call:
                return

    def _fail(self, error: ProtocolError) -> None:
        """The peer does not speak Kafka: answer what came before, then close."""
        if self.closed or self._ending:
            return
        self._ending = f"not a request: {error}"
        if isinstance(error, ExpiredError):
            self._ending, self._ending_kind = str(error), "expired"
        if error is self._splitter.error and not self.shown:
            self._ending += " until a first request (ApiVersions, for example) was answered"
        if self._pending:
            self._regulate()
        else:
            self._finish()

    # Answers.

    def _write_answers(self) -> None:
        pending = self._pending
        stats = self._server.node.stats
        parts: list[Buffer] = []
        now_ms = self._server.node.boot_ms()
        refused, muted_ms = False, 0
        known = self.authentication is None or self.authentication.is_complete
        if not self.shown and pending and pending[0].answered and known:
            self.shown = True
            self._splitter.frame_bytes_max = self._limits.frame_bytes_max
            self._server.show(self)
        while pending and pending[0].answered:
            call = pending.popleft()
            self._release(call)
            stats.count_answer(call.api_key, now_ms - call.received_ms)
            refused = refused or call.refused_stale
            muted_ms = max(muted_ms, call.throttle_ms)
            self.throttled = call.throttle_ms > 0
            if call.challenge is not None:
                self._challenges.told(call.challenge)
            if call.parts is not None:
                parts += call.parts
        if parts:
            size = write_gathered(self._transport, parts)
            self._server.taken(self)
            stats.response_bytes += size
            self.heavy = size > HEAVY_BYTES
            if refused:
                self._trust.refusal_written(self._numbering.read + unread_bytes(self._transport))
            if self._challenges.leaving:
                self._count_challenges()
                if self._challenges.leaving:
                    # uvloop writes at the end of this turn; the next one shows that it has.
                    self._server.mark(self)
        if muted_ms and not self._ending:
            self._server.mutes.mute(self, muted_ms)
            self._memory.forget(self)

    def _count_challenges(self) -> None:
        """Those that were told have left when nothing waits in the transport."""
        transport = self._transport
        if not transport.is_closing() and transport.get_write_buffer_size() == 0:
            self._challenges.left(self._numbering.read + unread_bytes(transport))

    def _regulate(self) -> None:
        """Read on, or stop reading."""
        if self.closed:
            return
        limits = self._limits
        memory = self._memory
        roomy = self._bytes + self._buffered <= memory.allowance or self.number in memory.turns
        if not roomy and not self.muted:
            memory.hold_back(self)
        reading = (
            self._writing
            and not self.blocked
            and not self.muted
            and not (self.throttled and self._pending)
            and not self.queued
            and not self._ending
            and len(self._pending) < limits.requests_max
            and self._bytes < limits.bytes_max
            and roomy
        )
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._active_ms = self._server.node.boot_ms()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _stop_reading(self) -> None:
        if not self._reading and not self.closed and self._transport.is_reading():
            self._transport.pause_reading()

    def _count_buffered(self, *, began: bool) -> None:
        """Tell the server what the frame under way takes, and whether another one was before."""
        if self.closed:
            return
        buffered = self._splitter.buffered_bytes
        if buffered != self._buffered:
            self._memory.hold(buffered - self._buffered)
            self._buffered = buffered
            if began:
                self._memory.set_receiving(self, receiving=False)
            if buffered:
                self._memory.set_receiving(self, receiving=True)

    def _release(self, call: Call) -> None:
        self._bytes -= call.frame_bytes + REQUEST_BYTES
        self._memory.hold(-call.frame_bytes - REQUEST_BYTES)

    # The end.

    def _finish(self) -> None:
        if not self.closed:
            self._closing(self._ending_kind, self._ending)
            self._transport.close()

    def _closing(self, kind: str, reason: str) -> None:
        """Let go of everything; what handlers still answer goes nowhere."""
        self.closed = True
        self._active_ms = self._server.node.boot_ms()
        stats = self._server.node.stats
        stats.count_closed(kind)
        level = logging.DEBUG if kind == "client" else logging.INFO
        logger.log(level, "connection %d from %s closed: %s", self.number, self.peer, reason)
        self._waiting.clear()
        for call in self._pending:
            call.drop()
        self._pending.clear()
        held = self._bytes + self._buffered
        self._bytes = 0
        self._buffered = 0
        self._memory.hold(-held)
        self._memory.forget(self)
        self._server.mutes.forget(self)
        self._server.starts.forget(self)
