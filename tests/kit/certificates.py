"""Certificates for tests: an authority of its own, and what it signs, as the bytes of files."""

import datetime as dt
import ipaddress
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

DAY = dt.timedelta(days=1)


class Signed(NamedTuple):
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def pem(self) -> str:
        """As `ssl.keystore.location` has it."""
        return self.key_pem() + self.certificate_pem

    def pkcs12(self, password: str) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"agent", self.key, self.certificate, None, encryption
        )

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)


def name_of(text: str) -> x509.Name:
    """`CN=client1,O=Oracle`, the most specific part first; a name alone is a CN."""
    if "=" not in text:
        text = f"CN={text}"
    return x509.Name.from_rfc4514_string(text)


class Authority:
    """It signs for whoever asks."""

    def __init__(self, name: str = "authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = name_of(name)
        self.own = Signed(self.key, self._certificate(self.subject, self.key, is_authority=True))

    @property
    def pem(self) -> str:
        return self.own.certificate_pem

    def sign(self, name: str = "localhost", *, days: int = 30, begun_days: int = 1) -> Signed:
        """For a name; it holds for localhost and 127.0.0.1. `days` < 0: it has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = name_of(name)
        return Signed(key, self._certificate(subject, key, days=days, begun_days=begun_days))

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        days: int = 30,
        begun_days: int = 1,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - begun_days * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )
        if is_authority:
            usage = x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(usage, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        return builder.sign(self.key, hashes.SHA256())
