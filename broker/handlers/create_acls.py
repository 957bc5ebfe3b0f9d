"""CreateAcls, v1-3: ACLs are made; they are in force on every agent when it is answered.

KIP-11, KIP-290. Each is parsed by itself; those that are sound go into few commands. The same ACL
again is no error. The answer waits until all live agents have applied them
(`broker.cluster.rights_agreement`); where one does not in time it is REQUEST_TIMED_OUT, and clients
ask again, which does no harm.

Errors, per ACL: 7 (may still happen, or not everywhere yet), 31, 35 (an agent of an older release is
live), 41 (no session: send it elsewhere), 42, 44 (more than a cluster keeps), 54 (no authorizer).
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import accepted, outcome_of, wait_for
from broker.handler_support import (
    AGREEMENT_MS,
    binding_parts,
    live_incarnation,
    refuse_beside_older,
    refuse_without_authorizer,
)
from broker.node import Node
from broker.rights.acl_filter import binding_of
from coordinator.commands.rights_commands import RIGHTS_LEVEL, AclBinding, CreateAcls
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def handle(node: Node, call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    refuse_without_authorizer(node)
    refuse_beside_older(node, RIGHTS_LEVEL)
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    parsed = [_parsed(each) async for each in node.slices.of(call).over(request.creations)]
    sound = dict.fromkeys([each for each in parsed if isinstance(each, AclBinding)])
    parts = binding_parts(list(sound))
    futures = [node.log_client.propose(CreateAcls(part), incarnation) for part in parts]
    await wait_for(futures, AGREEMENT_MS)
    refused: dict[AclBinding, KafkaError] = {}
    for part, future in zip(parts, futures, strict=True):
        try:
            accepted(outcome_of(future, ErrorCode.NOT_CONTROLLER))
        except KafkaError as error:
            refused |= dict.fromkeys(part, error)
    if len(refused) < len(sound):
        position = node.log_client.machine.acls.version
        if not await node.rights_agreement.reached(position, timeout_ms=AGREEMENT_MS):
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not every agent has applied it yet")
            refused = dict.fromkeys(sound, late) | refused
    return CreateAclsResponse(
        results=[
            _result(each if isinstance(each, KafkaError) else refused.get(each)) for each in parsed
        ]
    )


def refusal(call: Call, request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(error) for _ in request.creations])


API: Final = Api(
    key=apis.CREATE_ACLS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(Right(Operation.ALTER, Resource.CLUSTER),),
    is_audited=True,
)


def _parsed(creation: AclCreation) -> AclBinding | KafkaError:
    try:
        return binding_of(creation)
    except KafkaError as error:
        return error


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult()
    return AclCreationResult(error_code=error.code, error_message=error.message or None)
