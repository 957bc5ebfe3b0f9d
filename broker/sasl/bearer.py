"""OAUTHBEARER (RFC 7628): one message with a token, which somebody else has signed. Pure.

What both sides say stands in `broker.sasl.bearer_messages`, and what makes a token good is
`broker.sasl.tokens`'; an authorization id must be the token's user.
"""

import json
from collections.abc import Callable
from functools import partial

from broker.sasl.bearer_messages import ACKNOWLEDGED, client_first_of
from broker.sasl.exchange import Authenticated, Challenge, Refused, Step, Undecided
from broker.sasl.tokens import NO_KEYS, Invalid, SigningKeys, TokenRules, UnknownKey, judged


class BearerExchange:
    """One attempt."""

    def __init__(
        self,
        rules: TokenRules,
        *,
        keys: Callable[[str], SigningKeys] = lambda url: NO_KEYS,
        now_ms: Callable[[], int],
    ) -> None:
        """`keys`: those of a JWKS endpoint, as far as they are known; both may be asked in a thread."""
        self._rules = rules
        self._keys = keys
        self._now_ms = now_ms
        self._failed: Refused | None = None
        """Once the client was told why its token is not taken: what it is refused with."""

    def respond(self, message: bytes) -> Step:
        """Judge the next message of the client."""
        if self._failed is not None:
            if message == ACKNOWLEDGED:
                return self._failed
            return Refused(f"{self._failed.reason}, and another message after that")
        said = client_first_of(message)
        if said is None:
            return Refused("a first message that is none")
        return Undecided(partial(self._decide, said.token, said.authorization_id, may_fetch=True))

    def _decide(self, token: str, authorization_id: str, *, may_fetch: bool) -> Step:
        rules = self._rules
        keys_at = "" if rules.keys is None else rules.keys.url
        verdict = judged(token, rules, keys=self._keys(keys_at), now_ms=self._now_ms())
        if isinstance(verdict, UnknownKey):
            if may_fetch:
                again = partial(self._decide, token, authorization_id, may_fetch=False)
                return Undecided(again, keys_at)
            verdict = Invalid("it is signed by a key that is not known")
        if isinstance(verdict, Invalid):
            return self._refuse(verdict)
        if authorization_id not in {"", verdict.user}:
            reason = "Client requested an authorization id that is different from the token's"
            return Refused(reason, f"Authentication failed: {reason} principal name")
        return Authenticated(verdict.user, ends_ms=verdict.ends_ms)

    def _refuse(self, verdict: Invalid) -> Challenge:
        status = "insufficient_scope" if verdict.missing_scope else "invalid_token"
        told = {"status": status}
        if verdict.missing_scope:
            told["scope"] = verdict.missing_scope
        sentence = json.dumps(told, separators=(",", ":"))
        self._failed = Refused(f"a token that is not taken: {verdict.reason}", sentence)
        return Challenge(sentence.encode())
