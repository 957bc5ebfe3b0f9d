"""Who asks an HTTP listener: by a token, a password, or a certificate.

What is said in `Authorization` counts; where nothing is, the certificate that was shown in the TLS
handshake. A login that fails waits `connection.failed.authentication.delay.ms` in its own request, of
which a listener has a bounded number, and is counted.

Left out: what somebody may do (`broker.admin.access`, `broker.registry.subject_rights`).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from broker.calls.requester import Requester
from broker.http.authorization import Malformed, Password, Token, said_in
from broker.http.passwords import Passwords
from broker.http.tokens import Tokens

DELAY_S_MAX: Final = 5.0
"""A client that waits holds one of the listener's connections."""

Count = Callable[[str, str], None]
"""Notes an end of a login: the scheme, and "accepted" or "refused"."""


TOKEN_USER: Final = "token"  # noqa: S105 - A name.
"""Whoever logs in so, as browsers can, has a token for a password."""


class LoginError(Exception):
    """Nobody may log in so. The sentence repeats nothing of what was said."""


class Logins:
    """Of one listener."""

    def __init__(
        self,
        tokens: Tokens,
        passwords: Passwords,
        *,
        by_certificate: bool,
        for_browsers: bool = False,
        delay_ms: int,
        count: Count,
    ) -> None:
        """`by_certificate`: clients are asked for one. `for_browsers`: tokens are passwords of TOKEN_USER, too, since
        a browser asks people for nothing else."""
        self._tokens = tokens
        self._passwords = passwords
        self._by_certificate = by_certificate
        self._for_browsers = for_browsers
        self._delay_s = min(delay_ms / 1000, DELAY_S_MAX)
        self._count = count

    @property
    def any_way(self) -> bool:
        """Whether there is a way to say who one is."""
        return bool(self.challenges) or self._by_certificate

    @property
    def challenges(self) -> list[tuple[str, str]]:
        """What a 401 says in headers; none: nothing would help.

        A header for each: Chromium asks nobody for a password where one names several (RFC 9110, 11.6.1, warns of it).
        """
        ways = ["Bearer"] if len(self._tokens) else []
        if self._passwords.any_user or (ways and self._for_browsers):
            ways.append('Basic realm="frazil", charset="UTF-8"')
        return [("WWW-Authenticate", way) for way in ways]

    async def requester(self, header: str, seen: Requester) -> Requester:
        """Who asks. `seen`: by the connection alone. Raises LoginError and BusyError."""
        scheme, principal = "other", None
        match said_in(header):
            case None:
                return seen
            case Token(text):
                scheme, principal = "Bearer", self._tokens.principal_of(text)
            case Password(user, password):
                right = await self._passwords.are_right(user, password, address=seen.host)
                scheme, principal = "Basic", f"User:{user}" if right else None
                if not right and self._for_browsers and user == TOKEN_USER:
                    principal = self._tokens.principal_of(password)
            case Malformed():
                pass
        self._count(f"HTTP {scheme}", "accepted" if principal is not None else "refused")
        if principal is None:
            await asyncio.sleep(self._delay_s)
            raise LoginError("no such user, or another password or token")
        return Requester(principal, seen.host)
