"""TLS of the tools, against a listener's, both in memory: who is believed, and what is said if not."""

import ssl
from pathlib import Path

import pytest

from broker.client import tls_failures
from broker.client.client_settings import client_settings_of
from broker.client.client_tls import client_context
from broker.edge.key_stores import TlsError
from broker.node import EdgeStats
from tests.kit.certificates import Authority
from tests.kit.tls import listener_of


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def context(**given: str) -> ssl.SSLContext:
    """Of a client with these settings (`ssl.` and dots left out)."""
    named = {f"ssl.{name.replace('_', '.')}": text for name, text in given.items()}
    settings = client_settings_of({"security.protocol": "SSL", **named}).tls
    assert settings is not None
    return client_context(settings)


def trusting(authority: Authority, **given: str) -> ssl.SSLContext:
    return context(truststore_type="PEM", truststore_certificates=authority.pem, **given)


def shake(client: ssl.SSLContext, server: ssl.SSLContext, host: str = "localhost") -> bytes | None:
    """Both ends shake hands, and the client hears a byte; the certificate that it showed."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=host)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = {near.do_handshake, far.do_handshake}
    failures: list[ssl.SSLError] = []
    while waiting:
        for step in (near.do_handshake, far.do_handshake):
            if step in waiting:
                try:
                    step()
                    waiting.discard(step)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError as error:
                    failures.append(error)
                    waiting.discard(step)
                    if step == near.do_handshake:
                        raise
        if failures:
            near.read(1)  # What the other side has against it.
    far.write(b"x")
    assert near.read(1) == b"x"
    return far.getpeercert(binary_form=True)


def test_a_certificate_of_the_authority_is_believed(authority: Authority) -> None:
    server = listener_of(authority.sign(), EdgeStats()).context
    shake(trusting(authority), server)
    shake(trusting(authority), server, "127.0.0.1")


def test_a_truststore_may_be_pkcs12(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "trust.p12").write_bytes(authority.own.pkcs12("secret"))
    client = context(
        truststore_type="PKCS12",
        truststore_location=str(tmp_path / "trust.p12"),
        truststore_password="secret",
    )
    shake(client, listener_of(authority.sign(), EdgeStats()).context)


def test_a_certificate_of_somebody_else_is_not(authority: Authority) -> None:
    stranger = Authority("a stranger")
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        shake(trusting(stranger), listener_of(authority.sign(), EdgeStats()).context)
    told = tls_failures.sentence(refused.value)
    assert told.startswith("its certificate is not taken: ")
    assert "ssl.truststore.location" in told


def test_the_certificate_must_be_for_the_host_unless_that_is_switched_off(
    authority: Authority,
) -> None:
    server = listener_of(authority.sign(), EdgeStats()).context
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        shake(trusting(authority), server, "elsewhere.example.com")
    assert "elsewhere.example.com" in tls_failures.sentence(refused.value)
    shake(
        trusting(authority, endpoint_identification_algorithm=""), server, "elsewhere.example.com"
    )


def test_a_certificate_that_has_ended_is_not_believed(authority: Authority) -> None:
    ended = authority.sign(days=-1, begun_days=9)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake(trusting(authority), listener_of(ended, EdgeStats()).context)


def test_a_client_shows_its_own_certificate(authority: Authority) -> None:
    own = authority.sign("CN=client")
    server = listener_of(
        authority.sign(), EdgeStats(), authority=authority, client_auth="required"
    ).context
    client = trusting(
        authority,
        keystore_type="PEM",
        keystore_certificate_chain=own.certificate_pem,
        keystore_key=own.key_pem("secret"),
        key_password="secret",
    )
    assert shake(client, server) == own.der


def test_who_shows_none_where_one_is_asked_for_is_told_so(authority: Authority) -> None:
    server = listener_of(
        authority.sign(), EdgeStats(), authority=authority, client_auth="required"
    ).context
    with pytest.raises(ssl.SSLError) as refused:
        shake(trusting(authority), server)
    assert "ssl.keystore.location" in tls_failures.sentence(refused.value)


def test_a_store_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="cannot be read: No such file"):
        context(truststore_type="PEM", truststore_location=str(tmp_path / "nowhere.pem"))


def test_the_end_of_a_connection_passes() -> None:
    assert tls_failures.is_passing(ssl.SSLEOFError())
    assert not tls_failures.is_passing(ssl.SSLError())
