"""Who says which token: from settings and from files, which are read again when they change.

What holds: a token is compared in a time that tells nothing about it. A file that cannot be used leaves
the tokens that it had; that is logged once, and it is read again. What a file has no more is no token
any more, within `POLL_S`.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

from broker.config.value_types import tokens_in
from broker.config.values import SettingsError

logger = logging.getLogger(__name__)

POLL_S: Final = 2.0

ReadFile = Callable[[str], str]
"""The text of a file. Raises OSError and ValueError."""


class _File:
    """One file, and whose tokens are in it."""

    def __init__(self, principal: str, setting: str, location: str) -> None:
        self.principal = principal
        self.setting = setting
        self.location = location
        self.digests: tuple[bytes, ...] = ()
        self.told = ""

    def keep(self, reason: str) -> None:
        """Its tokens stay. Say so when it is for another reason than before."""
        if self.told != reason:
            logger.error("the tokens stay as they were: %s", reason)
        self.told = reason

    def read(self, read: ReadFile) -> tuple[bytes, ...]:
        """Digests of its tokens. Raises SettingsError; no sentence repeats what is in it."""
        try:
            return tuple(_digest(each) for each in tokens_in(read(self.location)))
        except OSError as error:
            reason = f"cannot read {self.location}: {error.strerror or error}"
        except UnicodeError:
            reason = f"{self.location} is not text"
        except ValueError as error:
            reason = f"{self.location}: {error}"
        raise SettingsError([f"{self.setting}: {reason}"])


class Tokens:
    """Those of one HTTP listener."""

    def __init__(self, read: ReadFile) -> None:
        self._read = read
        self._fixed: list[tuple[str, bytes]] = []
        self._files: list[_File] = []

    def __len__(self) -> int:
        """Settings and files that have any."""
        return len(self._fixed) + len(self._files)

    @property
    def has_files(self) -> bool:
        return bool(self._files)

    def add(self, principal: str, token: str) -> None:
        """A token that never changes."""
        self._fixed.append((principal, _digest(token)))

    def add_file(self, principal: str, setting: str, location: str) -> None:
        """Raises SettingsError. `setting`: for sentences."""
        file = _File(principal, setting, location)
        file.digests = file.read(self._read)
        self._files.append(file)

    def principal_of(self, token: str) -> str | None:
        """Who says this token; None: nobody."""
        said = _digest(token)
        found = None
        # To the end, so that the time does not tell which one it is.
        for principal, digest in self._all():
            if hmac.compare_digest(said, digest):
                found = principal
        return found

    def _all(self) -> Sequence[tuple[str, bytes]]:
        return [
            *self._fixed,
            *((file.principal, digest) for file in self._files for digest in file.digests),
        ]

    def look(self) -> None:
        """Read the files again. Takes ms: not for the loop."""
        for file in self._files:
            try:
                digests = file.read(self._read)
            except SettingsError as error:
                file.keep(str(error))
                continue
            file.told = ""
            if digests != file.digests:
                file.digests = digests
                logger.info("%s: there are new tokens in %s", file.setting, file.location)

    async def run(self) -> None:
        """Look at the files again and again, until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await asyncio.to_thread(self.look)


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
