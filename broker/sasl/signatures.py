"""Keys of issuers, and what is signed by them: what joserfc does for `broker.sasl.tokens`. Pure.

Imported when a token or a key set comes, since it brings the whole of cryptography with it.
"""

from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwa import JWS_ALGORITHMS, JWSAlgModel
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey
from typing_extensions import override

SigningKey = RSAKey | ECKey | OKPKey

RSA_BITS_MIN: Final = 2048
"""RFC 7518, section 3.3."""
HEADER_BYTES_MAX: Final = 8192
"""Of the header of a token; some carry a chain of certificates."""
UNREADABLE: Final = (JoseError, ValueError, TypeError, LookupError, RecursionError)
"""Whatever a token or a key is made of, one of these is what comes of reading it."""

_CODERS: Final = {each.name: each for each in JWS_ALGORITHMS}
_KINDS: Final = ("RSA", "EC", "OKP")
_LONG_MODULUS: Final = "n" * (RSA_BITS_MIN // 6 + 1)
"""As long as one of RSA_BITS_MIN in base64, six bits a letter."""


class _Registry(jws.JWSRegistry):
    """What joserfc may be told by a token: headers that it does not know are read over."""

    max_header_length = HEADER_BYTES_MAX

    @override
    def get_alg(self, name: str) -> JWSAlgModel:
        return _CODERS[name]


def key_of(row: Any) -> SigningKey | None:
    """A key of a JWK Set; None for one that no token can be signed by. Never raises."""
    try:
        # What is too small is left out before joserfc warns of it.
        if row["kty"] not in _KINDS or len(row.get("n", _LONG_MODULUS)) < len(_LONG_MODULUS):
            return None
        key = JWKRegistry.import_key(row)
        if isinstance(key, RSAKey) and key.public_key.key_size < RSA_BITS_MIN:
            return None
    except UNREADABLE:
        return None
    return key if isinstance(key, RSAKey | ECKey | OKPKey) else None


def fits(key: SigningKey, algorithm: str) -> bool:
    """Whether it may have signed by this algorithm."""
    try:
        _CODERS[algorithm].check_key(key)
        key.check_use("sig")
        key.check_alg(algorithm)
        key.check_key_op("verify")
    except JoseError:
        return False
    return True


def payload_of(token: str, key: SigningKey, algorithms: tuple[str, ...]) -> bytes:
    """What was signed by this key, by one of these algorithms. Raises one of UNREADABLE."""
    registry = _Registry(algorithms=algorithms, strict_check_header=False)
    return jws.deserialize_compact(token, key, registry=registry).payload or b""
