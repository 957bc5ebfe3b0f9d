"""Credentials that AWS's tools find in a file, read again when the file changes.

Of all the places where AWS's tools look for credentials, those with an end (roles, web identity,
containers, processes, SSO) renew themselves: aiobotocore asks again before it. Keys in a file
(`~/.aws/credentials`, `~/.aws/config`, or where AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE say)
it reads once; here they are followed.

What holds: files are compared by what is in them, at most every LOOK_S; what cannot be used changes
nothing, and is told once.
"""

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession, get_session
from botocore.exceptions import BotoCoreError
from typing_extensions import override

logger = logging.getLogger(__name__)

LOOK_S: Final = 2.0
IN_FILES: Final = frozenset({"shared-credentials-file", "config-file"})
"""Methods of botocore."""
_VARIABLES: Final = ("credentials_file", "config_file")
"""botocore's names of where the files are."""


class FileCredentials(AioCredentials):  # type: ignore[misc]
    """As they are in their files now."""

    def __init__(self, found: Any, paths: tuple[Path, ...], contents: tuple[bytes, ...]) -> None:
        super().__init__(found.access_key, found.secret_key, found.token, method=found.method)
        self._paths = paths
        self._contents = contents
        self._looked_s = asyncio.get_running_loop().time()

    @override
    async def get_frozen_credentials(self) -> Any:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._looked_s + LOOK_S:
            self._looked_s = now_s
            await self._look()
        return await super().get_frozen_credentials()

    async def _look(self) -> None:
        contents = await asyncio.to_thread(_read, self._paths)
        if contents == self._contents:
            return
        self._contents = contents
        try:
            found = await get_session().get_credentials()
        except (BotoCoreError, OSError, ValueError) as error:
            _refuse(str(error))
            return
        if found is None or found.method not in IN_FILES:
            _refuse("their file has none now")
            return
        self.access_key, self.secret_key, self.token = (
            found.access_key,
            found.secret_key,
            found.token,
        )
        logger.info("the credentials of the store have changed and are taken")


async def follow_files(session: AioSession) -> bool:
    """Have the session's credentials followed, if they are in a file; whether there are any.

    Raises BotoCoreError.
    """
    paths = _paths(session)
    contents = await asyncio.to_thread(_read, paths)
    found = await session.get_credentials()
    if getattr(found, "method", None) in IN_FILES:
        # There is no way to give a session credentials but as strings.
        session._credentials = FileCredentials(found, paths, contents)  # noqa: SLF001
    return found is not None


def _paths(session: AioSession) -> tuple[Path, ...]:
    return tuple(Path(str(session.get_config_variable(name))).expanduser() for name in _VARIABLES)


def _refuse(reason: str) -> None:
    logger.error("the credentials of the store stay as they were: %s", reason)


def _read(paths: tuple[Path, ...]) -> tuple[bytes, ...]:
    contents = []
    for path in paths:
        try:
            contents.append(path.read_bytes())
        except OSError:
            contents.append(b"")
    return tuple(contents)
