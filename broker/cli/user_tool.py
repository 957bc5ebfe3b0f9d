"""`frazil user`: users of SCRAM, as `kafka-configs.sh --entity-type users` has them (KIP-554).

Works on any cluster that speaks Kafka's protocol. The password stays here: the cluster is sent the
salted one, and keeps neither.
"""

import json
import secrets
from collections.abc import Iterable
from typing import Any, Final

from broker.cli.command_result import CommandResult
from broker.cli.kafka_client import KafkaClient, check
from broker.cli.routing import told
from broker.sasl.scram_keys import BY_NAME, NAMES, SALT_BITS, salt_of, salted_password
from coordinator.commands.credential_commands import ScramMechanism
from protocol import apis, messages
from protocol.errors import ErrorCode

WORDS: Final = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "you may not do that in this cluster",
    ErrorCode.RESOURCE_NOT_FOUND: (
        "there is no such user, or not with that mechanism (frazil user list tells)"
    ),
}


async def create(
    client: KafkaClient, user: str, password: str, *, mechanism: str, iterations: int
) -> CommandResult:
    """Give the user this password, in place of one that it has. Raises ClientError, ToolError."""
    kind = BY_NAME[mechanism]
    salt = salt_of(secrets.randbits(SALT_BITS))
    request = messages.AlterUserScramCredentialsRequest(
        upsertions=[
            messages.ScramCredentialUpsertion(
                name=user,
                mechanism=kind,
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(kind, password, salt=salt, iterations=iterations),
            )
        ]
    )
    await _alter(client, request, f"user {user} is not made")
    return CommandResult([f"user {user} can log in by {mechanism}"])


async def delete(client: KafkaClient, user: str, *, mechanism: str | None) -> CommandResult:
    """Take the user's credential for the mechanism away; None: all that it has. Raises ClientError, ToolError."""
    about = f"user {user} is not deleted"
    if mechanism is not None:
        kinds = [int(BY_NAME[mechanism])]
    else:
        (row,) = (await _described(client, [user], about)).results
        kinds = [info.mechanism for info in row.credential_infos]
    # Kafka refuses a user that is named twice in a request.
    for kind in kinds:
        deletion = messages.ScramCredentialDeletion(name=user, mechanism=kind)
        request = messages.AlterUserScramCredentialsRequest(deletions=[deletion])
        await _alter(client, request, about)
    return CommandResult([f"user {user} cannot log in by {_name(kind)} any more" for kind in kinds])


async def list_users(client: KafkaClient, *, as_json: bool = False) -> CommandResult:
    """All users, with their mechanisms and iterations. Raises ClientError, ToolError."""
    answer = await _described(client, [], "users are not told")
    if as_json:
        return CommandResult([json.dumps(_as_json(answer.results))])
    lines = []
    for row in sorted(answer.results, key=lambda row: row.user):
        infos = [f"{_name(info.mechanism)} ({info.iterations})" for info in row.credential_infos]
        lines.append(f"{row.user}: {', '.join(infos)}")
    return CommandResult(lines or ["there are no users"])


def _as_json(
    rows: Iterable[messages.DescribeUserScramCredentialsResult],
) -> list[dict[str, Any]]:
    return [
        {
            "user": row.user,
            "credentials": [
                {"mechanism": _name(info.mechanism), "iterations": info.iterations}
                for info in row.credential_infos
            ],
        }
        for row in sorted(rows, key=lambda row: row.user)
    ]


def _name(mechanism: int) -> str:
    """Of a newer cluster's, the number."""
    known = {int(kind) for kind in ScramMechanism}
    return NAMES[ScramMechanism(mechanism)] if mechanism in known else f"mechanism {mechanism}"


async def _alter(
    client: KafkaClient, request: messages.AlterUserScramCredentialsRequest, about: str
) -> None:
    async def attempt() -> None:
        answer: messages.AlterUserScramCredentialsResponse = await client.ask(
            apis.ALTER_USER_SCRAM_CREDENTIALS, request
        )
        for row in answer.results:
            check(row.error_code, row.error_message or "")

    await told(about, client.until_done(attempt), WORDS)


async def _described(
    client: KafkaClient, users: list[str], about: str
) -> messages.DescribeUserScramCredentialsResponse:
    # None named is all. So is null, with which Kafka's broker leaves who has no right without an answer.
    named = [messages.UserName(name=user) for user in users]
    request = messages.DescribeUserScramCredentialsRequest(users=named)

    async def attempt() -> messages.DescribeUserScramCredentialsResponse:
        answer: messages.DescribeUserScramCredentialsResponse = await client.ask(
            apis.DESCRIBE_USER_SCRAM_CREDENTIALS, request
        )
        check(answer.error_code, answer.error_message or "")
        for row in answer.results:
            check(row.error_code, row.error_message or "")
        return answer

    return await told(about, client.until_done(attempt), WORDS)
