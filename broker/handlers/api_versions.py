"""ApiVersions, v0-4: what this agent speaks, and the cluster's features.

KIP-35, KIP-511 (clients name themselves from v3 on; an unknown version is answered in version 0,
by the dispatcher), KIP-584 (features). Transactions and groups are not served yet, so no feature
of theirs is; `metadata.version` is told because tools derive Kafka's version from it.
"""

import re
from typing import Final

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

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_MIN: Final = 7
"""3.3-IV3, the least that Kafka 4.3 knows."""
METADATA_VERSION_MAX: Final = 30
"""4.3-IV0."""

FEATURES_EPOCH: Final = 0
"""The same on every agent; grows once features are commands in the log."""


async def handle(node: Node, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= NAMED_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    level = METADATA_VERSION_MAX
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in apis.APIS.values()
        ],
        supported_features=[
            SupportedFeatureKey(
                name=METADATA_VERSION, min_version=METADATA_VERSION_MIN, max_version=level
            )
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(
                name=METADATA_VERSION, min_version_level=level, max_version_level=level
            )
        ],
    )


def refusal(call: Call, request: ApiVersionsRequest, error: KafkaError) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.code)
