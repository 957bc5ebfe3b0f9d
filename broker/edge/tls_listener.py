"""One listener's TLS: its context, made anew when the contents of its files change.

What holds: a connection keeps the context that it began with; a new one gets the newest. Files are
compared by what is in them, since Kubernetes swaps links under them. Files that cannot be used leave
the context as it was: an error is logged, and counted, and the files are looked at again.

Left out: connections (`broker.edge.tls_transport`), and which settings there are (`broker.config.listeners`).
"""

import asyncio
import logging
import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cryptography import x509

from broker.calls.requester import ANONYMOUS
from broker.config.listeners import ClientAuth, ListenerSettings, TlsSettings
from broker.edge.key_stores import Material, TlsError, material_of
from broker.edge.tls import versions_of
from broker.node import EdgeStats
from broker.rights.principal_names import NoRuleError, PrincipalRules, rfc2253

logger = logging.getLogger(__name__)

POLL_S: Final = 2.0
DAY_MS: Final = 86_400_000
SOON_DAYS: Final = 14
"""A certificate that ends sooner is told of when it is loaded."""
_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


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
            logger.error(text, self.name, reason)
        self._told = reason

    def tell(self, now_ms: int) -> None:
        """Say whether the certificate ends soon. `now_ms`: since the epoch."""
        days = (self.ends_ms - now_ms) / DAY_MS
        if days < 0:
            logger.error("the certificate of listener %s has ended: clients refuse it", self.name)
        elif days < SOON_DAYS:
            logger.warning("the certificate of listener %s ends in %.1f days", self.name, days)

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
    try:
        versions = versions_of(settings.protocols, settings.cipher_suites)
        context.minimum_version = _VERSIONS[versions.oldest]
        context.maximum_version = _VERSIONS[versions.newest]
        if versions.ciphers:
            context.set_ciphers(versions.ciphers)
        with _in_memory(material.key + material.chain) as path:
            context.load_cert_chain(path, password="")
        if material.trusted:
            context.load_verify_locations(cadata=material.trusted)
    except (ValueError, ssl.SSLError, OSError) as error:
        raise TlsError(f"OpenSSL does not take the certificate or the suites: {error}") from error
    # Java trusts whatever is in a truststore, not only certificates that sign themselves.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = _VERIFY[settings.client_auth]
    return context


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """A file that OpenSSL can read and nobody else sees, for as long as that takes."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("certificate")
        try:
            os.write(number, data)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile() as file:  # Its owner's alone (0600).
        file.write(data)
        file.flush()
        yield file.name


def _read(location: str) -> bytes:
    return Path(location).read_bytes()
