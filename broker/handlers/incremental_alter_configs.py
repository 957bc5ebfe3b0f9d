"""IncrementalAlterConfigs, v0-1: single configs of topics and groups are set, unset, added to.

KIP-339, KIP-848 (groups). What is not named stays as it is. The rest is as in AlterConfigs
(`broker.handlers.alter_configs`).

Errors, per resource: 3, 7, 17, 40, 41, 42 (also an unknown operation), 44.
"""

from collections.abc import Mapping
from typing import Final

from broker.api import Api, Cold, Operation, Resource, Right
from broker.calls.call import Call
from broker.config.changes import AlterConfigOp, Changes, ConfigRules, changed
from broker.handlers.alter_configs import Alteration, alter, refused
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    node: Node, call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    alterations = []
    for resource in request.resources:
        operations = [
            AlterConfigOp(config.name, config.config_operation, config.value)
            for config in resource.configs
        ]

        def changes_of(
            before: Mapping[str, str],
            rules: ConfigRules,
            operations: list[AlterConfigOp] = operations,
        ) -> Changes:
            return changed(before, operations, rules)

        alterations.append(Alteration(resource.resource_type, resource.resource_name, changes_of))
    responses = await alter(node, alterations, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=responses)


def refusal(
    call: Call, request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            refused(resource.resource_type, resource.resource_name, error)
            for resource in request.resources
        ]
    )


API: Final = Api(
    key=apis.INCREMENTAL_ALTER_CONFIGS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=(
        Right(Operation.ALTER_CONFIGS, Resource.TOPIC, ("resources[].resource_name",)),
        Right(Operation.ALTER_CONFIGS, Resource.GROUP, ("resources[].resource_name",)),
        Right(Operation.ALTER_CONFIGS, Resource.CLUSTER),
    ),
)
