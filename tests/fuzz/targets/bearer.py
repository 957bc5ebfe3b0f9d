"""OAUTHBEARER: messages of clients, tokens with broken parts, strange tokens that an issuer did sign, key sets.

An input is a byte that says what it is for, and the parts with BETWEEN between them:

    MESSAGES   a client's messages, in which `@n@` stands for one of the issuer's tokens
    SIGNED     header and claims of a token that the issuer signs
    KEYS       a JWK Set

Nobody is let in but by what the issuer has signed, and as whom that names. The issuer's key is always
the same, so that an input is enough to see a finding again.
"""

import json
import random
import re
from base64 import urlsafe_b64encode
from collections.abc import Hashable
from typing import Any, ClassVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typing_extensions import override

from broker.sasl.bearer import BearerExchange
from broker.sasl.exchange import Authenticated, Challenge, Step, Undecided
from broker.sasl.tokens import KeyPlace, TokenRules, keys_of
from tests.fuzz.target import Target, WrongError, words
from tests.fuzz.targets.sasl import BETWEEN

MESSAGES, SIGNED, KEYS = range(3)
NOW_S = 1_800_000_000
URL = "https://issuer.example/keys"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


JWK = {"kty": "OKP", "crv": "Ed25519", "kid": "first", "x": encoded(PUBLIC)}
RULES = TokenRules(keys=KeyPlace(url=URL), audiences=("kafka",), issuer="https://issuer.example")
HEADER = {"alg": "EdDSA", "kid": "first"}
CLAIMS = {
    "sub": "alice",
    "iss": "https://issuer.example",
    "aud": ["kafka"],
    "iat": NOW_S - 60,
    "exp": NOW_S + 600,
}


def signed(header: bytes, claims: bytes) -> str:
    """The issuer's token of this header and these claims."""
    said = f"{encoded(header)}.{encoded(claims)}"
    return f"{said}.{encoded(KEY.sign(said.encode()))}"


def token(header: dict[str, Any], claims: dict[str, Any]) -> str:
    return signed(json.dumps(header).encode(), json.dumps(claims).encode())


GOOD = token(HEADER, CLAIMS)
TOKENS = (
    GOOD,
    token(HEADER, CLAIMS | {"exp": NOW_S - 600}),
    token(HEADER, CLAIMS | {"aud": "another"}),
    token(HEADER, CLAIMS | {"sub": " "}),
    token(HEADER | {"kid": "second"}, CLAIMS),
)
"""What an attacker may have seen; by the first one alone somebody may be let in."""
_NAMED = re.compile(rb"@(\d)@")

# Parts of tokens that somebody makes up, and headers that an issuer may put there.
_HEADERS: tuple[dict[str, Any], ...] = (
    *(HEADER, {"alg": "EdDSA"}, {"alg": "none"}, {"alg": "NONE", "kid": "first"}, {}),
    *({"alg": "HS256", "kid": "first"}, {"alg": "ES256"}, {"alg": ["EdDSA"]}, {"alg": 7}),
    *(HEADER | {"kid": 1}, HEADER | {"kid": None}, HEADER | {"kid": ["first"]}),
    *(HEADER | {"jwk": JWK}, HEADER | {"jku": URL}, HEADER | {"x5c": ["AAAA"] * 50}),
    *(HEADER | {"crit": ["x"], "x": 1}, HEADER | {"crit": ["b64"], "b64": False}),
    *(HEADER | {"crit": []}, HEADER | {"crit": "alg"}, HEADER | {"zip": "DEF"}),
    HEADER | {"b64": False},
)
_CLAIMS: tuple[dict[str, Any], ...] = (
    *(CLAIMS, {}, CLAIMS | {"sub": None}, CLAIMS | {"sub": ["alice"]}, CLAIMS | {"sub": "a" * 999}),
    *(CLAIMS | {"exp": each} for each in (None, "soon", True, 1e300, -1, NOW_S + 0.5, 1 << 70)),
    *(CLAIMS | {"iat": each} for each in (None, NOW_S + 3600, [], float("nan"))),
    *(CLAIMS | {"nbf": each} for each in (NOW_S + 3600, NOW_S - 1, {})),
    *(CLAIMS | {"aud": each} for each in ("kafka", ["x", 1], [["kafka"]], {"kafka": 1}, [])),
    *(
        CLAIMS | {"iss": each}
        for each in (None, ["https://issuer.example"], "HTTPS://ISSUER.EXAMPLE")
    ),
    *(CLAIMS | {"scope": each} for each in ("a b", ["a"], 7, {"a": 1})),
)
_RAW = (b"[]", b"7", b"", b"{", b"\xff", b"[" * 9000, b'{"alg":"none","alg":"EdDSA"}', b"null")
_SIGNATURES = ("", "AAAA", "A" * 86, "=", "A" * 5000, "@0@")
_BEARERS = ("Bearer ", "bearer ", "BEARER  ", "Basic ", "Bearer", "")
_HEADS = ("n,,", "n,a=alice,", "n,a=bob,", "n,a=al=2Cice,", "y,,", "p=x,,", "n,a=,", "n", "")
_PAIRS = (
    "",
    "",
    "cluster=one\x01",
    "auth=Bearer @0@\x01",
    "a=\x01",
    "=b\x01",
    "x" * 4000 + "=1\x01",
)
_ENDS = ("\x01", "", "\x01\x01", "\0")
_LATER = (b"\x01", b"\x01", b"", b"n,,\x01auth=Bearer @0@\x01\x01", b"\x01\x01")


def _text(rng: random.Random, some: tuple[dict[str, Any], ...]) -> bytes:
    if rng.random() < 0.15:
        return rng.choice(_RAW)
    return json.dumps(rng.choice(some) | (rng.choice(some) if rng.random() < 0.2 else {})).encode()


def _made_up(rng: random.Random) -> str:
    """A token that nobody has signed, or a reference to one that the issuer has."""
    if rng.random() < 0.4:
        return f"@{rng.randrange(len(TOKENS))}@"
    parts = [encoded(_text(rng, _HEADERS)), encoded(_text(rng, _CLAIMS)), rng.choice(_SIGNATURES)]
    if rng.random() < 0.2:
        parts = rng.choice((parts[:2], parts[:1], [*parts, "A"], [*parts, "A", "A"], parts[::-1]))
    return ".".join(parts)


def _first(rng: random.Random) -> bytes:
    """A client's first message by its grammar (RFC 7628, section 3.1), more or less."""
    auth = "auth=" if rng.random() < 0.9 else rng.choice(("AUTH=", ""))
    said = (
        f"{auth}{rng.choice(_BEARERS[:3] if rng.random() < 0.95 else _BEARERS)}{_made_up(rng)}\x01"
    )
    pairs = [said, rng.choice(_PAIRS[:3] if rng.random() < 0.9 else _PAIRS)]
    rng.shuffle(pairs)
    head = rng.choice(_HEADS[:3] if rng.random() < 0.95 else _HEADS)
    return f"{head}\x01{''.join(pairs)}{rng.choice(_ENDS[:1] if rng.random() < 0.9 else _ENDS)}".encode()


def _key_set(rng: random.Random) -> bytes:
    rows: list[Any] = [
        JWK | rng.choice(({}, {"use": "enc"}, {"kty": "oct"}, {"x": "AA"}, {"alg": "RS256"}))
        for _ in range(rng.choice((0, 1, 2, 300)))
    ]
    rows += [rng.choice(({"kty": "RSA", "n": "AQAB", "e": "AQAB"}, {"kty": ["OKP"]}, 7, None))]
    return json.dumps(rng.choice(({"keys": rows}, {"keys": {}}, rows))).encode()


class Bearer(Target):
    name: ClassVar[str] = "bearer"

    def __init__(self) -> None:
        self._keys = keys_of(json.dumps({"keys": [JWK]}).encode())

    @override
    def generate(self, rng: random.Random) -> bytes:
        kind = rng.choice((MESSAGES, MESSAGES, SIGNED, KEYS))
        if kind == MESSAGES:
            later = [rng.choice(_LATER) for _ in range(rng.choice((0, 0, 1, 2)))]
            parts = [_first(rng), *later]
        elif kind == SIGNED:
            parts = [_text(rng, _HEADERS), _text(rng, _CLAIMS)]
        else:
            parts = [_key_set(rng)]
        return bytes([kind]) + BETWEEN.join(parts)

    @override
    def run(self, data: bytes) -> Hashable:
        kind, rest = (data[0] if data else 0) % 3, data[1:]
        if kind == KEYS:
            return _read(rest)
        if kind == SIGNED:
            header, _, claims = rest.partition(BETWEEN)
            shown = signed(header, claims)
            return self._talk([f"n,,\x01auth=Bearer {shown}\x01\x01".encode()], header, claims)
        messages = [
            _NAMED.sub(lambda found: TOKENS[int(found[1]) % len(TOKENS)].encode(), message)
            for message in rest.split(BETWEEN)
        ]
        return self._talk(messages, json.dumps(HEADER).encode(), json.dumps(CLAIMS).encode())

    def _talk(self, messages: list[bytes], header: bytes, claims: bytes) -> Hashable:
        """`header`, `claims`: of the only token by which somebody may be let in."""
        exchange = BearerExchange(RULES, keys=lambda _: self._keys, now_ms=lambda: NOW_S * 1000)
        said = f"{encoded(header)}.{encoded(claims)}".encode()
        steps: list[Hashable] = []
        for message in messages:
            step = _decided(exchange.respond(message))
            if isinstance(step, Authenticated):
                if said not in message:
                    raise WrongError(f"let in as {step.user} by a token that nobody signed")
                _check(step, json.loads(header), json.loads(claims))
            steps.append(type(step).__name__ + words(getattr(step, "reason", "")))
            if not isinstance(step, Challenge):
                break
        return tuple(steps)


def _decided(step: Step) -> Step:
    """As in a thread of the agent, with the keys that there are."""
    for _ in range(3):
        if not isinstance(step, Undecided):
            return step
        step = step.decide()
    raise WrongError("it is never decided")


def _check(step: Authenticated, header: Any, claims: Any) -> None:
    """What must be so of every token that is taken, said once more."""
    if "crit" in header:
        raise WrongError(
            "a token is taken of which something must be understood (RFC 7515, 4.1.11)"
        )
    if step.user != claims["sub"].strip():
        raise WrongError("somebody is let in as somebody else")
    if step.ends_ms is None or step.ends_ms != int(claims["exp"] * 1000):
        raise WrongError("the session outlives the token")
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if "kafka" not in audiences or claims["iss"] != RULES.issuer:
        raise WrongError("a token for somebody else is taken")


def _read(text: bytes) -> Hashable:
    try:
        return "keys", len(keys_of(text))
    except ValueError as error:
        return words(error)
