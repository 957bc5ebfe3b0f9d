"""Names of principals, as Kafka makes them of certificates (KIP-371)."""

import contextlib

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID as Oid
from hypothesis import given
from hypothesis import strategies as st

from broker.rights.principal_names import NoRuleError, PrincipalRules, rfc2253


def der(*parts: tuple[x509.ObjectIdentifier, str]) -> bytes:
    """A subject, the least specific part first, as certificates have it."""
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in parts]).public_bytes()


def test_the_most_specific_part_comes_first():
    subject = der(
        (Oid.COUNTRY_NAME, "US"), (Oid.ORGANIZATION_NAME, "Oracle"), (Oid.COMMON_NAME, "c")
    )
    assert rfc2253(subject) == "CN=c,O=Oracle,C=US"


def test_a_subject_of_one_part_and_an_empty_one():
    assert rfc2253(der((Oid.COMMON_NAME, "client1"))) == "CN=client1"
    assert rfc2253(der()) == ""


def test_parts_with_several_attributes_are_joined_by_a_plus():
    both = x509.RelativeDistinguishedName(
        [x509.NameAttribute(Oid.COMMON_NAME, "a"), x509.NameAttribute(Oid.USER_ID, "b")]
    )
    other = x509.RelativeDistinguishedName([x509.NameAttribute(Oid.ORGANIZATION_NAME, "o")])
    alone = rfc2253(x509.Name([both]).public_bytes())
    assert sorted(alone.split("+")) == ["CN=a", "UID=b"]
    assert rfc2253(x509.Name([other, both]).public_bytes()) == f"{alone},O=o"


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("a,b", "a\\,b"),
        ("a+b=c", "a\\+b\\=c"),
        ("#a", "\\#a"),
        (' a" ', '\\ a\\"\\ '),
        ("a  b", "a  b"),
        ("a\\b<>;", "a\\\\b\\<\\>\\;"),
        ("Zoë Müller", "Zoë Müller"),
        ("  ", "\\ \\ "),
    ],
)
def test_what_has_a_meaning_in_names_is_escaped(text: str, spelled: str):
    assert rfc2253(der((Oid.COMMON_NAME, text))) == f"CN={spelled}"


def test_attributes_that_rfc_2253_has_no_word_for_are_numbers_with_their_bytes():
    mail = x509.NameAttribute(Oid.EMAIL_ADDRESS, "a@b", _ASN1Type.IA5String)
    subject = x509.Name([mail]).public_bytes()
    assert rfc2253(subject) == "1.2.840.113549.1.9.1=#1603614062"
    assert rfc2253(der((Oid.SERIAL_NUMBER, "7"))) == "2.5.4.5=#130137"


def test_domain_parts_and_user_ids_have_words():
    subject = der((Oid.DOMAIN_COMPONENT, "example"), (Oid.USER_ID, "u"))
    assert rfc2253(subject) == "UID=u,DC=example"


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_subject_that_is_cut_off_is_an_error(cut: int):
    with pytest.raises(ValueError, match="cut off"):
        rfc2253(der((Oid.COMMON_NAME, "client1"))[:cut])


@given(st.binary(max_size=80))
def test_whatever_a_certificate_has_as_its_subject_is_a_name_or_an_error(subject: bytes):
    with contextlib.suppress(ValueError):
        assert isinstance(rfc2253(subject), str)


# Rules.


def named(rules: str, name: str) -> str:
    return PrincipalRules(rules).principal(name)


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),.*$/$1/L,DEFAULT", "CN=Client1,O=Oracle", "client1"),
        ("RULE:^CN=(.*?),.*$/$1/L,DEFAULT", "O=Oracle", "O=Oracle"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka,OU=ServiceUsers,O=x", "kafka"),
        ("RULE:^CN=(.*?)$/$1@$2/U", "CN=a", "A@$2"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2.$3/L", "CN=A,OU=B,O=C", "a@b.c"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "OU=x,cn=Duke.x,O=y", "duke.x"),
        (r"RULE:^CN=(.*)\/x$/$1\/y/, DEFAULT", "CN=a/x", "a/y"),
        (r"RULE:^CN=(.*?)\,.*$/$1/", "CN=a,O=b", "a"),
        ("RULE:^(.)(.)$/$12/", "ab", "a2"),
        ("", "CN=a", None),
        ("RULE:^CN=(.*)$/$1/", "O=a", None),
    ],
)
def test_the_first_rule_whose_pattern_matches_the_whole_name_wins(rules, name, principal):
    if principal is None:
        with pytest.raises(NoRuleError, match="no rule"):
            named(rules, name)
    else:
        assert named(rules, name) == principal


@pytest.mark.parametrize(
    "rules",
    ["default", "RULE:^CN=(.*)$", "RULE:a/b", "RULE:(a/b/", "RULE:^(?=CN)(.*)$/$1/", "RULE:a/b/XX"],
)
def test_rules_that_cannot_be_read_are_refused(rules: str):
    with pytest.raises(ValueError, match=r"."):
        PrincipalRules(rules)
