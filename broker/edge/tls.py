"""What Kafka's settings of TLS mean to OpenSSL, and what its errors mean to people. Pure."""

from collections.abc import Sequence
from typing import Final, NamedTuple

_TLS_1_3_SUITES: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
_KEY_EXCHANGES: Final = ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "RSA")
_CIPHERS: Final = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
}

FAILURES: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate",
    "CERTIFICATE_VERIFY_FAILED": "certificate",
    "UNSUPPORTED_PROTOCOL": "protocol",
    "NO_SHARED_CIPHER": "protocol",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "protocol",
    "NO_PROTOCOLS_AVAILABLE": "protocol",
    "VERSION_TOO_LOW": "protocol",
    "WRONG_VERSION_NUMBER": "not tls",
    "HTTP_REQUEST": "not tls",
}
"""Words of the metric for reasons of OpenSSL."""
_ALERT: Final = "_ALERT_"


class Versions(NamedTuple):
    """Which versions of TLS are spoken, and with which suites of 1.2."""

    oldest: str
    newest: str
    """TLSv1.2 or TLSv1.3."""
    ciphers: str
    """For OpenSSL; "" are the library's own."""


def versions_of(protocols: Sequence[str], suites: Sequence[str]) -> Versions:
    """From `ssl.enabled.protocols` and `ssl.cipher.suites`. Raises ValueError with a sentence.

    Suites of TLS 1.3 cannot be chosen one by one: all three are spoken, or that version is not.
    """
    newer = [suite for suite in suites if suite in _TLS_1_3_SUITES]
    older = [_openssl_name(suite) for suite in suites if suite not in _TLS_1_3_SUITES]
    spoken = [version for version in ("TLSv1.2", "TLSv1.3") if version in protocols]
    if suites and not newer:
        spoken = [version for version in spoken if version != "TLSv1.3"]
    if suites and not older:
        spoken = [version for version in spoken if version != "TLSv1.2"]
    if not spoken:
        raise ValueError("no version of ssl.enabled.protocols has a suite of ssl.cipher.suites")
    if newer and len(newer) < len(_TLS_1_3_SUITES) and "TLSv1.3" in spoken:
        missing = ", ".join(sorted(_TLS_1_3_SUITES - set(newer)))
        raise ValueError(
            "ssl.cipher.suites: of TLS 1.3 all suites are spoken or none;"
            f" add {missing}, or leave TLSv1.3 out of ssl.enabled.protocols"
        )
    return Versions(spoken[0], spoken[-1], ":".join(older))


def _openssl_name(suite: str) -> str:
    name = suite.removeprefix("TLS_").removeprefix("SSL_")
    for exchange in _KEY_EXCHANGES:
        cipher = name.removeprefix(f"{exchange}_WITH_")
        if cipher != name and cipher in _CIPHERS:
            prefix = "" if exchange == "RSA" else f"{exchange.replace('_', '-')}-"
            return prefix + _CIPHERS[cipher]
    raise ValueError(f"ssl.cipher.suites: {suite} is not a suite that is spoken here")


def failure_of(reason: str) -> str:
    """A word or two for the metric, from OpenSSL's reason for a failed handshake."""
    if _ALERT in reason:
        # The client said so: it does not trust this agent's certificate, most often.
        return "refused by client"
    return FAILURES.get(reason, "other")
