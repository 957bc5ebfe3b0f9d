"""UpdateFeatures, v0-2: the level of `transaction.version` is changed, for all agents at once.

KIP-584, KIP-1022. Judged behind a barrier (P8), all or nothing; apply decides whether every live
agent can serve the level. As with Kafka's controller, what is wrong with one feature is the error
of the whole request, at the top and nowhere else; rows of features come in v0-1, when all is well.

Errors: 7 (may still happen), 41 (no session: send it elsewhere), 95.
"""

from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.calls.outcomes import accepted, outcome_of, wait_for
from broker.cluster import features
from broker.handler_support import live_incarnation
from broker.node import Node
from coordinator.commands.entries import Rejected
from coordinator.commands.transaction_commands import SetFeatureLevel
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.types import Incarnation

FAILED = "The update failed for all features since the following feature had an error: "


async def handle(node: Node, call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    incarnation = live_incarnation(node, ErrorCode.NOT_CONTROLLER)
    wanted = features.feature_updates(request.feature_updates, version=call.version)
    await node.log_client.barrier()
    current = features.levels(node.log_client.machine.features)
    try:
        for each in wanted:
            features.check(each, current)
        if not request.validate_only:
            for each in wanted:
                if each.level != current[each.feature]:
                    await _set(node, incarnation, each, timeout_ms=request.timeout_ms)
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_UPDATE_VERSION:
            error = KafkaError(error.code, FAILED + error.message)
        return refusal(call, request, error)
    return UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=each.feature) for each in wanted]
    )


def refusal(
    call: Call, request: UpdateFeaturesRequest, error: KafkaError
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


API: Final = Api(
    key=apis.UPDATE_FEATURES,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(Right(Operation.ALTER, Resource.CLUSTER),),
    is_audited=True,
)


async def _set(
    node: Node, incarnation: Incarnation, each: features.FeatureUpdate, *, timeout_ms: int
) -> None:
    """Only one feature can change, so this is done once. Raises KafkaError."""
    future = node.log_client.propose(SetFeatureLevel(each.feature, each.level), incarnation)
    await wait_for([future], timeout_ms)
    outcome = outcome_of(future, ErrorCode.NOT_CONTROLLER)
    if isinstance(outcome, Rejected) and outcome.error is ErrorCode.INVALID_UPDATE_VERSION:
        raise features.invalid(each, outcome.message)
    accepted(outcome)
