"""An authority of one's own: what it signs, clients believe, for the hosts that were named."""

import ssl

import pytest
from cryptography import x509

from broker.trial import authority
from broker.trial.authority import CertifiedKey, Validity

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
YEAR = Validity(NOW_MS, 365)


@pytest.fixture(scope="module")
def own() -> CertifiedKey:
    return authority.new_authority("trial", YEAR)


def test_the_key_store_is_a_pkcs8_key_and_then_its_certificate(own: CertifiedKey) -> None:
    signed = authority.sign(own, "agent1", ["agent1.example.com"], YEAR)
    lines = signed.pem.decode().splitlines()
    assert lines[0] == "-----BEGIN PRIVATE KEY-----"
    assert lines[-1] == "-----END CERTIFICATE-----"
    assert "PRIVATE" not in repr(signed)


def test_a_certificate_is_for_names_and_addresses(own: CertifiedKey) -> None:
    hosts = ["agent1.example.com", "10.0.0.1", "::1"]
    signed = x509.load_pem_x509_certificate(authority.sign(own, "agent1", hosts, YEAR).certificate)
    found = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["agent1.example.com"]
    assert [str(each) for each in found.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]


def test_it_ends_when_it_was_said_to(own: CertifiedKey) -> None:
    signed = authority.sign(own, "agent1", [], Validity(NOW_MS, 30))
    assert authority.ends_ms(signed.certificate) == NOW_MS + 30 * DAY_MS


def test_it_is_known_who_signed(own: CertifiedKey) -> None:
    other = authority.new_authority("trial", YEAR)
    signed = authority.sign(own, "agent1", [], YEAR)
    assert authority.is_signed_by(signed.certificate, own.certificate)
    assert not authority.is_signed_by(signed.certificate, other.certificate)


def test_openssl_takes_the_authority_by_its_strictest_rules(own: CertifiedKey) -> None:
    context = ssl.create_default_context(cadata=own.certificate.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    (found,) = context.get_ca_certs()
    assert found["subject"] == ((("commonName", "trial"),),)
