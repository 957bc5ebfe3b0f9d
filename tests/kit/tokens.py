"""An issuer of bearer tokens for tests: JWTs and a JWK Set, made by hand (RFC 7515 to 7519)."""

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from typing_extensions import override

CONTROL_A = "\x01"


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: Any) -> str:
    return encoded(json.dumps(value).encode())


def _number(value: int, length: int = 0) -> str:
    return encoded(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The same for the same name: making one takes a while."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class RsaIssuer:
    """Signs with RS256."""

    algorithm = "RS256"

    def __init__(self, key_id: str = "first", bits: int = 2048) -> None:
        self.key_id = key_id
        self._key = rsa_key(key_id, bits)

    def jwk(self, **more: Any) -> dict[str, Any]:
        numbers = self._key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "kid": self.key_id,
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        } | more

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data, padding.PKCS1v15(), hashes.SHA256())

    def token(self, claims: dict[str, Any], **header: Any) -> str:
        """`header`: instead of what it would be; None leaves it out."""
        told = {"alg": self.algorithm, "kid": self.key_id} | header
        told = {name: value for name, value in told.items() if value is not None}
        said = f"{part(told)}.{part(claims)}"
        return f"{said}.{encoded(self.sign(said.encode()))}"


class EcIssuer(RsaIssuer):
    """Signs with ES256."""

    algorithm = "ES256"

    def __init__(self, key_id: str = "curve") -> None:
        self.key_id = key_id
        self._curve = ec_key(key_id)

    @override
    def jwk(self, **more: Any) -> dict[str, Any]:
        numbers = self._curve.public_key().public_numbers()
        return {
            "kty": "EC",
            "crv": "P-256",
            "kid": self.key_id,
            "x": _number(numbers.x, 32),
            "y": _number(numbers.y, 32),
        } | more

    @override
    def sign(self, data: bytes) -> bytes:
        r, s = decode_dss_signature(self._curve.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def key_set(*issuers: RsaIssuer) -> bytes:
    return json.dumps({"keys": [issuer.jwk() for issuer in issuers]}).encode()


def unsigned(claims: dict[str, Any]) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}."


def first_message(token: str, *, authorization_id: str = "", more: str = "") -> bytes:
    """What a client of OAUTHBEARER says (RFC 7628, section 3.1)."""
    named = f"a={authorization_id}" if authorization_id else ""
    return f"n,{named},\x01auth=Bearer {token}\x01{more}\x01".encode()
