"""DeleteAcls, v1-3: the ACLs that filters fit are taken away, on every agent when it is answered.

KIP-11, KIP-290. What a filter means is found behind a barrier (P8) and proposed by name; each filter
is answered with those of its ACLs that were there when the log took the command. The answer waits
for all live agents, as that of CreateAcls does.

Errors, per filter: 7 (may still happen, or not everywhere yet), 31, 35 (an agent of an older release
is live), 41 (no session: send it elsewhere), 42 (unknown elements), 54 (no authorizer).
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
from broker.rights.acl_filter import AclFilter, filter_of
from coordinator.commands.rights_commands import RIGHTS_LEVEL, AclBinding, AclsDeleted, DeleteAcls
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.types import Incarnation


async def handle(node: Node, call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refuse_without_authorizer(node)
    refuse_beside_older(node, RIGHTS_LEVEL)
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    await node.log_client.barrier()
    turns = node.slices.of(call)
    rows = list(node.log_client.machine.acls)
    matched: list[list[AclBinding] | KafkaError] = []
    for each in request.filters:
        wanted = _parsed(each)
        if isinstance(wanted, AclFilter):
            matched.append([row async for row in turns.over(rows) if wanted.fits(row)])
        else:
            matched.append(wanted)
    found = dict.fromkeys([row for rows in matched if isinstance(rows, list) for row in rows])
    deleted = await _delete(node, incarnation, list(found))
    return DeleteAclsResponse(filter_results=[_result(each, deleted) for each in matched])


def refusal(call: Call, request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_result(error, {}) for _ in request.filters])


API: Final = Api(
    key=apis.DELETE_ACLS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(Right(Operation.ALTER, Resource.CLUSTER),),
    is_audited=True,
)


def _parsed(wanted: DeleteAclsFilter) -> AclFilter | KafkaError:
    try:
        return filter_of(wanted)
    except KafkaError as error:
        return error


async def _delete(
    node: Node, incarnation: Incarnation, bindings: list[AclBinding]
) -> dict[AclBinding, KafkaError | None]:
    """What became of each that was there: None when it is gone everywhere."""
    parts = binding_parts(bindings)
    futures = [node.log_client.propose(DeleteAcls(part), incarnation) for part in parts]
    await wait_for(futures, AGREEMENT_MS)
    found: dict[AclBinding, KafkaError | None] = {}
    for part, future in zip(parts, futures, strict=True):
        try:
            outcome = accepted(outcome_of(future, ErrorCode.NOT_CONTROLLER))
        except KafkaError as error:
            found |= dict.fromkeys(part, error)
            continue
        assert isinstance(outcome, AclsDeleted)
        found |= {row: None for row, was in zip(part, outcome.deleted, strict=True) if was}
    if None in found.values():
        position = node.log_client.machine.acls.version
        if not await node.rights_agreement.reached(position, timeout_ms=AGREEMENT_MS):
            late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not every agent has applied it yet")
            found = {row: late if error is None else error for row, error in found.items()}
    return found


def _result(
    rows: list[AclBinding] | KafkaError, deleted: dict[AclBinding, KafkaError | None]
) -> DeleteAclsFilterResult:
    if isinstance(rows, KafkaError):
        return DeleteAclsFilterResult(error_code=rows.code, error_message=rows.message or None)
    return DeleteAclsFilterResult(
        matching_acls=[_matching(row, deleted[row]) for row in rows if row in deleted]
    )


def _matching(row: AclBinding, error: KafkaError | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=row.resource_type,
        resource_name=row.name,
        pattern_type=row.pattern_type,
        principal=row.principal,
        host=row.host,
        operation=row.operation,
        permission_type=row.permission,
    )
