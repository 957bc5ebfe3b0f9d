"""Bearer tokens: which are taken, and the one reason for each that is not (RFC 7519, KIP-768)."""

import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from broker.sasl.tokens import (
    NO_KEYS,
    Invalid,
    KeyPlace,
    TokenRules,
    UnknownKey,
    Valid,
    judged,
    keys_of,
)
from tests.kit.tokens import EcIssuer, RsaIssuer, encoded, key_set, part, unsigned

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
RULES = TokenRules(
    keys=KeyPlace(url="file:/keys"), audiences=("kafka", "other"), issuer="https://issuer"
)
UNSIGNED = TokenRules(keys=None, skew_ms=0)
CLAIMS = {
    "sub": "alice",
    "iss": "https://issuer",
    "aud": "kafka",
    "iat": NOW_S - 10,
    "exp": NOW_S + 60,
}
ISSUER, CURVE = RsaIssuer(), EcIssuer()
KEYS = keys_of(key_set(ISSUER, CURVE))
ALICE = Valid("alice", NOW_MS + 60_000)


def verdict_of(token, rules=RULES, keys=KEYS, now_ms=NOW_MS):
    return judged(token, rules, keys=keys, now_ms=now_ms)


def reason(verdict) -> str:
    assert isinstance(verdict, Invalid), verdict
    return verdict.reason


@pytest.mark.parametrize("issuer", [ISSUER, CURVE], ids=["RS256", "ES256"])
def test_a_token_that_the_issuer_has_signed_is_its_users(issuer):
    assert verdict_of(issuer.token(CLAIMS)) == ALICE


def test_a_token_may_be_for_several():
    assert verdict_of(ISSUER.token(CLAIMS | {"aud": ["nobody", "other"]})) == ALICE


def test_without_an_audience_or_an_issuer_in_the_settings_any_will_do():
    rules = TokenRules(keys=RULES.keys)
    claims = {name: CLAIMS[name] for name in ("sub", "iat", "exp")}
    assert verdict_of(ISSUER.token(claims), rules) == ALICE


def test_the_claims_of_user_and_scope_may_have_other_names():
    rules = replace(RULES, user_claim="upn", scope_claim="scp", required_scope=("write",))
    token = ISSUER.token(CLAIMS | {"upn": "bob", "scp": ["read", "write"]})
    assert verdict_of(token, rules) == Valid("bob", ALICE.ends_ms)


def test_headers_that_nobody_knows_are_read_over():
    assert verdict_of(ISSUER.token(CLAIMS, nonce="x", x5t="y", typ="at+jwt")) == ALICE


@pytest.mark.parametrize("named", [["x"], ["kid"], ["b64"], [], "x"])
def test_a_token_of_which_something_must_be_understood_is_not_taken(named):
    """RFC 7515, section 4.1.11. joserfc lets pass what it knows by name, such as a chain of keys."""
    header = {"kid": "first", "x": 1, "b64": True, "crit": named}
    assert "crit" in reason(verdict_of(ISSUER.token(CLAIMS, **header)))


def test_a_token_without_a_key_id_is_tried_with_the_only_key_that_fits():
    assert verdict_of(ISSUER.token(CLAIMS, kid=None)) == ALICE
    two = keys_of(key_set(ISSUER, RsaIssuer("second")))
    assert "which key" in reason(verdict_of(ISSUER.token(CLAIMS, kid=None), keys=two))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": None}, "when it ends"),
        ({"exp": "soon"}, "no number"),
        ({"exp": True}, "no number"),
        ({"exp": 1e300}, "out of bounds"),
        ({"exp": -1}, "out of bounds"),
        ({"iat": None}, "when it was issued"),
        ({"iat": NOW_S + 31}, "of the future (iat)"),
        ({"nbf": NOW_S + 31}, "of the future (nbf)"),
        ({"exp": NOW_S + 5, "nbf": NOW_S + 5}, "before it begins"),
        ({"sub": None}, "no user"),
        ({"sub": ""}, "no user"),
        ({"sub": " "}, "no user"),
        ({"sub": ["alice"]}, "no user"),
        ({"aud": "another"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": {"kafka": 1}}, "neither text nor texts (aud)"),
        ({"iss": "https://other"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"scope": 7}, "neither text nor texts (scope)"),
    ],
)
def test_each_claim_has_its_refusal(changed, told):
    claims = {name: value for name, value in (CLAIMS | changed).items() if value is not None}
    assert told in reason(verdict_of(ISSUER.token(claims)))


def test_skew_makes_up_for_clocks_that_differ():
    assert isinstance(
        verdict_of(ISSUER.token(CLAIMS | {"iat": NOW_S - 90, "exp": NOW_S - 29})), Valid
    )
    assert isinstance(verdict_of(ISSUER.token(CLAIMS | {"iat": NOW_S + 29})), Valid)


def test_a_token_that_was_changed_is_not_the_issuers():
    header, _, signature = ISSUER.token(CLAIMS).split(".")
    assert "signature" in reason(
        verdict_of(f"{header}.{part(CLAIMS | {'sub': 'mallory'})}.{signature}")
    )


def test_a_token_that_somebody_else_has_signed_is_not_the_issuers():
    stranger = RsaIssuer("stranger")
    stranger.key_id = ISSUER.key_id
    assert "signature" in reason(verdict_of(stranger.token(CLAIMS)))


@pytest.mark.parametrize("algorithm", ["none", "NONE", "HS256", "RS1", "", None, 7, ["RS256"]])
def test_algorithms_without_a_private_key_are_never_taken(algorithm):
    header = {"alg": algorithm, "kid": ISSUER.key_id}
    assert "algorithm" in reason(verdict_of(f"{part(header)}.{part(CLAIMS)}."))


def test_a_mac_by_a_public_key_is_no_signature():
    """Whoever knows the public key could make it."""
    for keys in (KEYS, keys_of(json.dumps({"keys": [ISSUER.jwk(), octets()]}).encode())):
        said = f"{part({'alg': 'HS256', 'kid': 'octets'})}.{part(CLAIMS)}"
        mac = hmac.digest(b"key", said.encode(), hashlib.sha256)
        assert "algorithm" in reason(verdict_of(f"{said}.{encoded(mac)}", keys=keys))


def octets():
    return {"kty": "oct", "kid": "octets", "k": encoded(b"key")}


def test_a_key_that_is_not_there_is_unknown():
    assert verdict_of(RsaIssuer("second").token(CLAIMS)) == UnknownKey()
    assert verdict_of(ISSUER.token(CLAIMS), keys=NO_KEYS) == UnknownKey()


@pytest.mark.parametrize(
    "more", [{"use": "enc"}, {"alg": "RS512"}, {"key_ops": ["encrypt"]}, {"kty": "none"}]
)
def test_a_key_for_something_else_signs_nothing(more):
    keys = keys_of(json.dumps({"keys": [ISSUER.jwk(**more), CURVE.jwk()]}).encode())
    assert verdict_of(ISSUER.token(CLAIMS), keys=keys) == UnknownKey()


def test_a_key_of_another_kind_does_not_fit_an_algorithm():
    assert verdict_of(ISSUER.token(CLAIMS, kid=CURVE.key_id)) == UnknownKey()


def test_a_key_that_is_too_small_is_not_trusted():
    small = RsaIssuer("small", bits=1024)
    keys = keys_of(key_set(small, CURVE))
    assert verdict_of(small.token(CLAIMS), keys=keys) == UnknownKey()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"7",
        b'{"keys": 7}',
        b'{"keys": []}',
        b'{"keys": [{}, 7, null, {"kty": "RSA"}]}',
        b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        b'{"keys": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_set_of_keys_is_refused(text):
    with pytest.raises(ValueError, match="it "):
        keys_of(text)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "a.b.c.d",
        f"{part({'alg': 'RS256', 'kid': 'first', 'crit': ['x']})}.{part(CLAIMS)}.AAAA",
        f"{part({'alg': 'RS256', 'kid': ['first']})}.{part(CLAIMS)}.AAAA",
        f"{part({'alg': 'RS256', 'kid': {}})}.{part(CLAIMS)}.AAAA",
        f"{part([])}.{part(CLAIMS)}.AAAA",
        f"{part('alg')}.{part(CLAIMS)}.AAAA",
        f"{encoded(b'[' * 5000)}.{part(CLAIMS)}.AAAA",
        f"{encoded(b'9' * 9000)}.{part(CLAIMS)}.AAAA",
        f"{part({'alg': 'RS256', 'kid': 'first', 'b64': False, 'crit': ['b64']})}.x.AAAA",
        f"{part({'alg': 'ES256', 'kid': 'curve'})}.{part(CLAIMS)}.",
        f"{part({'alg': 'ES256', 'kid': 'curve'})}.{part(CLAIMS)}.{encoded(bytes(64))}",
    ],
)
def test_what_is_no_token_is_refused_and_nothing_is_raised(token):
    for rules in (RULES, UNSIGNED):
        assert not isinstance(verdict_of(token, rules), Valid)


def test_what_is_signed_must_be_claims():
    said = f"{part({'alg': 'RS256', 'kid': 'first'})}.{part([1])}"
    assert "read" in reason(verdict_of(f"{said}.{encoded(ISSUER.sign(said.encode()))}"))


# Tokens without a signature, where they are asked for.


def test_a_token_without_a_signature_is_taken_where_that_is_asked_for_and_nowhere_else():
    claims = {"sub": "alice", "exp": NOW_S + 60}
    assert verdict_of(unsigned(claims), UNSIGNED) == ALICE
    assert "algorithm" in reason(verdict_of(unsigned(claims)))
    assert "without a signature" in reason(verdict_of(ISSUER.token(claims), UNSIGNED))
    assert "without a signature" in reason(verdict_of(unsigned(claims) + "AAAA", UNSIGNED))


def test_a_scope_that_is_required_and_lacks_is_told():
    rules = replace(UNSIGNED, required_scope=("read", "write"))
    claims = {"sub": "alice", "exp": NOW_S + 60}
    assert verdict_of(unsigned(claims | {"scope": "write read"}), rules) == ALICE
    verdict = verdict_of(unsigned(claims | {"scope": "write"}), rules)
    assert verdict == Invalid("it lacks a scope", "read write")


def test_no_reason_repeats_what_a_token_says():
    for claims in (CLAIMS | {"aud": "hidden"}, CLAIMS | {"exp": "hidden"}, {"sub": "hidden"}):
        assert "hidden" not in reason(verdict_of(ISSUER.token(claims)))
