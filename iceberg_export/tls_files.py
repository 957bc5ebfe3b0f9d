"""TLS of the exporter's clients: whom they trust and what they show, in files of PEM that are read again.

What holds: a context is made anew when one of its files has changed, and only then. A file that cannot be
used is a mistake: nobody else is trusted instead.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from iceberg_export.errors import SettingsError


class TlsNames(NamedTuple):
    """Settings that name the files."""

    ca: str
    """Whom to trust; empty: whom the system trusts."""
    certificate: str
    """What is shown to who asks for it, and whoever signed that; empty: nothing."""
    key: str
    """Empty: it is in the file of the certificate."""


AGENT: Final = TlsNames("agent.ca", "agent.cert", "agent.key")
REGISTRY: Final = TlsNames(
    "schema.registry.ssl.ca.location",
    "schema.registry.ssl.certificate.location",
    "schema.registry.ssl.key.location",
)


class TlsFiles:
    """Those of one client."""

    def __init__(self, settings: Mapping[str, str], names: TlsNames) -> None:
        """Raises SettingsError."""
        self._names = names
        self._files = {name: settings[name] for name in names if settings[name]}
        if names.key in self._files and names.certificate not in self._files:
            raise SettingsError(f"{names.key} is set, but {names.certificate} is not")
        self._texts: dict[str, bytes] = {}
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | None:
        """For the next request; the same as before while the files are. None: no file is named.
        Raises SettingsError."""
        if not self._files:
            return None
        texts = {name: self._read(name) for name in self._files}
        if texts != self._texts:
            self._context, self._texts = self._made(texts), texts
        return self._context

    def _read(self, name: str) -> bytes:
        try:
            return Path(self._files[name]).read_bytes()
        except OSError as error:
            raise self._unusable(name, error.strerror or str(error)) from error

    def _made(self, texts: Mapping[str, bytes]) -> ssl.SSLContext:
        ca, certificate, key = self._names
        try:
            trusted = texts[ca].decode("ascii", "ignore") if ca in texts else None
            if trusted is not None and "-----BEGIN CERTIFICATE-----" not in trusted:
                raise ValueError("there is no certificate in it")
            context = ssl.create_default_context(cadata=trusted)
        except (OSError, ValueError) as error:  # OpenSSL's errors are OSErrors.
            raise self._unusable(ca, _reason(error)) from error
        if certificate in texts:
            try:
                # Without a password nobody is asked for one.
                context.load_cert_chain(
                    self._files[certificate], self._files.get(key), password=lambda: ""
                )
            except (OSError, ValueError) as error:
                raise self._unusable(certificate, _reason(error)) from error
        return context

    def _unusable(self, name: str, reason: str) -> SettingsError:
        return SettingsError(f"{name}: {self._files[name]} cannot be used: {reason}")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
