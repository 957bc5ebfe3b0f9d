"""Passwords of HTTP clients, held against the users that Kafka's clients log in as.

Users of settings are those of PLAIN (`broker.sasl.plain`). Those of the log are SCRAM's: the log has
keys that follow from a password by thousands of iterations, which takes ms, so that

* it is done in a thread, `CHECKS_MAX` wait for it, and of an address `CHECKS_PER_ADDRESS_MAX`;
* what was found right is remembered, as a digest under a key that this process drew, for as long as the
  credential is the one that it was held against: a change of it counts at once;
* where nothing is right as much is done for each user, whether there is one and by which mechanisms.
"""

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from broker.sasl.plain import PlainUsers
from broker.sasl.scram import made_up, proves
from coordinator.commands.credential_commands import ScramMechanism
from coordinator.tables.administration.credentials import Credentials, ScramCredential

CHECKS_MAX: Final = 64
CHECKS_PER_ADDRESS_MAX: Final = 8
REMEMBERED_MAX: Final = 1_000
KEY_BITS: Final = 256


class BusyError(Exception):
    """Too many passwords are being looked at; it may work in a moment."""


class Passwords:
    """Of the users of one listener."""

    def __init__(
        self,
        *,
        plain: PlainUsers,
        mechanisms: Sequence[ScramMechanism],
        credentials: Callable[[], Credentials],
        key: bytes,
    ) -> None:
        """`mechanisms`: whose users may log in; none: those of `plain` alone. `key`: nobody else
        can foresee it."""
        self._plain = plain
        self._mechanisms = tuple(mechanisms)
        self._credentials = credentials
        self._key = key
        self._right: dict[bytes, ScramCredential] = {}
        """What each was held against, by user, mechanism and password."""
        self._checks: Counter[str] = Counter()
        """Those that wait or are under way, by address."""
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="frazil-passwords")

    @property
    def any_user(self) -> bool:
        """Whether somebody may have a password that is right."""
        return bool(self._plain.digests) or bool(self._mechanisms)

    async def are_right(self, user: str, password: str, *, address: str) -> bool:
        """Whether this is the user's password. Raises BusyError."""
        if self._plain.knows(user, password):
            return True
        if self._is_remembered(user, password):
            return True
        there = self._credentials().of_user(user)
        # Whom there is first; then the others, since time must not tell which these are.
        for mechanism in sorted(self._mechanisms, key=lambda each: each not in there):
            credential = self._credentials().get(user, mechanism)
            held = credential or made_up(self._credentials(), mechanism, user)
            proven = await self._prove(mechanism, password, held, address)
            # It may have changed meanwhile.
            if proven and credential is not None:
                if self._credentials().get(user, mechanism) != credential:
                    return False
                self._remember(self._mark(user, mechanism, password), credential)
                return True
        return False

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _is_remembered(self, user: str, password: str) -> bool:
        """Whether it was found right, and the credential is the same still."""
        for mechanism in self._mechanisms:
            credential = self._credentials().get(user, mechanism)
            mark = self._mark(user, mechanism, password)
            if credential is not None and self._right.get(mark) == credential:
                return True
        return False

    async def _prove(
        self, mechanism: ScramMechanism, password: str, credential: ScramCredential, address: str
    ) -> bool:
        if self._checks.total() >= CHECKS_MAX or self._checks[address] >= CHECKS_PER_ADDRESS_MAX:
            raise BusyError("too many log in at once; try again")
        self._checks[address] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._threads, proves, mechanism, password, credential
            )
        finally:
            self._checks[address] -= 1
            if not self._checks[address]:
                del self._checks[address]

    def _mark(self, user: str, mechanism: ScramMechanism, password: str) -> bytes:
        # Lengths, so that no two can be meant by one text.
        said = f"{len(user)} {user} {int(mechanism)} {password}"
        return hmac.digest(self._key, said.encode("utf-8", "surrogatepass"), "sha256")

    def _remember(self, mark: bytes, credential: ScramCredential) -> None:
        self._right[mark] = credential
        if len(self._right) > REMEMBERED_MAX:
            del self._right[next(iter(self._right))]
