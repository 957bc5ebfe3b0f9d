"""One listener's TLS: its context, made anew when the contents of its files change.

What holds: a connection keeps the context that it began with; a new one gets the newest. Files are
compared by what is in them, since Kubernetes swaps links under them. Files that cannot be used leave
the context as it was: an error is logged, and counted, and the files are looked at again.

Left out: connections (`broker.edge.tls_transport`), and which settings there are (`broker.config.listeners`).
"""

import asyncio
import logging
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography import x509

from broker.calls.requester import ANONYMOUS
from broker.config.listeners import ClientAuth, ListenerSettings, TlsSettings
from broker.edge import tls_context
from broker.edge.key_stores import Material, TlsError, material_of
from broker.node import EdgeStats
from broker.rights.principal_names import NoRuleError, PrincipalRules, rfc2253
from protocol.fault_codes import FaultCode

logger = logging.getLogger(__name__)

_CODE: Final = {"code": FaultCode.TLS_FAILED.value}

POLL_S: Final = 2.0
DAY_MS: Final = 86_400_000
SOON_DAYS: Final = 14
"""A certificate that ends sooner is told of when it is loaded."""
_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class TlsListener:
    """The TLS of one listener, from its settings and their files."""

    def __init__(self, settings: ListenerSettings, stats: EdgeStats) -> None:
        """Reads the files. Raises TlsError."""
        assert settings.tls is not None
        self.name = settings.name
        self._settings = settings.tls
        self._stats = stats
        self._maps_principals = not settings.protocol.has_sasl
        try:
            self._rules = PrincipalRules(settings.tls.principal_rules)
        except ValueError as error:
            raise TlsError(f"ssl.principal.mapping.rules: {error}") from error
        self._told = ""
        self._material = material_of(settings.tls, _read)
        self.context = context_of(settings.tls, self._material)
        stats.certificate_ends_ms[self.name] = self._material.ends_ms

    @property
    def ends_ms(self) -> int:
        """When the certificate ends, ms since the epoch."""
        return self._material.ends_ms

    @property
    def subject(self) -> str:
        return self._material.subject

    @property
    def asks_clients(self) -> bool:
        """Whether clients are asked for a certificate."""
        return self._settings.client_auth is not ClientAuth.NONE

    def principal(self, certificate: bytes | None) -> str:
        """Who a client is that showed this certificate (in DER), or none. Raises NoRuleError."""
        if certificate is None or not self._maps_principals:
            return ANONYMOUS
        try:
            name = rfc2253(x509.load_der_x509_certificate(certificate).subject.public_bytes())
        except ValueError as error:
            raise NoRuleError(f"the subject of its certificate cannot be read: {error}") from error
        return f"User:{self._rules.principal(name)}"

    def look(self) -> bool:
        """Read the files again; whether there is a new context. Takes ms: not for the loop."""
        try:
            material = material_of(self._settings, _read)
            if material == self._material:
                self._told = ""
                return False
            context = context_of(self._settings, material)
        except TlsError as error:
            self._fail(str(error))
            return False
        self._material, self.context, self._told = material, context, ""
        self._stats.certificate_ends_ms[self.name] = material.ends_ms
        self._stats.certificate_reloads += 1
        logger.info("listener %s has a new certificate: %s", self.name, material.subject)
        return True

    def _fail(self, reason: str) -> None:
        """Say so when it is another reason than the last one."""
        self._stats.certificate_failures += 1
        if reason != self._told:
            text = "listener %s keeps its certificate, the new one cannot be used: %s"
            logger.error(text, self.name, reason, extra=_CODE)
        self._told = reason

    def tell(self, now_ms: int) -> None:
        """Say whether the certificate ends soon. `now_ms`: since the epoch."""
        days = (self.ends_ms - now_ms) / DAY_MS
        if days < 0:
            text = "the certificate of listener %s has ended: clients refuse it"
            logger.error(text, self.name, extra=_CODE)
        elif days < SOON_DAYS:
            text = "the certificate of listener %s ends in %.1f days"
            logger.warning(text, self.name, days, extra=_CODE)

    async def run(self) -> None:
        """Look at the files again and again, until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await asyncio.to_thread(self.look)


def tls_listeners(
    listeners: Iterable[ListenerSettings], stats: EdgeStats
) -> dict[str, TlsListener]:
    """Those that speak TLS, by name. Raises TlsError."""
    found = {}
    for settings in listeners:
        if settings.tls is not None:
            try:
                found[settings.name] = TlsListener(settings, stats)
            except TlsError as error:
                raise TlsError(f"listener {settings.name}: {error}") from error
    return found


def context_of(settings: TlsSettings, material: Material) -> ssl.SSLContext:
    """What OpenSSL needs for a listener. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    tls_context.equip(
        context, material, protocols=settings.protocols, cipher_suites=settings.cipher_suites
    )
    context.verify_mode = _VERIFY[settings.client_auth]
    return context


def _read(location: str) -> bytes:
    return Path(location).read_bytes()
