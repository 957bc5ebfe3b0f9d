"""ApiVersions, v0-4: what this agent speaks, and the cluster's features.

KIP-35, KIP-511 (clients name themselves from v3 on; an unknown version is answered in version 0,
by the dispatcher), KIP-584 (features). `group.version` 1 says that KIP-848 is served; its least
level is 0, which clients of before version 4 cannot read, so they are not told that it could be
lower (KAFKA-17011). `metadata.version` is told because tools derive Kafka's version from it.
Transactions are not served yet, so no feature of theirs is told.
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

GROUP_VERSION: Final = "group.version"
GROUP_VERSION_MIN: Final = 0
GROUP_VERSION_MAX: Final = 1
LEVEL_ZERO_SINCE: Final = 4
"""Clients of an earlier version cannot read a supported feature whose least level is 0."""

FEATURES_EPOCH: Final = 0
"""The same on every agent; grows once features are commands in the log."""


async def handle(node: Node, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= NAMED_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    supported = [(METADATA_VERSION, METADATA_VERSION_MIN, METADATA_VERSION_MAX)]
    if call.version >= LEVEL_ZERO_SINCE:
        supported.append((GROUP_VERSION, GROUP_VERSION_MIN, GROUP_VERSION_MAX))
    finalized = [(METADATA_VERSION, METADATA_VERSION_MAX), (GROUP_VERSION, GROUP_VERSION_MAX)]
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in apis.APIS.values()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, least, most in supported
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized
        ],
    )


def refusal(call: Call, request: ApiVersionsRequest, error: KafkaError) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.code)
