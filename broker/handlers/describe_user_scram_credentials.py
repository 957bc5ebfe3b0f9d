"""DescribeUserScramCredentials, v0: which mechanisms users have credentials for, and no secrets.

KIP-554. Behind a barrier (P8). No users named, or null: all. Sentences are Kafka's.

Errors: 7 (no barrier to be had); per user 91 (has no credential), 92 (twice in a request).
"""

from collections import Counter
from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

NO_ERROR: Final = ""
"""Kafka sends no null here."""
MISSING: Final = "Attempt to describe a user credential that does not exist: "
TWICE: Final = "Cannot describe SCRAM credentials for the same user twice in a single request: "


async def handle(
    node: Node, call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    await node.log_client.barrier()
    named = Counter(user.name for user in request.users or ())
    users = named or dict.fromkeys(sorted(node.log_client.machine.credentials.users()), 1)
    turns = node.slices.of(call)
    return DescribeUserScramCredentialsResponse(
        error_message=NO_ERROR,
        results=[_described(node, user, count) async for user, count in turns.over(users.items())],
    )


def refusal(
    call: Call, request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    message = error.message or None
    return DescribeUserScramCredentialsResponse(
        error_code=error.code,
        error_message=message,
        results=[
            DescribeUserScramCredentialsResult(
                user=user.name, error_code=error.code, error_message=message
            )
            for user in request.users or ()
        ],
    )


API: Final = Api(
    key=apis.DESCRIBE_USER_SCRAM_CREDENTIALS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(Right(Operation.DESCRIBE, Resource.CLUSTER),),
)


def _described(node: Node, user: str, count: int) -> DescribeUserScramCredentialsResult:
    """One user, who was named so often."""
    found = node.log_client.machine.credentials.of_user(user)
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=TWICE + user
        )
    if not found:
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=MISSING + user
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_message=NO_ERROR,
        credential_infos=[
            CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
            for mechanism, credential in sorted(found.items())
        ],
    )
