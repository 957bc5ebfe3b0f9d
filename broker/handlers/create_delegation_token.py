"""CreateDelegationToken, v1-3: a token by which somebody may act as its owner for a while.

KIP-48, KIP-373 (v3+: for another owner). The answer comes when all live agents know the token, so
that it can be used at any of them. The HMAC is in the answer and nowhere else: it follows from the
id and a secret of the agents (`broker.sasl.delegation`).

Errors: 7 (may still happen), 35 (an agent of an older release is live), 41 (no session: send it
elsewhere), 42, 44 (more than a cluster keeps, or one requester may have), 61, 64, 65, 67 (owners and
renewers are users).
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right
from broker.calls.call import Call
from broker.handler_support import change_token, delegation_of, refuse_token_requests
from broker.node import Node
from broker.sasl.delegation import (
    ID_BITS,
    REMEMBERED_MAX,
    USER,
    parts_of,
    principal_of,
    token_id_of,
)
from coordinator.commands.token_commands import RENEWERS_MAX, TOKENS_MAX, CreateDelegationToken
from coordinator.tables.administration.delegation_tokens import misfit
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import CreateDelegationTokenRequest, CreateDelegationTokenResponse

OF_REQUESTER_MAX: Final = TOKENS_MAX // 10
"""No more than an agent remembers the keys of (`broker.sasl.delegation`)."""
assert OF_REQUESTER_MAX <= REMEMBERED_MAX


async def handle(
    node: Node, call: Call, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    refuse_token_requests(call)
    owner = _owner(call, request)
    kinds = {each.principal_type for each in request.renewers}
    if not kinds | {parts_of(owner)[0]} <= {USER}:
        reason = "Only users own and renew tokens."
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, reason)
    delegation = delegation_of(node)
    if len(request.renewers) > RENEWERS_MAX:
        reason = f"A token has at most {RENEWERS_MAX} renewers."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    await _refuse_too_many(node, call)
    now_ms = node.now_ms()
    expires_ms, max_ms = delegation.lifetimes.of_new(now_ms, request.max_lifetime_ms)
    renewers = [principal_of(each.principal_type, each.principal_name) for each in request.renewers]
    command = CreateDelegationToken(
        token_id=token_id_of(node.rng.getrandbits(ID_BITS)),
        owner=owner,
        requester=call.connection.requester.principal,
        renewers=tuple(dict.fromkeys(renewers)),
        issued_ms=now_ms,
        expires_ms=expires_ms,
        max_ms=max_ms,
    )
    if (unfit := misfit(command)) is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, unfit)
    await change_token(node, command)  # An agent that is late learns of it ms later.
    response = _response(call, request)
    response.issue_timestamp_ms = now_ms
    response.expiry_timestamp_ms = expires_ms
    response.max_timestamp_ms = max_ms
    response.token_id = command.token_id
    response.hmac = delegation.hmac(command.token_id)
    return response


def refusal(
    call: Call, request: CreateDelegationTokenRequest, error: KafkaError
) -> CreateDelegationTokenResponse:
    response = _response(call, request)
    response.error_code = error.code
    return response


CREATE: Final = Right(Operation.CREATE_TOKENS, Resource.USER, ("owner_principal_name",))


async def narrow(node: Node, call: Call, request: CreateDelegationTokenRequest) -> Narrowed:
    """Everybody may have a token of its own."""
    refuse_token_requests(call)
    owner = _owner(call, request)
    if owner != call.connection.requester.principal:
        assert node.rights is not None
        guards.Asker(node.rights, call).require(CREATE, owner)
    return Narrowed(request)


API: Final = Api(
    key=apis.CREATE_DELEGATION_TOKEN,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(CREATE,),
    is_audited=True,
)


async def _refuse_too_many(node: Node, call: Call) -> None:
    """Raises KafkaError where the requester has its share of all tokens: others need some, too. Agents
    that are asked at once may let a few more pass."""
    requester, count = call.connection.requester.principal, 0
    async for token in node.slices.of(call).over(list(node.log_client.machine.delegation_tokens)):
        count += token.requester == requester
    if count >= OF_REQUESTER_MAX:
        reason = f"Nobody may have asked for more than {OF_REQUESTER_MAX} tokens that are there."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, reason)


def _owner(call: Call, request: CreateDelegationTokenRequest) -> str:
    if not request.owner_principal_name:
        return call.connection.requester.principal
    return principal_of(request.owner_principal_type or "", request.owner_principal_name)


def _response(call: Call, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    owner, requester = (
        parts_of(_owner(call, request)),
        parts_of(call.connection.requester.principal),
    )
    return CreateDelegationTokenResponse(
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
