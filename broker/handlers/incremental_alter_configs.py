"""IncrementalAlterConfigs, v0-1: single configs of topics and groups are set, unset, added to.

KIP-339, KIP-848 (groups). What is not named stays as it is. The rest is as in AlterConfigs
(`broker.handlers.alter_configs`).

Errors, per resource: 3, 7, 17, 40, 41, 42 (also an unknown operation), 44.
"""

from functools import partial
from typing import Final

from broker.api import Api, Cold
from broker.calls.call import Call
from broker.config.changes import AlterConfigOp, changed
from broker.handlers.alter_configs import RIGHTS, ChangesOf, alter, refused
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    node: Node, call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=await alter(node, call, request, _changes_of))


def refusal(
    call: Call, request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=refused(request, error))


API: Final = Api(
    key=apis.INCREMENTAL_ALTER_CONFIGS,
    handler=Cold(handle, refusal),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=RIGHTS,
)


def _changes_of(configs: list[IncrementalAlterableConfig]) -> ChangesOf:
    operations = [
        AlterConfigOp(config.name, config.config_operation, config.value) for config in configs
    ]
    return partial(changed, operations=operations)
