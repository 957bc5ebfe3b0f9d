"""Keys and certificates of every form that Kafka's settings may have; and what is said of others."""

from base64 import b64encode
from functools import cache

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, pkcs12

from broker.config.listeners import listeners_of
from broker.edge.key_stores import Material, TlsError, material_of
from tests.kit.certificates import Authority, Signed

JKS = b"\xfe\xed\xfe\xed" + bytes(20)


@cache
def authority() -> Authority:
    return Authority()


@cache
def signed() -> Signed:
    return authority().sign("agent")


def material(files: dict[str, bytes | str] | None = None, **given: str) -> Material:
    """Of a listener with these settings (underscores for dots) and files."""
    named = {f"ssl.{name.replace('_', '.')}": text for name, text in given.items()}
    parsed = listeners_of({"listeners": "SSL://:1"} | named)
    assert parsed.mistakes == []
    tls = parsed.listeners[0].tls
    assert tls is not None

    def read(location: str) -> bytes:
        if location not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory")
        data = (files or {})[location]
        return data.encode() if isinstance(data, str) else data

    return material_of(tls, read)


def expected() -> Material:
    return material({"k": signed().pem}, keystore_type="PEM", keystore_location="k")


def test_a_file_of_pem_has_the_key_and_the_chain():
    found = expected()
    assert found.chain.decode() == signed().certificate_pem
    assert found.subject == "CN=agent"
    assert found.ends_ms == int(signed().certificate.not_valid_after_utc.timestamp() * 1000)


def test_the_order_of_key_and_chain_and_what_stands_between_do_not_matter():
    text = f"Bag Attributes: é\n{signed().certificate_pem}\n# more\n{signed().key_pem()}"
    assert material({"k": text}, keystore_type="PEM", keystore_location="k") == expected()


def test_the_chain_is_kept_whole_and_in_its_order():
    text = signed().pem + authority().pem
    found = material({"k": text}, keystore_type="PEM", keystore_location="k")
    assert found.chain.decode() == signed().certificate_pem + authority().pem


def test_an_encrypted_key_is_opened_by_its_password():
    text = signed().key_pem("hush") + signed().certificate_pem
    given = {"keystore_type": "PEM", "keystore_location": "k"}
    assert material({"k": text}, key_password="hush", **given) == expected()
    with pytest.raises(TlsError, match=r"set ssl\.key\.password"):
        material({"k": text}, **given)
    with pytest.raises(TlsError, match=r"ssl\.key\.password is not its password") as raised:
        material({"k": text}, key_password="wrong", **given)
    assert "wrong" not in str(raised.value)


def test_certificates_in_the_settings_may_have_lost_their_lines():
    found = material(
        keystore_type="PEM",
        keystore_certificate_chain=signed().certificate_pem.replace("\n", " "),
        keystore_key=signed().key_pem().replace("\n", ""),
    )
    assert found == expected()


@pytest.mark.parametrize("kind", [{"keystore_type": "PKCS12"}, {}], ids=["named", "by default"])
def test_pkcs12_is_read_also_where_no_type_is_set(kind: dict[str, str]):
    """Java's default type reads both, and keytool has written PKCS#12 since Java 9."""
    found = material(
        {"k": signed().pkcs12("hush")}, keystore_location="k", keystore_password="hush", **kind
    )
    assert found == expected()


def test_a_truststore_is_pem_or_pkcs12():
    store = pkcs12.serialize_key_and_certificates(
        None, None, None, [authority().own.certificate], BestAvailableEncryption(b"hush")
    )
    keys = {"keystore_type": "PEM", "keystore_location": "k"}
    files = {"k": signed().pem, "t": authority().pem, "t12": store}
    of_pem = material(files, truststore_type="PEM", truststore_location="t", **keys)
    of_store = material(files, truststore_location="t12", truststore_password="hush", **keys)
    in_line = material(
        files, truststore_type="PEM", truststore_certificates=authority().pem, **keys
    )
    assert of_pem.trusted == of_store.trusted == in_line.trusted == authority().pem


@pytest.mark.parametrize(
    ("files", "given", "reason"),
    [
        ({}, {"type": "PEM"}, "cannot be read: No such file"),
        ({"k": JKS}, {"password": "hush"}, "keytool -importkeystore"),
        ({"k": b"junk"}, {"password": "hush"}, "not PKCS#12 that this password opens"),
        ({"k": b"junk\xff"}, {"type": "PEM"}, "is not PEM"),
        ({"k": "junk"}, {"type": "PEM"}, "has no private keys"),
    ],
)
def test_what_cannot_be_used_is_said_with_the_file(files, given, reason):
    settings = {f"keystore_{name}": text for name, text in given.items()}
    with pytest.raises(TlsError, match=reason) as raised:
        material(files, keystore_location="k", **settings)
    assert "ssl.keystore.location: k" in str(raised.value)
    assert "hush" not in str(raised.value)


def test_pem_that_is_not_called_so_is_told():
    with pytest.raises(TlsError, match="set its type to PEM"):
        material({"k": signed().pem}, keystore_location="k")


def test_a_key_of_another_certificate_is_refused():
    text = authority().sign().key_pem() + signed().certificate_pem
    with pytest.raises(TlsError, match="not that of the first certificate"):
        material({"k": text}, keystore_type="PEM", keystore_location="k")


def test_secrets_are_not_shown():
    assert "PRIVATE" not in repr(expected())


P256 = bytes.fromhex("06082a8648ce3d030107")
"""The name of the curve in a certificate's public key."""


@pytest.mark.parametrize("broken", [P256[:-1] + b"\x77", P256[:-2] + b"\x7f\x07"])
@pytest.mark.parametrize("setting", ["keystore", "truststore"])
def test_a_certificate_with_a_key_of_a_strange_kind_is_refused_or_taken_and_nothing_else(
    broken: bytes, setting: str
):
    der = signed().certificate.public_bytes(Encoding.DER)
    assert der.count(P256) == 1
    body = b64encode(der.replace(P256, broken)).decode()
    strange = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
    own = strange if setting == "keystore" else signed().certificate_pem
    files: dict[str, bytes | str] = {"k": signed().key_pem() + own, "t": strange}
    given = {
        "keystore_type": "PEM",
        "keystore_location": "k",
        "truststore_type": "PEM",
        "truststore_location": "t",
    }
    if setting == "keystore":
        with pytest.raises(TlsError, match="not one that can be used"):
            material(files, **given)
    else:
        assert material(files, **given).trusted


def test_a_point_that_is_on_no_curve_is_refused():
    der = bytearray(signed().certificate.public_bytes(Encoding.DER))
    at = der.index(P256) + len(P256) + 3
    assert der[at] == 4  # An uncompressed point begins so.
    der[at + 5] ^= 1
    body = b64encode(bytes(der)).decode()
    text = f"{signed().key_pem()}-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
    with pytest.raises(TlsError, match="not one that can be used"):
        material({"k": text}, keystore_type="PEM", keystore_location="k")
