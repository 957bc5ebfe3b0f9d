"""What the settings of OAUTHBEARER say: which tokens a listener takes (KIP-255, KIP-768). Pure.

Kafka's handler class that checks signatures is meant where a JWKS endpoint is named; tokens without
a signature are taken only where Kafka's class for them is named, never by default as in Kafka.
"""

import re
from collections.abc import Mapping
from typing import Final

from broker.config import values
from broker.config.config_row import INT_MAX, LONG_MAX
from broker.sasl import jaas
from broker.sasl.tokens import KeyPlace, TokenRules

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
SIGNED_HANDLERS: Final = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's class, and its name before 4.0."""
UNSIGNED_HANDLER: Final = (
    f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
SETTING: Final = "sasl.oauthbearer."
KEYS_URL: Final = f"{SETTING}jwks.endpoint.url"
_OPTION: Final = "unsecuredValidator"
_URL: Final = re.compile(r"https://[^/@?#\s]+(?:[/?][^\s#]*)?|file:(?://)?/[^\s?#]+")


def token_rules(
    handler: str, given: Mapping[str, str], module: jaas.LoginModule | None
) -> TokenRules:
    """The rules of a listener. Raises ValueError with the end of a sentence.

    `handler`: the class that was named, or ""; `module`: of `sasl.jaas.config`, if there is one.
    """
    options: Mapping[str, str] = {} if module is None else module.options
    url = given.get(KEYS_URL, "").strip()
    if handler == UNSIGNED_HANDLER:
        return _unsigned(options)
    if handler not in {"", *SIGNED_HANDLERS}:
        raise ValueError(
            "sasl.server.callback.handler.class: it is none of"
            f" {', '.join((*SIGNED_HANDLERS, UNSIGNED_HANDLER))}"
        )
    if not url:
        raise ValueError(f"{KEYS_URL}: the keys of the tokens' issuer are needed (https:, file:)")
    place = _place(url, given, options)
    audiences = given.get(f"{SETTING}expected.audience", "").split(",")
    skew_s = _number(given, "clock.skew.seconds", 30, minimum=0, maximum=INT_MAX)
    return TokenRules(
        keys=place,
        audiences=tuple(each.strip() for each in audiences if each.strip()),
        issuer=given.get(f"{SETTING}expected.issuer", "").strip() or None,
        skew_ms=skew_s * 1000,
        user_claim=given.get(f"{SETTING}sub.claim.name", "").strip() or "sub",
        scope_claim=given.get(f"{SETTING}scope.claim.name", "").strip() or "scope",
    )


def _place(url: str, given: Mapping[str, str], options: Mapping[str, str]) -> KeyPlace:
    if not _URL.fullmatch(url):
        raise ValueError(
            f"{KEYS_URL}: keys come by https:, without user and password, or from file:"
        )
    kind = options.get("ssl.truststore.type", "PEM").upper()
    if options.get("ssl.truststore.location") and kind != "PEM":
        raise ValueError("sasl.jaas.config: ssl.truststore.location is a PEM file here")
    return KeyPlace(
        url=url,
        refresh_ms=_number(given, "jwks.endpoint.refresh.ms", 3_600_000),
        backoff_ms=_number(given, "jwks.endpoint.retry.backoff.ms", 100),
        backoff_max_ms=_number(given, "jwks.endpoint.retry.backoff.max.ms", 10_000),
        trusted=options.get("ssl.truststore.location", ""),
    )


def _unsigned(options: Mapping[str, str]) -> TokenRules:
    def option(name: str) -> str:
        return options.get(_OPTION + name, "").strip()

    skew = option("AllowableClockSkewMs") or "0"
    try:
        skew_ms = values.whole_number(skew, minimum=0, maximum=INT_MAX)
    except ValueError as error:
        raise ValueError(f"sasl.jaas.config: {_OPTION}AllowableClockSkewMs: {error}") from error
    return TokenRules(
        keys=None,
        skew_ms=skew_ms,
        user_claim=option("PrincipalClaimName") or "sub",
        scope_claim=option("ScopeClaimName") or "scope",
        required_scope=tuple(option("RequiredScope").split()),
    )


def _number(
    given: Mapping[str, str],
    name: str,
    default: int,
    *,
    minimum: int = 1,
    maximum: int = LONG_MAX,
) -> int:
    text = given.get(SETTING + name, str(default))
    try:
        return values.whole_number(text, minimum=minimum, maximum=maximum)
    except ValueError as error:
        raise ValueError(f"{SETTING}{name}: {error}") from error
