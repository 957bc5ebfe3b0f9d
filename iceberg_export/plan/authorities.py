"""Whom the exporter trusts to sign agents' certificates: a file of PEM, read again when it changes."""

import ssl
from pathlib import Path

from iceberg_export.errors import SettingsError


class Authorities:
    """Those of `agent.ca`; "" are the system's."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._text: str | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | None:
        """For the next request; the same as before while the file is. None: the system's own.
        Raises SettingsError."""
        if not self._location:
            return None
        try:
            text = Path(self._location).read_text(encoding="ascii", errors="ignore")
            if "-----BEGIN CERTIFICATE-----" not in text:
                raise ValueError("there is no certificate in it")
            if text != self._text:
                self._context, self._text = ssl.create_default_context(cadata=text), text
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SettingsError(f"agent.ca: {self._location} cannot be used: {reason}") from error
        return self._context
