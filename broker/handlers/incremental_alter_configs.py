"""IncrementalAlterConfigs, v0-1: single configs of topics and groups are set, unset, added to.

KIP-339, KIP-848 (groups). What is not named stays as it is. The rest is as in AlterConfigs
(`broker.handlers.alter_configs`).

Errors, per resource: 3, 7, 17, 40, 41, 42 (also an unknown operation), 44.
"""

from functools import partial
from typing import Final

from broker.api import Api, Cold, Narrowed
from broker.calls.call import Call
from broker.config.changes import AlterConfigOp, changed
from broker.handlers.alter_configs import RIGHTS, ChangesOf, alter, refused
from broker.handlers.describe_configs import of_permitted
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


async def narrow(node: Node, call: Call, request: IncrementalAlterConfigsRequest) -> Narrowed:
    return await of_permitted(
        node,
        call,
        request,
        RIGHTS,
        lambda some, error: refusal(call, some, error),
        answers="responses",
    )


API: Final = Api(
    key=apis.INCREMENTAL_ALTER_CONFIGS,
    handler=Cold(handle, refusal, narrow),
    unavailable=ErrorCode.NOT_CONTROLLER,
    changes=True,
    rights=RIGHTS,
    is_audited=True,
)


def _changes_of(configs: list[IncrementalAlterableConfig]) -> ChangesOf:
    operations = [
        AlterConfigOp(config.name, config.config_operation, config.value) for config in configs
    ]
    return partial(changed, operations=operations)
