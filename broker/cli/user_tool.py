"""`frazil user`: users of SCRAM, as `kafka-configs.sh --entity-type users` has them (KIP-554).

Works on any cluster that speaks Kafka's protocol. The password stays here: the cluster is sent the
salted one, and keeps neither.
"""

import json
import secrets
from collections.abc import Iterable
from typing import Any

from broker.cli.command_result import CommandResult
from broker.cli.kafka_client import KafkaClient, check
from broker.sasl.scram_keys import BY_NAME, NAMES, SALT_BITS, salt_of, salted_password
from coordinator.commands.credential_commands import ScramMechanism
from protocol import apis, messages


async def create(
    client: KafkaClient, user: str, password: str, *, mechanism: str, iterations: int
) -> CommandResult:
    """Give the user this password, in place of one that it has. Raises ClientError, KafkaError."""
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
    await _alter(client, request)
    return CommandResult([f"user {user} can log in by {mechanism}"])


async def delete(client: KafkaClient, user: str, *, mechanism: str | None) -> CommandResult:
    """Take the user's credential for the mechanism away; None: all that it has."""
    if mechanism is not None:
        kinds = [int(BY_NAME[mechanism])]
    else:
        (row,) = (await _described(client, [user])).results
        check(row.error_code, row.error_message or "")
        kinds = [info.mechanism for info in row.credential_infos]
    # Kafka refuses a user that is named twice in a request.
    for kind in kinds:
        deletion = messages.ScramCredentialDeletion(name=user, mechanism=kind)
        await _alter(client, messages.AlterUserScramCredentialsRequest(deletions=[deletion]))
    return CommandResult([f"user {user} cannot log in by {_name(kind)} any more" for kind in kinds])


async def list_users(client: KafkaClient, *, as_json: bool = False) -> CommandResult:
    """All users, with their mechanisms and iterations."""
    answer = await _described(client, None)
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


async def _alter(client: KafkaClient, request: messages.AlterUserScramCredentialsRequest) -> None:
    async def attempt() -> None:
        answer: messages.AlterUserScramCredentialsResponse = await client.ask(
            apis.ALTER_USER_SCRAM_CREDENTIALS, request
        )
        for row in answer.results:
            check(row.error_code, row.error_message or "")

    await client.until_done(attempt)


async def _described(
    client: KafkaClient, users: list[str] | None
) -> messages.DescribeUserScramCredentialsResponse:
    named = None if users is None else [messages.UserName(name=user) for user in users]
    request = messages.DescribeUserScramCredentialsRequest(users=named)

    async def attempt() -> messages.DescribeUserScramCredentialsResponse:
        answer: messages.DescribeUserScramCredentialsResponse = await client.ask(
            apis.DESCRIBE_USER_SCRAM_CREDENTIALS, request
        )
        check(answer.error_code, answer.error_message or "")
        return answer

    return await client.until_done(attempt)
