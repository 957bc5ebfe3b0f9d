"""Delegation tokens (KIP-48): what they prove themselves by, how long they live, who may ask. Pure.

A token is an id and the HMAC-SHA-512 over it, by a secret that is the same on all agents
(`delegation.token.secret.key`) and in no log. A client logs in by SCRAM with the id as the user and
the HMAC, in base64, as the password. Salt and keys follow from both, so every agent has them and
nothing has to be kept; a made-up id is answered like one that is there. Keys take ms to make and are
remembered, since one token is used by many: all tasks of a job.

Left out: the table of tokens (`coordinator.tables.administration.delegation_tokens`).
"""

import hmac
from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from broker.sasl.scram_keys import NAMES, credential_of, salted_password
from coordinator.commands.credential_commands import ITERATIONS_MIN, ScramMechanism
from coordinator.tables.administration.credentials import ScramCredential
from coordinator.tables.administration.delegation_tokens import DelegationToken, DelegationTokens

USER: Final = "User"
"""The type of principals that own and renew tokens."""
ID_BITS: Final = 128
"""What is drawn for the id of a token."""
SALT_BYTES: Final = 26
REMEMBERED_MAX: Final = 1_000
"""Keys, of tokens that were used last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """`delegation.token.*`, ms."""

    max_ms: int
    renewal_ms: int

    def of_new(self, now_ms: int, asked_ms: int) -> tuple[int, int]:
        """When a token ends, and until when it can be renewed. `asked_ms`: no sooner than that;
        not positive: nothing was asked."""
        max_ms = now_ms + (min(self.max_ms, asked_ms) if asked_ms > 0 else self.max_ms)
        return min(max_ms, now_ms + self.renewal_ms), max_ms

    def renewed(self, token: DelegationToken, now_ms: int, asked_ms: int) -> int:
        """When it ends once it is renewed."""
        period_ms = min(self.renewal_ms, asked_ms) if asked_ms > 0 else self.renewal_ms
        return min(token.max_ms, now_ms + period_ms)


class Delegation:
    """Tokens at an agent that has the secret."""

    def __init__(self, secret: str, tokens: DelegationTokens, *, lifetimes: Lifetimes) -> None:
        self.lifetimes = lifetimes
        self._secret = secret.encode()
        self._tokens = tokens
        self._remembered = lru_cache(REMEMBERED_MAX)(self._made)

    def hmac(self, token_id: str) -> bytes:
        """What a client shows."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def is_of(self, token: DelegationToken, shown: bytes) -> bool:
        """Whether this is the token's HMAC."""
        return hmac.compare_digest(self.hmac(token.token_id), shown)

    # For SCRAM (`broker.sasl.scram.TokenLogins`).

    def token(self, token_id: str) -> DelegationToken | None:
        return self._tokens.get(token_id)

    def salt(self, token_id: str, mechanism: ScramMechanism) -> bytes:
        """Of any id, whether there is such a token or not."""
        told = f"salt of {NAMES[mechanism]} {token_id}".encode()
        return hmac.digest(self._secret, told, "sha512")[:SALT_BYTES]

    def credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """Takes ms the first time; to be asked for in a thread."""
        return self._remembered(token_id, mechanism)

    def _made(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        password = b64encode(self.hmac(token_id)).decode()
        salt = self.salt(token_id, mechanism)
        salted = salted_password(mechanism, password, salt=salt, iterations=ITERATIONS_MIN)
        made = credential_of(token_id, mechanism, salted, salt=salt, iterations=ITERATIONS_MIN)
        return ScramCredential(ITERATIONS_MIN, salt, made.stored_key, made.server_key)


def token_id_of(number: int) -> str:
    """The id that a number of ID_BITS bits gives, which nobody can foresee; as Kafka writes ids: none
    begins with "-", which tools would take for an option."""
    written = urlsafe_b64encode(number.to_bytes(ID_BITS // 8, "big")).rstrip(b"=").decode()
    return f"_{written[1:]}" if written.startswith("-") else written


def principal_of(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def parts_of(principal: str) -> tuple[str, str]:
    """Type and name."""
    kind, _, name = principal.partition(":")
    return kind, name
