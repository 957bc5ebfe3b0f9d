"""DescribeDelegationToken, v1-3: tokens with their HMACs, for whom they concern.

KIP-48, KIP-373. Behind a barrier (P8). Owners null: all that one may see; an empty list: none. A token
is seen by owner, requester and renewers, and by who may DESCRIBE it or DESCRIBE_TOKENS of its owner.

Errors: 7 (no barrier to be had), 61, 64.
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right, error_alone
from broker.calls.call import Call
from broker.handler_support import delegation_of, refuse_token_requests
from broker.node import Node
from broker.sasl.delegation import Delegation, parts_of, principal_of
from coordinator.tables.administration.delegation_tokens import DelegationToken
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

TOKEN_ELEMENTS: Final = 10
"""What one token costs, in elements that are looked at."""
DESCRIBE_TOKENS: Final = Right(Operation.DESCRIBE_TOKENS, Resource.USER)
DESCRIBE: Final = Right(Operation.DESCRIBE, Resource.DELEGATION_TOKEN, instead=DESCRIBE_TOKENS)


async def handle(
    node: Node, call: Call, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    refuse_token_requests(call)
    delegation = delegation_of(node)
    await node.log_client.barrier()
    wanted = None
    if request.owners is not None:
        wanted = {principal_of(each.principal_type, each.principal_name) for each in request.owners}
    response = DescribeDelegationTokenResponse()
    turns = node.slices.of(call)
    for token in list(node.log_client.machine.delegation_tokens):
        await turns.spend(TOKEN_ELEMENTS)
        named = wanted is None or any(token.concerns(each) for each in _those(token, wanted))
        if named and _may_see(node, call, token):
            response.tokens.append(_described(token, delegation))
    return response


async def narrow(_node: Node, _call: Call, request: DescribeDelegationTokenRequest) -> Narrowed:
    """Others are left out where they are found."""
    return Narrowed(request)


API: Final = Api(
    key=apis.DESCRIBE_DELEGATION_TOKEN,
    handler=Cold(handle, error_alone(DescribeDelegationTokenResponse), narrow),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(DESCRIBE,),
)


def _those(token: DelegationToken, wanted: set[str]) -> list[str]:
    """The principals of a token that were asked for."""
    return [each for each in (token.owner, token.requester, *token.renewers) if each in wanted]


def _may_see(node: Node, call: Call, token: DelegationToken) -> bool:
    if token.concerns(call.connection.requester.principal):
        return True
    asks = guards.asker(node, call)
    if asks is None:
        return True
    # Not by `instead`, which is for resources of one name.
    alone = Right(Operation.DESCRIBE, Resource.DELEGATION_TOKEN)
    return asks.allows(alone, token.token_id) or asks.allows(DESCRIBE_TOKENS, token.owner)


def _described(token: DelegationToken, delegation: Delegation) -> DescribedDelegationToken:
    owner, requester = parts_of(token.owner), parts_of(token.requester)
    renewers = [parts_of(each) for each in token.renewers]
    return DescribedDelegationToken(
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=delegation.hmac(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in renewers
        ],
    )
