"""A certificate authority of one's own, and what it signs, as PEM.

For trying out, and for clusters without another authority: one key, no intermediate, no revocation.
Keys are of the curve P-256, which all clients of Kafka know, in PKCS#8, which Java wants. Times are
arguments, ms since the epoch; keys and serial numbers are the library's.

Left out: files (`broker.trial.certificate_files`).
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from typing_extensions import override

BACKDATED: Final = timedelta(hours=1)
"""For clients whose clocks are behind."""


class CertifiedKey(NamedTuple):
    """A key and the certificate for it, each as PEM."""

    key: bytes
    certificate: bytes

    @property
    def pem(self) -> bytes:
        """Both, as a key store of Kafka's type PEM has them."""
        return self.key + self.certificate

    @override
    def __repr__(self) -> str:
        return "CertifiedKey(…)"


class Validity(NamedTuple):
    """From when on, in ms since the epoch, and how long."""

    begin_ms: int
    days: int


def new_authority(name: str, validity: Validity) -> CertifiedKey:
    """An authority of this common name, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(subject, subject, key, validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _certified(key, builder.sign(key, hashes.SHA256()))


def sign(
    authority: CertifiedKey, name: str, hosts: Sequence[str], validity: Validity
) -> CertifiedKey:
    """A new key and its certificate, for an agent under these hosts or for a client of this name.

    `hosts`: names and addresses. Raises ValueError when one is neither.
    """
    own = load_pem_private_key(authority.key, None)
    assert isinstance(own, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(_name(name), issuer.subject, key, validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(own.public_key()), critical=False
        )
    )
    if hosts:
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(alternatives, critical=False)
    return _certified(key, builder.sign(own, hashes.SHA256()))


def ends_ms(certificate: bytes) -> int:
    """When a certificate (PEM) ends, ms since the epoch. Raises ValueError when it is none."""
    found = x509.load_pem_x509_certificate(certificate)
    return int(found.not_valid_after_utc.timestamp() * 1000)


def is_signed_by(certificate: bytes, authority: bytes) -> bool:
    """Whether the authority's key signed the certificate, both PEM. Raises ValueError for others."""
    signed = x509.load_pem_x509_certificate(certificate)
    try:
        signed.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, validity: Validity
) -> x509.CertificateBuilder:
    begin = datetime.fromtimestamp(validity.begin_ms / 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - BACKDATED)
        .not_valid_after(begin + timedelta(days=validity.days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _certified(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> CertifiedKey:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return CertifiedKey(private, certificate.public_bytes(Encoding.PEM))
