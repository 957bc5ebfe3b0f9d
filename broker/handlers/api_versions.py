"""ApiVersions, v0-4: what this agent speaks, and the cluster's features.

KIP-35, KIP-511 (clients name themselves from v3 on; an unknown version is answered in version 0,
by the dispatcher), KIP-584 (features, `broker.features`). Levels and epoch are read from the
machine in one step, so they belong together, and this agent never tells an older epoch than it
told before; clients keep to the newest that any agent told them. A level of 0 is told by not
telling the feature.
"""

import re
from typing import Final

from broker import features
from broker.dispatch import Call
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

NAMED_SINCE: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

LEVEL_ZERO_SINCE: Final = 4
"""Clients of an earlier version cannot read a supported feature whose least level is 0, so they
are not told of it (KAFKA-17011)."""


async def handle(node: Node, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= NAMED_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    told = node.coordinator.machine.features
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in apis.APIS.values()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, (least, most) in features.SUPPORTED.items()
            if least > 0 or call.version >= LEVEL_ZERO_SINCE
        ],
        finalized_features_epoch=told.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in features.levels(told).items()
            if level > 0
        ],
    )


def refusal(call: Call, request: ApiVersionsRequest, error: KafkaError) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.code)
