"""Which bearer tokens are taken, whose they are, and when they end (RFC 7519, KIP-768). Pure.

A token is a JWT in a JWS of three parts. Its signature is checked by joserfc (`broker.sasl.signatures`), with a key of the
issuer's that fits in kind, use and algorithm; claims are judged here, by Kafka's rules. Only
asymmetric algorithms are taken: with "none", or a MAC by a key that is public, anybody could sign.

Tokens without a signature are taken only where that is asked for by name: they are for trying out,
as anybody may write them (Kafka's OAuthBearerUnsecuredValidatorCallbackHandler).

Left out: where keys come from (`broker.sasl.key_sets`). No reason that is given repeats a claim.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from broker.sasl.signatures import SigningKey

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512"),
    *("PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
    *("EdDSA", "Ed25519"),
)
"""That sign by a private key (RFC 7518, section 3.1; RFC 8037; RFC 9864)."""
KEYS_MAX: Final = 200
"""Of one key set."""
PARTS: Final = 3
SECONDS_MAX: Final = 1 << 40
"""No time in a token is greater: far beyond all calendars."""
_UNREADABLE: Final = (ValueError, TypeError, LookupError, RecursionError)
"""Whatever a token is made of, one of these is what comes of reading it here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlace:
    """Where the keys of an issuer are, and how often they are looked at."""

    url: str
    """`https:` or `file:`."""
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    trusted: str = ""
    """A PEM file of the authorities that may certify the endpoint; "": those of the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a listener asks of tokens."""

    keys: KeyPlace | None
    """None: tokens without a signature are taken, and no others."""
    audiences: tuple[str, ...] = ()
    """A token must be for one of these; (): any will do."""
    issuer: str | None = None
    skew_ms: int = 30_000
    """By so much clocks may differ."""
    user_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Valid:
    """A token that is taken."""

    user: str
    ends_ms: int
    """ms since the epoch."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """A token that is not."""

    reason: str
    """For the log."""
    missing_scope: str = ""
    """What it lacks, if that is all."""


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """It names a key that is not there, or not yet."""


Verdict = Valid | Invalid | UnknownKey


class SigningKeys:
    """The public keys of an issuer."""

    def __init__(self, keys: "Sequence[SigningKey]" = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def key_ids(self) -> list[str]:
        """For logs."""
        return [str(key.get("kid", "")) for key in self._keys]

    def fitting(self, key_id: str | None, algorithm: str) -> "list[SigningKey]":
        """Those that may have signed by this algorithm, of this id if one is named."""
        from broker.sasl.signatures import fits

        named = [key for key in self._keys if key_id is None or key.get("kid") == key_id]
        return [key for key in named if fits(key, algorithm)]


NO_KEYS: Final = SigningKeys()


def keys_of(text: bytes) -> SigningKeys:
    """The keys of a JWK Set (RFC 7517) that tokens can be signed by; others are read over.

    Raises ValueError with the end of a sentence.
    """
    from broker.sasl.signatures import key_of

    try:
        rows = json.loads(text)["keys"]
    except _UNREADABLE:
        raise ValueError("it is not a JWK Set") from None
    if not isinstance(rows, list) or len(rows) > KEYS_MAX:
        raise ValueError(f"it has no list of at most {KEYS_MAX} keys")
    keys = [key for row in rows if (key := key_of(row)) is not None]
    if not keys:
        raise ValueError("it has no key that tokens can be signed by")
    return SigningKeys(keys)


def judged(token: str, rules: TokenRules, *, keys: SigningKeys, now_ms: int) -> Verdict:
    """What becomes of a token. Never raises."""
    try:
        if rules.keys is None:
            claims = _unsigned_claims(token)
        else:
            signed = _signed_claims(token, keys)
            if isinstance(signed, UnknownKey):
                return signed
            claims = signed
        return _judged_claims(claims, rules, now_ms)
    except _NotTakenError as error:
        return error.verdict
    except _UNREADABLE:
        return Invalid("it cannot be read")


class _NotTakenError(Exception):
    def __init__(self, reason: str, missing_scope: str = "") -> None:
        super().__init__(reason)
        self.verdict = Invalid(reason, missing_scope)


def _signed_claims(token: str, keys: SigningKeys) -> dict[str, Any] | UnknownKey:
    header = _json(_parts(token)[0])
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise _NotTakenError("its algorithm is none that is taken")
    if "crit" in header:  # RFC 7515, section 4.1.11.
        raise _NotTakenError("something in its header must be understood, and is not (crit)")
    fitting = keys.fitting(key_id, algorithm)
    if not fitting:
        return UnknownKey()
    if len(fitting) > 1 and key_id is None:
        raise _NotTakenError("it does not say which key has signed it")
    from broker.sasl.signatures import UNREADABLE, payload_of

    try:
        payload = payload_of(token, fitting[0], ALGORITHMS)
    except UNREADABLE:
        raise _NotTakenError("its signature is wrong") from None
    return _object(json.loads(payload))


def _unsigned_claims(token: str) -> dict[str, Any]:
    header, payload, signature = _parts(token)
    if _json(header).get("alg") != "none" or signature:
        raise _NotTakenError("only tokens without a signature are taken")
    return _json(payload)


def _parts(token: str) -> list[str]:
    parts = token.split(".")
    if len(parts) != PARTS:
        raise _NotTakenError("it does not have three parts")
    return parts


def _json(part: str) -> dict[str, Any]:
    return _object(json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    return value


def _judged_claims(claims: dict[str, Any], rules: TokenRules, now_ms: int) -> Valid:
    """Raises _NotTakenError."""
    issued_ms, ends_ms = _ms(claims, "iat"), _ms(claims, "exp")
    begins_ms = _ms(claims, "nbf")
    if ends_ms is None:
        raise _NotTakenError("it does not say when it ends (exp)")
    if rules.keys is not None and issued_ms is None:
        raise _NotTakenError("it does not say when it was issued (iat)")
    if ends_ms + rules.skew_ms <= now_ms:
        raise _NotTakenError("it has expired (exp)")
    for name, begun_ms in (("iat", issued_ms), ("nbf", begins_ms)):
        if begun_ms is not None and begun_ms - rules.skew_ms > now_ms:
            raise _NotTakenError(f"it is of the future ({name})")
        if begun_ms is not None and begun_ms >= ends_ms:
            raise _NotTakenError(f"it ends before it begins ({name})")
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not user.strip():
        raise _NotTakenError(f"it names no user ({rules.user_claim})")
    if rules.audiences and not {*rules.audiences} & {*_words(claims, "aud", split=False)}:
        raise _NotTakenError("it is for another audience (aud)")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise _NotTakenError("it is of another issuer (iss)")
    scope = _words(claims, rules.scope_claim, split=True)
    if not {*rules.required_scope} <= {*scope}:
        raise _NotTakenError("it lacks a scope", " ".join(rules.required_scope))
    return Valid(user.strip(), ends_ms)


def _ms(claims: dict[str, Any], name: str) -> int | None:
    """A time, in ms since the epoch."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _NotTakenError(f"a time of it is no number ({name})")
    if not 0 <= value <= SECONDS_MAX:
        raise _NotTakenError(f"a time of it is out of bounds ({name})")
    return int(value * 1000)


def _words(claims: dict[str, Any], name: str, *, split: bool) -> list[str]:
    """A claim that is one text, of words by blanks if they are split, or a list of texts."""
    value = claims.get(name)
    if value is None:
        return []
    if isinstance(value, str):
        return value.split() if split else [value]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [each.strip() for each in value]
    raise _NotTakenError(f"a claim of it is neither text nor texts ({name})")
