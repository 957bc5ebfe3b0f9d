"""The tokens of a client of OAUTHBEARER: read from their file, or asked for where they are issued.

What holds: each login gets a token that is not about to end. A file is read for each, since somebody
else keeps it new. An issued one is kept for `KEPT` of the time that its issuer says it lasts, and not
at all where he does not say. The secret goes to the issuer's URL and nowhere else: no redirect is
followed. No sentence repeats what the issuer sends, but for the code of its refusal (RFC 6749, 5.2).

Left out: what is in a token, which is for the cluster to judge.
"""

import asyncio
import json
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from broker.client.token_settings import BearerLogin, TokenFile, TokenIssuer
from broker.sasl.bearer_messages import OAUTHBEARER, is_token
from broker.sasl.client import BearerClient
from broker.sasl.login_failures import TokenError

if TYPE_CHECKING:
    import aiohttp

KEPT: Final = 0.8
"""Kafka's `sasl.login.refresh.window.factor`."""
LASTS_S_MAX: Final = 86_400
"""No issuer is believed that a token lasts longer."""
ISSUER_S_MAX: Final = 5.0
"""For a whole answer; less than a tool gives an agent, so that it says who is silent."""
ANSWER_BYTES_MAX: Final = 1 << 20
TOKENS: Final = ("access_token", "id_token")
"""In an answer; the first one that is there counts, as in Kafka."""
OK: Final = 200
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Of HTTP: it may be otherwise in a while."""
_CODE: Final = re.compile(r"[a-z_]{1,40}")


class BearerTokens:
    """Of one client; it is asked by one connection after the other, or by several at once."""

    mechanism: Final = OAUTHBEARER

    def __init__(self, login: BearerLogin) -> None:
        self._login = login
        self._lock = asyncio.Lock()
        self._kept = ""
        self._kept_until = 0.0
        """The loop's time."""

    async def exchange(self) -> BearerClient:
        """An attempt to log in. Raises TokenError."""
        return BearerClient(await self.token(), self._login.extensions)

    async def token(self) -> str:
        """One for a login that begins now. Raises TokenError."""
        source = self._login.source
        if isinstance(source, TokenFile):
            return await asyncio.to_thread(_token_in, source)
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now >= self._kept_until:
                self._kept, lasts_s = await _issued(source)
                self._kept_until = now + KEPT * lasts_s
            return self._kept


def _token_in(source: TokenFile) -> str:
    path = unquote(urlsplit(source.url).path)
    try:
        with Path(path).open("rb") as file:
            found = file.read(ANSWER_BYTES_MAX + 1)
    except OSError as error:
        raise TokenError(f"no token: cannot read {path}: {error.strerror}") from error
    text = found.decode("ascii", "replace").strip()
    if len(found) > ANSWER_BYTES_MAX or not is_token(text):
        raise TokenError(f"no token: {path} has none", may_pass=True)  # It may be being written.
    return text


async def _issued(issuer: TokenIssuer) -> tuple[str, float]:
    """A token, and for how many seconds it lasts; 0: nobody knows."""
    # Not above: tools that have no use for it would wait for it.
    import aiohttp

    from broker.edge.key_stores import TlsError

    try:
        context = await asyncio.to_thread(_context, issuer)
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context),
                timeout=aiohttp.ClientTimeout(total=ISSUER_S_MAX),
            ) as session,
            session.post(
                issuer.url,
                data=request_body(issuer),
                headers=headers(issuer),
                allow_redirects=False,
            ) as response,
        ):
            return await _said(issuer, response)
    except TlsError as error:
        raise TokenError(f"no token: {error} (ssl.* in sasl.jaas.config)") from error
    except (OSError, aiohttp.ClientError) as error:
        certificate = isinstance(error, aiohttp.ClientConnectorCertificateError)
        raise TokenError(
            f"no token: {issuer.url} cannot be asked ({str(error) or type(error).__name__})",
            may_pass=not certificate,
        ) from error


def _context(issuer: TokenIssuer) -> ssl.SSLContext | bool:
    from broker.client.client_tls import client_context

    return True if issuer.tls is None else client_context(issuer.tls)


async def _said(issuer: TokenIssuer, response: "aiohttp.ClientResponse") -> tuple[str, float]:
    from broker.sasl.key_sets import body_of

    try:
        answer = json.loads(await body_of(response, ANSWER_BYTES_MAX))
    except (ValueError, RecursionError):
        answer = None
    if response.status != OK:
        code = answer.get("error") if isinstance(answer, dict) else None
        told = f" ({code})" if isinstance(code, str) and _CODE.fullmatch(code) else ""
        raise TokenError(
            f"no token: {issuer.url} answers {response.status}{told}",
            may_pass=response.status in _PASSING,
        )
    found = issued_in(answer)
    if found is None:
        raise TokenError(f"no token: {issuer.url} answers without one")
    return found


def issued_in(answer: Any) -> tuple[str, float] | None:
    """The token in an issuer's answer, and for how many seconds it lasts; 0: it does not say."""
    if not isinstance(answer, Mapping):
        return None
    tokens = [answer[name] for name in TOKENS if answer.get(name)]
    if not tokens or not isinstance(tokens[0], str) or not is_token(tokens[0]):
        return None
    lasts = answer.get("expires_in", 0)
    is_number = isinstance(lasts, int | float) and not isinstance(lasts, bool)
    return tokens[0], max(0.0, float(min(lasts, LASTS_S_MAX))) if is_number else 0.0


def headers(issuer: TokenIssuer) -> dict[str, str]:
    """Id and secret, as HTTP's Basic (RFC 6749, section 2.3.1)."""
    parts = [issuer.client_id, issuer.client_secret]
    if issuer.is_urlencoded:
        parts = [quote_plus(each) for each in parts]
    return {
        "Accept": "application/json",
        "Authorization": f"Basic {b64encode(':'.join(parts).encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def request_body(issuer: TokenIssuer) -> str:
    """RFC 6749, section 4.4.2."""
    asked = {"grant_type": "client_credentials"}
    if issuer.scope is not None:
        asked["scope"] = issuer.scope
    return urlencode(asked)
