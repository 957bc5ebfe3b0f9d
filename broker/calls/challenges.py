"""Which EndTxn of a connection answers a challenge that was written there. Pure.

An EndTxn of a TV1 client that does not come on the connection of its transaction's adds may be a
late one, read from a connection that its client gave up long ago (KAFKA-17754). It is told
CONCURRENT_TRANSACTIONS, which every client takes as "send it again", on the same connection.
Whoever gave the connection up does not read that answer, so what comes in reply to it is meant.

A *token* says so: it is for one transaction, and counts only for frames that were begun after the
answer had left and after all that had arrived by then: what the client had sent before, wherever
between its socket and this process it lay, is no reply. Bytes of a connection are numbered from 0
in the order of their arrival, so a token is the number of the first byte that a reply may have.

Invariant: no token is older than its answer. Left out: bytes that were under way in the network,
or in the client's kernel, when the answer left; they pass for a reply. That needs two EndTxn of
one transaction on a dead connection, which no client sends with its default settings.
"""

from typing import Final, NamedTuple

TOKENS_MAX: Final = 64
"""Of one connection; the oldest goes, and costs its client one more challenge."""


class Challenge(NamedTuple):
    """What a client was asked to confirm: that it means this transaction."""

    transactional_id: str
    instance: int


class Challenges:
    """Challenges and tokens of one connection."""

    __slots__ = ("_leaving", "_tokens")

    def __init__(self) -> None:
        self._leaving: list[Challenge] = []
        self._tokens: dict[Challenge, int] = {}

    def told(self, challenge: Challenge) -> None:
        """The answer was handed to the transport, which may keep it for a while."""
        self._leaving.append(challenge)

    @property
    def leaving(self) -> bool:
        """Some answers may not have left yet: ask for `left` when the transport has none."""
        return bool(self._leaving)

    def left(self, arrived: int) -> None:
        """All that were told have left. `arrived`: bytes that have arrived so far, also unread."""
        for challenge in self._leaving:
            # An earlier token is as good: its answer too has left.
            self._tokens.setdefault(challenge, arrived)
        self._leaving.clear()
        while len(self._tokens) > TOKENS_MAX:
            del self._tokens[next(iter(self._tokens))]

    def answered_by(self, challenge: Challenge, first_byte: int) -> bool:
        """Whether a frame that begins with this byte is in reply to the challenge."""
        token = self._tokens.get(challenge)
        return token is not None and first_byte >= token
