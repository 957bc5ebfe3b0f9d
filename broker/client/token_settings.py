"""Where a client of OAUTHBEARER has its tokens from, by Kafka's settings (KIP-768, KIP-1139). Pure.

`sasl.oauthbearer.token.endpoint.url` is a file with a token, or who issues tokens for an id and a
secret (RFC 6749, section 4.4). Id, secret and scope stand in settings of their own or, as before
Kafka 4.1, in `sasl.jaas.config`; there stand, too, the `ssl.*` of the way to the issuer and
`extension_<name>`, which is sent along to the cluster.

Left out: tokens that are signed here (the grant jwt-bearer), and Kafka's tokens without a signature.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.client.tls_settings import ClientTls, tls_of
from broker.config import values
from broker.sasl.bearer_messages import is_extension
from broker.sasl.client import JAAS_CONFIG, jaas_options

_SETTING: Final = "sasl.oauthbearer."
URL: Final = f"{_SETTING}token.endpoint.url"
CLIENT_ID: Final = f"{_SETTING}client.credentials.client.id"
CLIENT_SECRET: Final = f"{_SETTING}client.credentials.client.secret"
SCOPE: Final = f"{_SETTING}scope"
URLENCODE: Final = f"{_SETTING}header.urlencode"
HANDLER: Final = "sasl.login.callback.handler.class"
RETRIEVER: Final = f"{_SETTING}jwt.retriever.class"
TAKEN: Final = (URL, CLIENT_ID, CLIENT_SECRET, SCOPE, URLENCODE, HANDLER, RETRIEVER)

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_CLASSES: Final = {
    HANDLER: (
        f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
        f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
    ),
    RETRIEVER: (
        f"{_PACKAGE}.DefaultJwtRetriever",
        f"{_PACKAGE}.ClientCredentialsJwtRetriever",
        f"{_PACKAGE}.FileJwtRetriever",
    ),
}
"""Kafka's classes that do what is done here; the URL says which of it."""
_EXTENSION: Final = "extension_"

# Without TLS a secret goes to this machine alone.
_ISSUER: Final = re.compile(
    r"(?i:https://|http://(?=(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?(/|$)))[^\s/@?#]+(/[^\s@#]*)?"
)
_FILE: Final = re.compile(r"(?i:file):(//(localhost)?)?/[^\s?#]+")


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token is in a file, which somebody else keeps new."""

    url: str
    """`file:`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    """Who gives out tokens for an id and a secret."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    tls: ClientTls | None = None
    """None: there is none on the way."""
    is_urlencoded: bool = False
    """Id and secret are, as RFC 6749 has it, and Kafka only if it is told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerLogin:
    """How a tool shows who it is by a token."""

    source: TokenFile | TokenIssuer
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


def bearer_login_of(given: Mapping[str, str]) -> BearerLogin:
    """What a file of a client's settings says. Raises ValueError with a sentence for each mistake,
    one a line; none repeats a secret."""
    options = jaas_options(given)
    mistakes = [
        f"{name}: it is none of {', '.join(classes)}"
        for name, classes in _CLASSES.items()
        if given.get(name, classes[0]).strip() not in classes
    ]
    source = _source(given, options, mistakes)
    extensions = {
        name.removeprefix(_EXTENSION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    if not all(is_extension(key, value) for key, value in extensions.items()):
        mistakes.append(f"{JAAS_CONFIG}: an extension's name is letters, its value visible ones")
    if source is None or mistakes:
        raise ValueError("\n".join(mistakes))
    return BearerLogin(source=source, extensions=extensions)


def _source(
    given: Mapping[str, str], options: Mapping[str, str], mistakes: list[str]
) -> TokenFile | TokenIssuer | None:
    url = given.get(URL, "").strip()
    if _FILE.fullmatch(url):
        return TokenFile(url)
    if not _ISSUER.fullmatch(url):
        mistakes.append(
            f"{URL}: tokens come by https:, without user and password, or from file:"
            " (by http: from this machine only)"
        )
        return None
    before = len(mistakes)
    has_tls = url.lower().startswith("https:")
    tls = tls_of(options, mistakes) if has_tls else None
    client_id = given.get(CLIENT_ID, options.get("clientId", ""))
    secret = given.get(CLIENT_SECRET, options.get("clientSecret", ""))
    if not client_id or not secret:
        mistakes.append(
            f"{CLIENT_ID} and {CLIENT_SECRET} are needed (or clientId and clientSecret"
            f" in {JAAS_CONFIG})"
        )
    is_urlencoded = False
    try:
        is_urlencoded = values.boolean(given.get(URLENCODE, "false"))
    except ValueError as error:
        mistakes.append(f"{URLENCODE}: {error}")
    if len(mistakes) > before:
        return None
    return TokenIssuer(
        url=url,
        client_id=client_id,
        client_secret=secret,
        scope=given.get(SCOPE, options.get("scope", "")) or None,
        tls=tls,
        is_urlencoded=is_urlencoded,
    )
