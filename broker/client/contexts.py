"""Contexts: clusters by name, so that commands need not be told each time where one is and who asks.

A context is a file of a client's settings, as `--command-config` takes it, in the user's own folder
(`$XDG_CONFIG_HOME/frazil/contexts`, `~/.config` without it); what `current` has is the name of the one in use. Only the
user can read folder and files, since they may have secrets. A file is there whole or not at all.

Left out: what the settings say (`broker.client.client_settings`).
"""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUFFIX: Final = ".properties"
_CURRENT: Final = "current"


class ContextError(Exception):
    """It cannot be done; the sentence says why and what to do."""


class Contexts:
    """Of one user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return sorted(file.name.removesuffix(_SUFFIX) for file in self._folder.glob(f"*{_SUFFIX}"))

    def file(self, name: str) -> Path:
        """The settings of a context that there is. Raises ContextError."""
        file = self._file(name)
        if not file.is_file():
            known = ", ".join(self.names()) or "none"
            raise ContextError(
                f'there is no context "{name}" (known: {known}; frazil context create)'
            )
        return file

    def current(self) -> str | None:
        """The name of the one in use."""
        try:
            name = (self._folder / _CURRENT).read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            # Whoever may not read a home has no context there.
            return None
        except (OSError, UnicodeError) as error:
            raise ContextError(
                f"cannot read {self._folder / _CURRENT}: {_reason(error)}"
            ) from error
        return name or None

    def create(self, name: str, settings: str) -> None:
        """Raises ContextError for one that is there."""
        if self._file(name).exists():
            raise ContextError(f'there is a context "{name}" already: delete it first')
        self._write(self._file(name), settings)

    def use(self, name: str | None) -> None:
        """None: none. Raises ContextError for one that there is not."""
        if name is not None:
            self.file(name)
        self._write(self._folder / _CURRENT, name or "")

    def delete(self, name: str) -> None:
        """Raises ContextError for one that there is not."""
        file = self.file(name)
        if self.current() == name:
            self.use(None)
        try:
            file.unlink()
        except OSError as error:
            raise ContextError(f"cannot delete {file}: {_reason(error)}") from error

    def _file(self, name: str) -> Path:
        """Raises ContextError for what is no name."""
        if not NAME.fullmatch(name):
            raise ContextError(
                f'"{name}" is no name of a context: letters, digits, ".", "_" and "-"'
            )
        return self._folder / f"{name}{_SUFFIX}"

    def _write(self, file: Path, text: str) -> None:
        """Raises ContextError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A new file of tempfile's is its owner's alone.
            number, name = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(number, "w", encoding="utf-8") as new:
                new.write(text)
            Path(name).replace(file)
        except OSError as error:
            raise ContextError(f"cannot write {file}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def folder_of(environ: Mapping[str, str]) -> Path:
    """Where contexts are."""
    home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/")) / ".config"
    return Path(home) / "frazil" / "contexts"
