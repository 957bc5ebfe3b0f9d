"""Keys and certificates out of Kafka's stores: PEM and PKCS#12, from files or settings. Pure.

JKS is Java's own format, and refused with the command that converts it. A store whose type was not
set is called JKS by Kafka, and is PKCS#12 in fact since Java 9: what the file is decides.

Left out: reading files (an argument does), and contexts of OpenSSL (`broker.edge.tls_listener`).
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)
from typing_extensions import override

from broker.config.listeners import ClientAuth, StoreSettings, TlsSettings
from protocol.fault_codes import FaultCode, FaultError

_BLOCK: Final = re.compile(r"-+BEGIN\s+([A-Z0-9 ]+?)-+\s*(.*?)\s*-+END\s+\1-+", re.DOTALL)
_JKS_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")

ReadFile = Callable[[str], bytes]
"""Raises OSError."""


class TlsError(FaultError):
    """A store cannot be used; the sentence says why and what to do."""

    fault = FaultCode.TLS_FAILED


class Material(NamedTuple):
    """What a listener shows, and whom it trusts. Equal ones are the same."""

    key: bytes
    """PEM, PKCS#8, not encrypted."""
    chain: bytes
    """PEM, the listener's own certificate first."""
    trusted: str
    """PEM; "" is nobody."""
    ends_ms: int
    """When the listener's own certificate ends, ms since the epoch."""
    subject: str

    @override
    def __repr__(self) -> str:
        return f"Material({self.subject})"


def material_of(settings: TlsSettings, read: ReadFile) -> Material:
    """All of a listener. Raises TlsError."""
    try:
        return _material(settings, read)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        # Most parts of a certificate are looked at when they are asked for.
        raise TlsError(
            f"ssl.keystore, ssl.truststore: a certificate is not one that can be used: {error}"
        ) from error


def _material(settings: TlsSettings, read: ReadFile) -> Material:
    """The same. Raises what the library does, besides."""
    key, certificates = _key_and_chain(settings.keystore, read)
    own = certificates[0]
    if _public(key.public_key()) != _public(own.public_key()):
        raise TlsError("ssl.keystore: the key is not that of the first certificate")
    trusted = _trusted(settings.truststore, read) if settings.truststore.given else []
    return Material(
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        chain=b"".join(each.public_bytes(Encoding.PEM) for each in certificates),
        trusted=_pem_of(trusted),
        ends_ms=int(own.not_valid_after_utc.timestamp() * 1000),
        subject=own.subject.rfc4514_string(),
    )


def client_material_of(
    keystore: StoreSettings, truststore: StoreSettings, read: ReadFile
) -> Material:
    """All of a client, which need show nothing: key and chain are empty then. Raises TlsError."""
    if keystore.given:
        settings = TlsSettings(
            keystore=keystore,
            truststore=truststore,
            client_auth=ClientAuth.NONE,
            protocols=(),
            cipher_suites=(),
            principal_rules="",
        )
        return material_of(settings, read)
    try:
        trusted = _trusted(truststore, read) if truststore.given else []
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TlsError(
            f"ssl.truststore: a certificate is not one that can be used: {error}"
        ) from error
    return Material(key=b"", chain=b"", trusted=_pem_of(trusted), ends_ms=0, subject="")


def _pem_of(certificates: list[x509.Certificate]) -> str:
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def _public(key: Any) -> bytes:
    encoded: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _key_and_chain(store: StoreSettings, read: ReadFile) -> tuple[Any, list[x509.Certificate]]:
    if store.location is None:
        key = _key_of(store.key or "", store.key_password, "ssl.keystore.key")
        return key, _certificates(store.certificates or "", "ssl.keystore.certificate.chain")
    what = f"ssl.keystore.location: {store.location}"
    data = _data(store, what, read)
    if store.type == "PEM":
        text = _text(data, what)
        return _key_of(text, store.key_password, what), _certificates(text, what)
    found = _pkcs12(data, store.password, what)
    if found.key is None or found.cert is None:
        raise TlsError(f"{what} has no key with its certificate")
    others = [each.certificate for each in found.additional_certs]
    return found.key, [found.cert.certificate, *others]


def _trusted(store: StoreSettings, read: ReadFile) -> list[x509.Certificate]:
    if store.location is None:
        return _certificates(store.certificates or "", "ssl.truststore.certificates")
    what = f"ssl.truststore.location: {store.location}"
    data = _data(store, what, read)
    if store.type == "PEM":
        return _certificates(_text(data, what), what)
    found = _pkcs12(data, store.password, what)
    certificates = [each.certificate for each in found.additional_certs]
    if found.cert is not None:
        certificates.append(found.cert.certificate)
    if not certificates:
        raise TlsError(f"{what} has no certificate")
    return certificates


def _data(store: StoreSettings, what: str, read: ReadFile) -> bytes:
    assert store.location is not None
    try:
        data = read(store.location)
    except OSError as error:
        raise TlsError(f"{what} cannot be read: {error.strerror or error}") from error
    if data[:4] in _JKS_MAGICS:
        raise TlsError(
            f"{what} is Java's own format, which only Java reads; convert it with: keytool"
            f" -importkeystore -srckeystore {store.location} -destkeystore store.p12"
            " -deststoretype PKCS12, and set the type to PKCS12"
        )
    if store.type != "PEM" and b"-----BEGIN " in data:
        raise TlsError(f"{what} is PEM: set its type to PEM")
    return data


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        # Comments may be anything; what is between the marks is not.
        text = data.decode("latin-1")
        if "-----BEGIN " not in text:
            raise TlsError(f"{what} is not PEM") from None
        return text


def _blocks(text: str) -> list[tuple[str, bytes]]:
    """What each is called, and itself in lines, as not all who write settings leave them."""
    found = []
    for label, written in _BLOCK.findall(text):
        body = written
        if ":" not in written:  # Headers of keys that were encrypted the old way.
            packed = re.sub(r"\s+", "", written)
            body = "\n".join(packed[at : at + 64] for at in range(0, len(packed), 64))
        found.append((label, f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n".encode()))
    return found


def _key_of(text: str, password: str | None, what: str) -> Any:
    keys = [(label, block) for label, block in _blocks(text) if label.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise TlsError(f"{what} has {len(keys) or 'no'} private keys; one is needed (PKCS#8)")
    label, block = keys[0]
    encrypted = label == "ENCRYPTED PRIVATE KEY" or b"ENCRYPTED" in block[:200]
    if encrypted and password is None:
        raise TlsError(f"{what}: the key is encrypted; set ssl.key.password")
    try:
        return load_pem_private_key(block, password.encode() if encrypted and password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = "ssl.key.password is not its password, or it is broken" if encrypted else error
        raise TlsError(f"{what}: the key cannot be read: {reason}") from error


def _certificates(text: str, what: str) -> list[x509.Certificate]:
    found = []
    for label, block in _blocks(text):
        if label in ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"):
            try:
                found.append(x509.load_pem_x509_certificate(block))
            except ValueError as error:
                raise TlsError(f"{what} has a broken certificate: {error}") from error
    if not found:
        raise TlsError(f"{what} has no certificate")
    return found


def _pkcs12(data: bytes, password: str | None, what: str) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TlsError(f"{what} is not PKCS#12 that this password opens: {error}") from error
