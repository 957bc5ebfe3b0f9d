"""RenewDelegationToken, v1-2: a token lives on for a while, until its longest life is over.

KIP-48. Whoever shows the HMAC and is owner or renewer may do it.

Errors: 7 (may still happen), 35 (an agent of an older release is live), 41 (no session: send it
elsewhere), 61, 62, 63, 64, 66.
"""

from typing import Final

from broker.api import Api, Cold
from broker.calls.call import Call
from broker.handler_support import (
    change_token,
    delegation_of,
    refuse_token_requests,
    token_shown,
)
from broker.node import Node
from coordinator.commands.token_commands import ExtendDelegationToken
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import RenewDelegationTokenRequest, RenewDelegationTokenResponse


async def handle(
    node: Node, call: Call, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    refuse_token_requests(call)
    token = await token_shown(node, call, request.hmac)
    lifetimes = delegation_of(node).lifetimes
    expires_ms = lifetimes.renewed(token, node.now_ms(), request.renew_period_ms)
    await change_token(node, ExtendDelegationToken(token.token_id, expires_ms))
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)


def refusal(
    call: Call, request: RenewDelegationTokenRequest, error: KafkaError
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)


API: Final = Api(
    key=apis.RENEW_DELEGATION_TOKEN,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(),
    is_audited=True,
)
