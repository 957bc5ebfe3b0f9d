"""ExpireDelegationToken, v1-2: a token ends at once, or in a while.

KIP-48. Whoever shows the HMAC and is owner or renewer may do it. A token that ends at once is gone on
all live agents when that is answered: nobody logs in by it any more. Connections that did go on for as
long as they were told, as in Kafka.

Errors: 7 (may still happen, or not everywhere yet), 35 (an agent of an older release is live), 41 (no
session: send it elsewhere), 61, 62, 63, 64, 66.
"""

from typing import Final

from broker.api import Api, Cold
from broker.calls.call import Call
from broker.handler_support import change_token, refuse_token_requests, token_shown
from broker.node import Node
from coordinator.commands.token_commands import (
    ExtendDelegationToken,
    RemoveDelegationTokens,
    TokenCommand,
)
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


async def handle(
    node: Node, call: Call, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    refuse_token_requests(call)
    token = await token_shown(node, call, request.hmac)
    now_ms = node.now_ms()
    command: TokenCommand
    if request.expiry_time_period_ms < 0:
        ends_ms = now_ms
        command = RemoveDelegationTokens((token.token_id,), token.max_ms)
    else:
        ends_ms = min(token.max_ms, now_ms + request.expiry_time_period_ms)
        command = ExtendDelegationToken(token.token_id, ends_ms)
    if not await change_token(node, command):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not every agent has applied it yet")
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=ends_ms)


def refusal(
    call: Call, request: ExpireDelegationTokenRequest, error: KafkaError
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)


API: Final = Api(
    key=apis.EXPIRE_DELEGATION_TOKEN,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(),
    is_audited=True,
)
