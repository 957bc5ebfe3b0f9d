"""What the settings of OAUTHBEARER say, and which are mistakes."""

import pytest

from broker.sasl.bearer_rules import SIGNED_HANDLERS, UNSIGNED_HANDLER
from broker.sasl.jaas import BEARER_MODULE, SCRAM_MODULE
from broker.sasl.rules import key_places, rules_of
from broker.sasl.tokens import KeyPlace, TokenRules

URL = "https://issuer.example:8443/realms/one/keys?of=all"
HANDLER = "sasl.server.callback.handler.class"
SIGNED = {"sasl.oauthbearer.jwks.endpoint.url": URL}
JAAS = "sasl.jaas.config"


def rules(**given) -> TokenRules | None:
    return rules_of({"OAUTHBEARER": given}).tokens


def test_a_key_set_is_all_that_is_needed():
    assert rules(**SIGNED) == TokenRules(keys=KeyPlace(url=URL))


@pytest.mark.parametrize("handler", SIGNED_HANDLERS)
def test_kafkas_class_for_signed_tokens_may_be_named_as_before_and_since_4_0(handler):
    assert rules(**SIGNED, **{HANDLER: handler}) == rules(**SIGNED)


def test_each_setting_has_its_place():
    told = {
        "clock.skew.seconds": "5",
        "expected.audience": "kafka, other",
        "expected.issuer": "https://issuer",
        "jwks.endpoint.refresh.ms": "1000",
        "jwks.endpoint.retry.backoff.ms": "10",
        "jwks.endpoint.retry.backoff.max.ms": "20",
        "scope.claim.name": "scp",
        "sub.claim.name": "upn",
    }
    trusted = f'{BEARER_MODULE} required ssl.truststore.location="/ca.pem";'
    given = SIGNED | {f"sasl.oauthbearer.{name}": text for name, text in told.items()}
    assert rules(**given, **{JAAS: trusted}) == TokenRules(
        keys=KeyPlace(
            url=URL, refresh_ms=1000, backoff_ms=10, backoff_max_ms=20, trusted="/ca.pem"
        ),
        audiences=("kafka", "other"),
        issuer="https://issuer",
        skew_ms=5_000,
        user_claim="upn",
        scope_claim="scp",
    )


def test_tokens_without_a_signature_are_for_who_names_kafkas_class():
    options = (
        'unsecuredValidatorPrincipalClaimName="upn" unsecuredValidatorScopeClaimName="scp"'
        ' unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="3000"'
    )
    jaas = f"{BEARER_MODULE} required {options};"
    assert rules(**{HANDLER: UNSIGNED_HANDLER, JAAS: jaas}) == TokenRules(
        keys=None,
        skew_ms=3_000,
        user_claim="upn",
        scope_claim="scp",
        required_scope=("a", "b"),
    )


def test_without_options_the_class_for_unsigned_tokens_has_kafkas_defaults():
    assert rules(**{HANDLER: UNSIGNED_HANDLER}) == TokenRules(keys=None, skew_ms=0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "keys of the tokens' issuer are needed"),
        ({HANDLER: SIGNED_HANDLERS[0]}, "keys of the tokens' issuer are needed"),
        ({HANDLER: "a.B"}, "it is none of org"),
        (SIGNED | {JAAS: f"{SCRAM_MODULE} required;"}, "login module is org"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://issuer/keys"}, "come by https"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://"}, "come by https"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://u:hidden@issuer/keys"}, "come by https"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:keys"}, "come by https"),
        (SIGNED | {"sasl.oauthbearer.clock.skew.seconds": "-1"}, "skew.seconds: "),
        (SIGNED | {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "refresh.ms: "),
        (
            {
                HANDLER: UNSIGNED_HANDLER,
                JAAS: f'{BEARER_MODULE} required unsecuredValidatorAllowableClockSkewMs="-1";',
            },
            "AllowableClockSkewMs: ",
        ),
        (
            SIGNED
            | {
                JAAS: f'{BEARER_MODULE} required ssl.truststore.location="a"'
                ' ssl.truststore.type="JKS";'
            },
            "PEM file",
        ),
    ],
)
def test_a_mistake_is_told_without_secrets(given, sentence):
    with pytest.raises(ValueError, match=sentence) as told:
        rules(**given)
    assert "hidden" not in str(told.value)


def test_only_signed_tokens_need_keys():
    signed = rules_of({"OAUTHBEARER": SIGNED})
    unsigned = rules_of({"OAUTHBEARER": {HANDLER: UNSIGNED_HANDLER}})
    scram = rules_of({"SCRAM-SHA-512": {}})
    assert key_places([signed, unsigned, scram]) == [KeyPlace(url=URL)]
