"""ListTransactions, v0-2: the transactional ids that this agent coordinates; clients ask every agent.

KIP-664, KIP-994 (by duration, v1+), KIP-1152 (by pattern, v2+). Behind a barrier (P8), so that an
id which another agent has told of is listed by its coordinator. While agents differ about who is
live, an id may be listed twice, or not at all for as long as one of them is behind.

Errors: 14 (no barrier to be had), 15 (no session: another agent will list them), 128.
"""

from typing import Final

from broker import guards
from broker.api import Api, Cold, Narrowed, Operation, Resource, Right, error_alone
from broker.calls.call import Call
from broker.handler_support import live_incarnation
from broker.node import Node
from broker.transactions.views import Filter, listed, unknown_states
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ROW_ELEMENTS: Final = 3
"""What one row costs, in elements that are looked at; an expression comes on top."""


async def handle(
    node: Node, call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    wanted = Filter.of(
        states=request.state_filters,
        producer_ids=request.producer_id_filters,
        longer_than_ms=request.duration_filter,
        regex=request.transactional_id_pattern or "",
    )
    await node.log_client.barrier()
    live_incarnation(node, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    response = ListTransactionsResponse(unknown_state_filters=unknown_states(request.state_filters))
    now_ms = node.now_ms()
    turns = node.slices.of(call)
    asks = guards.asker(node, call)
    for row in list(node.log_client.machine.transactions):
        await turns.spend(ROW_ELEMENTS + wanted.elements(row))
        if asks is not None and not asks.allows(DESCRIBE, row.transactional_id):
            continue
        if wanted.fits(row, now_ms=now_ms) and node.transactions.coordinates(row.transactional_id):
            response.transaction_states.append(listed(row))
    return response


DESCRIBE: Final = Right(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID)


async def narrow(_node: Node, _call: Call, request: ListTransactionsRequest) -> Narrowed:
    """Others are left out where they are found."""
    return Narrowed(request)


API: Final = Api(
    key=apis.LIST_TRANSACTIONS,
    handler=Cold(handle, error_alone(ListTransactionsResponse), narrow),
    unavailable=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    changes=False,
    rights=(DESCRIBE,),
)
