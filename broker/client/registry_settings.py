"""A client's settings about the schema registry, by the names of Confluent's clients. Pure.

`schema.registry.url`, `basic.auth.*`, `bearer.auth.*`, and `schema.registry.ssl.*`, which are Kafka's `ssl.*`; the logins may
have the prefix `schema.registry.`, too. Ours is `bearer.auth.token.file`: the token is in that file.

Left out: the files that are named, and asking a registry (`broker.cli.schemas`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.client import tls_settings
from broker.client.registry_addresses import is_url, parted
from broker.client.tls_settings import ClientTls, tls_of
from broker.client.token_settings import BearerLogin
from broker.sasl.bearer_messages import is_token
from broker.sasl.client import Login

_PREFIX: Final = "schema.registry."
URL: Final = f"{_PREFIX}url"
BASIC_SOURCE: Final = "basic.auth.credentials.source"
USER_INFO: Final = "basic.auth.user.info"
BEARER_SOURCE: Final = "bearer.auth.credentials.source"
TOKEN: Final = "bearer.auth.token"  # noqa: S105 - the name of a setting.
TOKEN_FILE: Final = f"{TOKEN}.file"
_LOGINS: Final = (BASIC_SOURCE, USER_INFO, BEARER_SOURCE, TOKEN, TOKEN_FILE)
TAKEN: Final = (
    URL,
    *_LOGINS,
    *(f"{_PREFIX}{name}" for name in _LOGINS),
    *(f"{_PREFIX}{name}" for name in tls_settings.TAKEN),
)
_SOURCES: Final = ("URL", "USER_INFO", "SASL_INHERIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Where the schema registry is, and who asks."""

    urls: tuple[str, ...] = ()
    """Without users; several are of one registry."""
    user_info: str | None = field(default=None, repr=False)
    """`user:password`."""
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls: ClientTls | None = None
    """None: whom the system trusts is trusted."""


def registry_settings_of(
    given: Mapping[str, str], login: Login | BearerLogin | None, mistakes: list[str]
) -> RegistrySettings:
    """Returns what a file of a client's settings says; mistakes are added, a sentence each, and none repeats a
    secret. `login`: to the cluster, which SASL_INHERIT means."""
    said = {name: given.get(f"{_PREFIX}{name}", given.get(name, "")).strip() for name in _LOGINS}
    urls, of_url = [], None
    for each in given.get(URL, "").split(","):
        if each.strip():
            url, user_info = parted(each.strip())
            of_url = of_url or user_info
            if is_url(url):
                urls.append(url)
            else:
                mistakes.append(f"{URL}: it is no address like http://localhost:8081")
    user_info = _user_info(said, of_url, login, mistakes)
    token, token_file = said[TOKEN] or None, said[TOKEN_FILE] or None
    if (said[BEARER_SOURCE] or "STATIC_TOKEN") != "STATIC_TOKEN":
        mistakes.append(
            f"{BEARER_SOURCE} is not STATIC_TOKEN: no other is served ({TOKEN_FILE} is read for each command)"
        )
    if token is not None and not is_token(token):
        mistakes.append(f"{TOKEN}: the value is not usable")
    if len([one for one in (user_info, token, token_file) if one]) > 1:
        mistakes.append(f"{USER_INFO}, {TOKEN} and {TOKEN_FILE} exclude each other")
    return RegistrySettings(
        urls=tuple(urls),
        user_info=user_info,
        token=token,
        token_file=token_file,
        tls=_tls(given, mistakes),
    )


def _user_info(
    said: Mapping[str, str],
    of_url: str | None,
    login: Login | BearerLogin | None,
    mistakes: list[str],
) -> str | None:
    source = said[BASIC_SOURCE].upper()
    if source and source not in _SOURCES:
        mistakes.append(f"{BASIC_SOURCE} is none of {', '.join(_SOURCES)}")
    if source == "SASL_INHERIT":
        if isinstance(login, Login):
            return f"{login.user}:{login.password}"
        mistakes.append(f"{BASIC_SOURCE}=SASL_INHERIT wants a login of name and password")
        return None
    if source == "URL":
        return of_url
    found = said[USER_INFO] or of_url
    if found is None and source == "USER_INFO":
        mistakes.append(f"{BASIC_SOURCE}=USER_INFO wants {USER_INFO}=user:password")
    if found is not None and ":" not in found:
        mistakes.append(f"{USER_INFO}: it is not user:password")
    return found


def _tls(given: Mapping[str, str], mistakes: list[str]) -> ClientTls | None:
    own = {
        name: given[f"{_PREFIX}{name}"]
        for name in tls_settings.TAKEN
        if f"{_PREFIX}{name}" in given
    }
    if not own:
        return None
    found: list[str] = []
    tls = tls_of(own, found)
    mistakes += [f"{_PREFIX}{mistake}" for mistake in found]
    return tls
