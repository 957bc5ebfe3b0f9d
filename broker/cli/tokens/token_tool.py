"""`frazil token`: delegation tokens, as `kafka-delegation-tokens.sh` has them (KIP-48, KIP-373).

Works on any cluster that speaks Kafka's protocol. A token's HMAC is all that it takes to be its owner: it is told
where it was asked for and nowhere else.

Leaves out: files with a token (`broker.cli.tokens.token_file`).
"""

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker.cli.command_result import CommandResult
from broker.cli.kafka_client import KafkaClient, check
from broker.cli.routing import told
from broker.cli.txn_tool import time_text
from broker.reports.tables import Cell, table
from protocol import apis, messages
from protocol.errors import ErrorCode

OWNER_SINCE: Final = 3
"""Version of CreateDelegationToken from which on a token may be somebody else's."""
AT_ONCE: Final = -1
"""As a period: a token ends now."""

WORDS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "the cluster has no tokens (delegation.token.secret.key of its brokers)"
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: (
        "no token has this HMAC, or it has ended (frazil token list tells which there are)"
    ),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "you are neither its owner nor a renewer: log in as one of them (--command-config)"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "who asks for tokens has to log in, and not by a token (--command-config)"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "you may not make tokens of another user (that is the right CREATE_TOKENS on the user)"
    ),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: (
        "the token has ended: make another one (frazil token create)"
    ),
    ErrorCode.INVALID_PRINCIPAL_TYPE: "owners and renewers are users (User:alice)",
    ErrorCode.POLICY_VIOLATION: "there are too many already: end some (frazil token expire)",
}


class Principal(NamedTuple):
    kind: str
    name: str

    @classmethod
    def of(cls, text: str) -> "Principal":
        """Raises ValueError with a sentence."""
        kind, _, name = text.partition(":")
        if not kind or not name:
            raise ValueError(f'"{text}" is not a principal (example: User:alice)')
        return cls(kind, name)


class NewToken(NamedTuple):
    """What is asked for."""

    owner: Principal | None
    """None: whoever asks."""
    renewers: Sequence[Principal]
    max_ms: int
    """How long it may live; -1: as long as the cluster lets tokens live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One that there is."""

    token_id: str
    hmac: str = field(repr=False)
    """In base64: as SCRAM's password."""
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    """When it ends, unless it is renewed."""
    max_ms: int
    """When it ends at the latest."""


Keep = Callable[[Token], CommandResult]
"""Puts a token where it was to go; what to say of that."""


async def create(client: KafkaClient, wanted: NewToken, keep: Keep) -> CommandResult:
    """Make a token. Raises ToolError."""
    owner = wanted.owner
    request = messages.CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else owner.kind,
        owner_principal_name=None if owner is None else owner.name,
        renewers=[
            messages.CreatableRenewers(principal_type=each.kind, principal_name=each.name)
            for each in wanted.renewers
        ],
        max_lifetime_ms=wanted.max_ms,
    )
    oldest = 0 if owner is None else OWNER_SINCE

    async def attempt() -> messages.CreateDelegationTokenResponse:
        answer: messages.CreateDelegationTokenResponse = await client.ask(
            apis.CREATE_DELEGATION_TOKEN, request, oldest=oldest
        )
        check(answer.error_code)
        return answer

    row = await _told("no token is made", client.until_done(attempt))
    whose = _text(row.principal_type, row.principal_name)
    requester = _text(row.token_requester_principal_type, row.token_requester_principal_name)
    return keep(
        Token(
            token_id=row.token_id,
            hmac=_base64(row.hmac),
            owner=whose,
            # Older versions do not tell: there it is the owner.
            requester=requester if row.token_requester_principal_name else whose,
            renewers=tuple(_text(*each) for each in wanted.renewers),
            issued_ms=row.issue_timestamp_ms,
            expires_ms=row.expiry_timestamp_ms,
            max_ms=row.max_timestamp_ms,
        )
    )


def shown(token: Token, *, as_json: bool) -> CommandResult:
    """A new token with its HMAC."""
    if as_json:
        return CommandResult([json.dumps(as_object(token, with_hmac=True))])
    return CommandResult(lines([token], with_hmac=True))


def kept(token: Token, where: str, *, as_json: bool) -> CommandResult:
    """A new token whose HMAC is in a file."""
    if as_json:
        return CommandResult([json.dumps(as_object(token, with_hmac=False))])
    ends = f"it ends at {time(token.expires_ms)} unless it is renewed, at {time(token.max_ms)} at the latest"
    return CommandResult([f"token {token.token_id} of {token.owner} is in {where}: {ends}"])


async def list_tokens(
    client: KafkaClient, owners: Sequence[Principal], *, with_hmac: bool, as_json: bool
) -> CommandResult:
    """Those that one may see, of these owners or of all. Raises ToolError."""
    named = [
        messages.DescribeDelegationTokenOwner(principal_type=each.kind, principal_name=each.name)
        for each in owners
    ]
    # An empty list would be nobody's.
    request = messages.DescribeDelegationTokenRequest(owners=named or None)

    async def attempt() -> messages.DescribeDelegationTokenResponse:
        answer: messages.DescribeDelegationTokenResponse = await client.ask(
            apis.DESCRIBE_DELEGATION_TOKEN, request
        )
        check(answer.error_code)
        return answer

    answer = await _told("tokens are not listed", client.until_done(attempt))
    found = sorted(map(_described, answer.tokens), key=lambda each: (each.owner, each.issued_ms))
    if as_json:
        return CommandResult([json.dumps([as_object(each, with_hmac=with_hmac) for each in found])])
    if not found:
        return CommandResult(["there are no tokens that you may see"])
    return CommandResult(lines(found, with_hmac=with_hmac))


async def renew(
    client: KafkaClient, hmac: bytes, *, period_ms: int, as_json: bool
) -> CommandResult:
    """Let a token live on for a while; -1: as long as the cluster has it. Raises ToolError."""
    request = messages.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)

    async def attempt() -> int:
        answer: messages.RenewDelegationTokenResponse = await client.ask(
            apis.RENEW_DELEGATION_TOKEN, request
        )
        check(answer.error_code)
        return int(answer.expiry_timestamp_ms)

    ends_ms = await _told("the token is not renewed", client.until_done(attempt))
    return _ends(ends_ms, as_json=as_json)


async def expire(
    client: KafkaClient, hmac: bytes, *, period_ms: int, as_json: bool
) -> CommandResult:
    """Let a token end at once, or in a while. Raises ToolError."""
    request = messages.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    attempts = 0

    async def attempt() -> int | None:
        nonlocal attempts
        attempts += 1
        answer: messages.ExpireDelegationTokenResponse = await client.ask(
            apis.EXPIRE_DELEGATION_TOKEN, request
        )
        if attempts > 1 and answer.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
            # It was this one that an earlier attempt has ended, whose answer was lost.
            return None
        check(answer.error_code)
        return int(answer.expiry_timestamp_ms)

    ends_ms = await _told("the token is not ended", client.until_done(attempt))
    if as_json or (period_ms >= 0 and ends_ms is not None):
        return _ends(ends_ms, as_json=as_json)
    return CommandResult(["the token is ended: nobody logs in by it any more"])


def _ends(ends_ms: int | None, *, as_json: bool) -> CommandResult:
    if as_json:
        return CommandResult([json.dumps({"expires_ms": ends_ms})])
    return CommandResult([f"the token ends at {time(ends_ms)}"])


def time(ms: int | None) -> str:
    return (None if ms is None else time_text(ms)) or "-"


def as_object(token: Token, *, with_hmac: bool) -> dict[str, Any]:
    """For programs."""
    found: dict[str, Any] = {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
    }
    return found | {"hmac": token.hmac} if with_hmac else found


def lines(tokens: Iterable[Token], *, with_hmac: bool) -> list[str]:
    """A table of tokens."""
    rows: list[list[Cell]] = [
        [
            token.token_id,
            token.owner,
            token.requester,
            ",".join(token.renewers) or None,
            *map(time, (token.issued_ms, token.expires_ms, token.max_ms)),
            *([token.hmac] if with_hmac else ()),
        ]
        for token in tokens
    ]
    heads = ("TOKEN-ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "MAX")
    return table((*heads, "HMAC") if with_hmac else heads, rows)


def _described(row: messages.DescribedDelegationToken) -> Token:
    owner = _text(row.principal_type, row.principal_name)
    requester = _text(row.token_requester_principal_type, row.token_requester_principal_name)
    return Token(
        token_id=row.token_id,
        hmac=_base64(row.hmac),
        owner=owner,
        requester=requester if row.token_requester_principal_name else owner,
        renewers=tuple(_text(each.principal_type, each.principal_name) for each in row.renewers),
        issued_ms=row.issue_timestamp,
        expires_ms=row.expiry_timestamp,
        max_ms=row.max_timestamp,
    )


def _text(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def _base64(hmac: bytes) -> str:
    return b64encode(hmac).decode()


async def _told(about: str, work: Awaitable[Any]) -> Any:
    return await told(about, work, WORDS)
