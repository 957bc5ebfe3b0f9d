"""The table of credentials: which users can log in by SCRAM, and by what that is found out.

What is in a credential, and what never is: `coordinator.commands.credential_commands`. From the very
first one that there was follow a seed and a shape, which never change: with them agents answer for
users that do not exist as if they did (`broker.sasl.scram`), all agents alike and at any time.

Invariant: users that are here have a credential.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, assert_never

from coordinator.commands.credential_commands import (
    CREDENTIALS_MAX,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    KEY_BYTES,
    SALT_BYTES,
    SALT_BYTES_MAX,
    USER_NAME_MAX,
    CredentialCommand,
    DeleteScramCredential,
    ScramMechanism,
    UpsertScramCredential,
)
from coordinator.commands.entries import DONE, Done, Rejected
from coordinator.commands.layout import UInt31
from protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is kept of a user for one mechanism."""

    iterations: UInt31
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class FirstCredential:
    """What is remembered of the very first credential, and follows from it."""

    iterations: UInt31
    salt: bytes = field(repr=False)
    seed: bytes = field(repr=False)
    """Nobody knows it who cannot read the log."""


NO_CREDENTIAL: Final = FirstCredential(ITERATIONS_MIN, bytes(SALT_BYTES), b"")
"""In the place of the first one, where there never was any."""


class Credentials:
    """Users in the order in which they came. To be read only, but by `apply`."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        self._count = 0
        self.first: FirstCredential | None = None
        """None: there never was one."""

    def __len__(self) -> int:
        """Credentials, of all users and mechanisms."""
        return self._count

    @property
    def is_untouched(self) -> bool:
        """There never was a credential."""
        return self.first is None

    def users(self) -> Iterator[str]:
        return iter(self._rows)

    def of_user(self, user: str) -> dict[ScramMechanism, ScramCredential]:
        """The credentials of a user by mechanism; empty when there is no such user."""
        return self._rows.get(user, {})

    def get(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        row = self._rows.get(user)
        return None if row is None else row.get(mechanism)

    # For `apply`.

    def apply(self, command: CredentialCommand) -> Done | Rejected:
        """Codes of a refusal: UNACCEPTABLE_CREDENTIAL it cannot be one, RESOURCE_NOT_FOUND there is
        none, POLICY_VIOLATION there is no room."""
        match command:
            case UpsertScramCredential():
                return self._upsert(command)
            case DeleteScramCredential():
                return self._delete(command)
            case _:
                assert_never(command)

    def _upsert(self, command: UpsertScramCredential) -> Done | Rejected:
        if (reason := unacceptable(command)) is not None:
            return Rejected(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
        is_new = self.get(command.user, command.mechanism) is None
        if is_new and self._count >= CREDENTIALS_MAX:
            return Rejected(ErrorCode.POLICY_VIOLATION, f"there are {CREDENTIALS_MAX} credentials")
        if self.is_untouched:
            seed = sha256(b"users that do not exist" + command.server_key).digest()
            self.first = FirstCredential(command.iterations, command.salt, seed)
        self._put(
            command.user,
            command.mechanism,
            ScramCredential(
                command.iterations, command.salt, command.stored_key, command.server_key
            ),
        )
        return DONE

    def _put(self, user: str, mechanism: ScramMechanism, credential: ScramCredential) -> None:
        row = self._rows.setdefault(user, {})
        self._count += mechanism not in row
        row[mechanism] = credential

    def _delete(self, command: DeleteScramCredential) -> Done | Rejected:
        row = self._rows.get(command.user, {})
        if command.mechanism not in row:
            reason = "Attempt to delete a user credential that does not exist"
            return Rejected(ErrorCode.RESOURCE_NOT_FOUND, reason)
        del row[command.mechanism]
        self._count -= 1
        if not row:
            del self._rows[command.user]
        return DONE


def unacceptable(command: UpsertScramCredential) -> str | None:
    """Why this cannot be a credential, in Kafka's words where it has some; None: it can."""
    if not command.user:
        return "Username must not be empty"
    if len(command.user) > USER_NAME_MAX:
        return f"a user's name has at most {USER_NAME_MAX} characters"
    if command.iterations < ITERATIONS_MIN:
        return "Too few iterations"
    if command.iterations > ITERATIONS_MAX:
        return "Too many iterations"
    if not 0 < len(command.salt) <= SALT_BYTES_MAX:
        return f"a salt has 1 to {SALT_BYTES_MAX} bytes"
    key_bytes = KEY_BYTES[command.mechanism]
    if {len(command.stored_key), len(command.server_key)} != {key_bytes}:
        return f"keys of this mechanism have {key_bytes} bytes"
    return None
