"""IncrementalAlterConfigs, v0-1: single configs of topics, groups, agents … are set, unset, added to.

KIP-339. What is not named stays as it is. Levels of loggers are altered by this API alone (KIP-412). The rest is as in AlterConfigs
(`broker.handlers.alter_configs`).

Errors, per resource: 3, 7, 17, 40, 41, 42 (also an unknown operation), 44.
"""

from functools import partial
from typing import Final

from broker.api import Api, Cold, Narrowed
from broker.calls.call import Call
from broker.config.changes import AlterConfigOp, changed
from broker.handlers.alter_configs import RIGHTS, RequestedConfigs, alter, refused
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
    return IncrementalAlterConfigsResponse(responses=await alter(node, call, request, _requested))


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


def _requested(configs: list[IncrementalAlterableConfig]) -> RequestedConfigs:
    operations = [
        AlterConfigOp(config.name, config.config_operation, config.value) for config in configs
    ]
    return RequestedConfigs(len(operations), partial(changed, operations=operations), operations)
