"""The states of a connection on a SASL listener, as of Kafka's SaslServerAuthenticator. Pure.

    VERSIONS ── ApiVersions ──▶ HANDSHAKE ── SaslHandshake ──▶ AUTHENTICATE ──▶ COMPLETE
        └──────────────────── SaslHandshake ──────────────────────▲    │           │
                                                                  └────┼─ again ◀──┘
    FAILED ◀───────────────────────────────────────────────────────────┘

What holds: before COMPLETE nothing is admitted but what stands in `ADMITTED`. A refusal is final: its
answer says so, and the connection is to be closed after it. With SaslHandshake v0 the client's messages
come without headers from then on, and an answer that says more than the mechanism cannot be given.

Authenticating again (KIP-368) begins with a handshake on a connection that is COMPLETE, and neither
mechanism nor user may change by it. A session ends with its lifetime, or before that with the token
that it was begun by. Who let it pass is not served any more, unless it never could know of it
(SaslAuthenticate v0).

Left out: when an answer leaves, and the close (`broker.edge`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, assert_never

from broker.sasl.exchange import Authenticated, Challenge, Exchange, Refused, Step, Undecided
from broker.sasl.rules import SaslRules
from protocol import apis
from protocol.errors import ErrorCode

REAUTHENTICATION_MS_MIN: Final = 1_000
"""A handshake that comes sooner after the one before is none (KIP-368)."""
LIFETIME_TOLD_SINCE: Final = 1
"""Version of SaslAuthenticate."""
FRAMED_SINCE: Final = 1
"""Version of SaslHandshake."""


class State(Enum):
    """What a connection may send next."""

    VERSIONS = auto()
    """ApiVersions, once; or SaslHandshake."""
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    FAILED = auto()


ADMITTED: Final = {
    State.VERSIONS: {apis.API_VERSIONS, apis.SASL_HANDSHAKE},
    State.HANDSHAKE: {apis.SASL_HANDSHAKE},
    State.AUTHENTICATE: {apis.SASL_AUTHENTICATE},
    State.FAILED: frozenset[int](),
}
"""By state, the APIs whose requests are not a reason to close; in COMPLETE it is any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeAnswer:
    """What is told of a mechanism that was asked for."""

    error: ErrorCode = ErrorCode.NONE
    mechanisms: tuple[str, ...] = ()
    refused: str = ""
    """Why, for the log; the connection ends with the answer. Empty: it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateAnswer:
    """What is told of a message of a mechanism."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    data: bytes = b""
    lifetime_ms: int = 0
    """Of the session that has begun; 0: without end."""
    user: str | None = None
    """Whose the connection is from now on."""
    by_token: bool = False
    """The user came by a delegation token."""
    refused: str = ""
    """As of `HandshakeAnswer`."""


ILLEGAL_HANDSHAKE: Final = HandshakeAnswer(error=ErrorCode.ILLEGAL_SASL_STATE)
ILLEGAL_AUTHENTICATE: Final = AuthenticateAnswer(
    error=ErrorCode.ILLEGAL_SASL_STATE,
    message="SaslAuthenticate request received after successful authentication",
)
"""Of a connection that has nothing to authenticate; it goes on, as in Kafka."""


class Authentication:
    """One connection's."""

    def __init__(self, rules: SaslRules, begin: Callable[[str], Exchange]) -> None:
        """`begin` makes the exchange of a mechanism, which is one of the rules'."""
        self._rules = rules
        self._begin = begin
        self.state = State.VERSIONS
        self.mechanism = ""
        """The last one that was asked for and is served."""
        self._user: str | None = None
        """Who has authenticated itself."""
        self._user_mechanism = ""
        self._exchange: Exchange | None = None
        self.bare = False
        """The next message comes without a header."""
        self._again_ms: int | None = None
        """When it last began to authenticate itself again."""
        self._ends_ms: int | None = None
        """When the session ends, by the boot-time clock; None: never."""

    @property
    def frame_bytes_max(self) -> int:
        """Until it has authenticated itself for the first time."""
        return self._rules.frame_bytes_max

    @property
    def is_complete(self) -> bool:
        """It has authenticated itself, and does not just do it again."""
        return self.state is State.COMPLETE

    def has_expired(self, boot_ms: int) -> bool:
        """The session is over, and the client knew when it would be."""
        return self.is_complete and self._ends_ms is not None and boot_ms >= self._ends_ms

    def admits(self, api_key: int) -> bool:
        """Whether a request of this kind may come next; else the connection is to be closed."""
        return self.is_complete or api_key in ADMITTED[self.state]

    @property
    def answers_others(self) -> bool:
        """Whether a request that is not admitted is answered, in its own shape, before the close."""
        return self.state is State.AUTHENTICATE

    def told_versions(self) -> None:
        """ApiVersions was answered without an error."""
        if self.state is State.VERSIONS:
            self.state = State.HANDSHAKE

    def handshake(self, mechanism: str, *, version: int, boot_ms: int) -> HandshakeAnswer:
        """The client wants this mechanism."""
        if self.is_complete:
            since_ms = None if self._again_ms is None else boot_ms - self._again_ms
            if since_ms is not None and since_ms < REAUTHENTICATION_MS_MIN:
                return ILLEGAL_HANDSHAKE
            self._again_ms = boot_ms
        served = self._rules.mechanisms
        if mechanism not in served:
            self.state = State.FAILED
            reason = "it asks for a mechanism that is not enabled"
            return HandshakeAnswer(
                error=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=served, refused=reason
            )
        self.state = State.AUTHENTICATE
        self.mechanism = mechanism
        self.bare = version < FRAMED_SINCE
        self._exchange = self._begin(mechanism)
        return HandshakeAnswer(mechanisms=served)

    def authenticate(
        self, message: bytes, *, version: int, boot_ms: int, now_ms: int = 0
    ) -> AuthenticateAnswer | Undecided:
        """A message of the mechanism. `version` is that of SaslAuthenticate; 0 for bare ones.

        Undecided: what it comes to is for `decided`, and until then no other message is taken.
        """
        if self.is_complete:
            return ILLEGAL_AUTHENTICATE
        assert self.state is State.AUTHENTICATE
        assert self._exchange is not None
        if self._user is not None and self.mechanism != self._user_mechanism:
            sentence = (
                f"SASL mechanism '{self.mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{self._user_mechanism}'"
            )
            return self._refused("another mechanism than before", sentence)
        step = self._exchange.respond(message)
        if isinstance(step, Undecided):
            return step
        return self.decided(step, version=version, boot_ms=boot_ms, now_ms=now_ms)

    def decided(self, step: Step, *, version: int, boot_ms: int, now_ms: int) -> AuthenticateAnswer:
        """What is told of the step that the newest message has led to."""
        match step:
            case Challenge(data):
                return AuthenticateAnswer(data=data)
            case Refused(reason, told):
                return self._refused(reason, told)
            case Authenticated():
                return self._completed(step, version=version, boot_ms=boot_ms, now_ms=now_ms)
            case Undecided():
                raise AssertionError(step)
            case _:
                assert_never(step)

    def _completed(
        self, step: Authenticated, *, version: int, boot_ms: int, now_ms: int
    ) -> AuthenticateAnswer:
        user = step.user
        if self._user not in {None, user}:
            sentence = (
                "Cannot change principals during re-authentication from"
                f" User.{self._user}: User.{user}"
            )
            return self._refused("another user than before", sentence)
        self.state = State.COMPLETE
        self._user, self._user_mechanism = user, self.mechanism
        self._exchange = None
        self.bare = False
        lifetime_ms = self._rules.lifetime_ms(self.mechanism)
        if step.ends_ms is not None:
            # 0 would mean "without end"; skew lets in what has ended by a little.
            left_ms = max(1, step.ends_ms - now_ms)
            lifetime_ms = min(lifetime_ms or left_ms, left_ms)
        knows = version >= LIFETIME_TOLD_SINCE
        self._ends_ms = boot_ms + lifetime_ms if lifetime_ms and knows else None
        return AuthenticateAnswer(
            data=step.data, lifetime_ms=lifetime_ms, user=user, by_token=step.by_token
        )

    def _refused(self, reason: str, sentence: str | None) -> AuthenticateAnswer:
        self.state = State.FAILED
        self._exchange = None
        attempt = "authentication" if self._user is None else "re-authentication"
        if sentence is None:
            sentence = (
                f"Authentication failed during {attempt} due to invalid credentials with SASL"
                f" mechanism {self.mechanism}"
            )
        return AuthenticateAnswer(
            error=ErrorCode.SASL_AUTHENTICATION_FAILED,
            message=sentence,
            refused=f"{self.mechanism}: {reason}",
        )
