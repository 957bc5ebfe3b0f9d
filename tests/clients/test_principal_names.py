"""Names of principals beside Kafka's own: what Java says of subjects, and Kafka of rules."""

import itertools
import subprocess

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID as Oid

from broker.rights.principal_names import NoRuleError, PrincipalRules, rfc2253
from tests.clients.host import java

pytestmark = pytest.mark.integration

TEXTS = (
    *("a", "a,b", "a+b", "a=b", "#a", "a#", " a", "a ", "  a  b  ", '"a"', "a\\b", "<a>;", "/"),
    *("Zoë Müller", "日本", "a\tb", "a\nb", "a'b(c):?", "*.example.com", "a_b@c!", " "),
)
KINDS = (
    *(Oid.COMMON_NAME, Oid.ORGANIZATION_NAME, Oid.ORGANIZATIONAL_UNIT_NAME, Oid.LOCALITY_NAME),
    *(Oid.STATE_OR_PROVINCE_NAME, Oid.STREET_ADDRESS, Oid.DOMAIN_COMPONENT, Oid.USER_ID),
    *(Oid.EMAIL_ADDRESS, Oid.SERIAL_NUMBER, Oid.TITLE, Oid.GIVEN_NAME, Oid.SURNAME),
    *(Oid.DN_QUALIFIER, Oid.GENERATION_QUALIFIER, Oid.PSEUDONYM, Oid.BUSINESS_CATEGORY),
)
RULES = (
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
    "RULE:^CN=(.*?),O=(.*?)$/$1@$2/,RULE:^CN=(.*)$/$1$2/U",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    r"RULE:^CN=(.*)\/x$/$1\/y/, DEFAULT",
    "RULE:(.*)/x$1y/",
    "RULE:CN=a/b/, RULE:.*/c/",
    "RULE:^(.)(.)(.*)$/$3$12/",
    r"RULE:^CN=(.*?)\,O=.*$/$1/,DEFAULT",
    "default",
    "RULE:a/b",
    "RULE:a/b/LL",
    "RULE:a/b/L,,DEFAULT",
)


def names() -> list[x509.Name]:
    one = [x509.Name([x509.NameAttribute(Oid.COMMON_NAME, text)]) for text in TEXTS]
    kinds = [
        x509.Name([x509.NameAttribute(Oid.COUNTRY_NAME, "DE"), x509.NameAttribute(kind, "a,b c")])
        for kind in KINDS
    ]
    encodings = [
        x509.Name([x509.NameAttribute(kind, "a@b", encoding)])
        for kind in (Oid.COMMON_NAME, Oid.EMAIL_ADDRESS)
        for encoding in (
            *(_ASN1Type.IA5String, _ASN1Type.UTF8String, _ASN1Type.BMPString),
            *(_ASN1Type.T61String, _ASN1Type.UniversalString, _ASN1Type.VisibleString),
        )
    ]
    both = x509.RelativeDistinguishedName(
        [x509.NameAttribute(Oid.COMMON_NAME, "a"), x509.NameAttribute(Oid.USER_ID, "b")]
    )
    last = x509.RelativeDistinguishedName([x509.NameAttribute(Oid.ORGANIZATION_NAME, "o")])
    return [*one, *kinds, *encodings, x509.Name([both]), x509.Name([last, both]), x509.Name([])]


def subjects_of_rules() -> list[x509.Name]:
    texts = ("CN=a", "CN=Client1,O=Oracle", "CN=a/x", "O=Oracle", "CN=a,O=b,C=DE")
    return [x509.Name.from_rfc4514_string(text) for text in texts]


def ours(subject: bytes, rules: str) -> tuple[str, str]:
    name = rfc2253(subject)
    try:
        return name, f"={PrincipalRules(rules).principal(name)}"
    except NoRuleError:
        return name, "NoMatchingRule"
    except ValueError:
        return name, "IllegalArgumentException"


def test_names_and_principals_are_those_of_kafka() -> None:
    cases = [(name.public_bytes(), "DEFAULT") for name in names()]
    cases += [
        (name.public_bytes(), rules)
        for name, rules in itertools.product(subjects_of_rules(), RULES)
    ]
    done = subprocess.run(
        java("Names.java"),
        input="".join(f"{subject.hex()}\t{rules}\n" for subject, rules in cases),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    kafkas = [
        tuple(bytes.fromhex(part).decode() for part in line.split("\t"))
        for line in done.stdout.splitlines()
    ]
    assert len(kafkas) == len(cases)
    wrong = [
        (rules, theirs, mine)
        for (subject, rules), theirs in zip(cases, kafkas, strict=True)
        if (mine := ours(subject, rules)) != theirs
    ]
    assert not wrong
