"""ApiVersions, v0-4: what this agent speaks, and the cluster's features.

KIP-35, KIP-511 (clients name themselves from v3 on; an unknown version is answered in version 0,
by the dispatcher), KIP-584 (features, `broker.cluster.features`). Levels and epoch are read from the
machine in one step, so they belong together, and this agent never tells an older epoch than it
told before; clients keep to the newest that any agent told them. Levels of 0, which not every
version can carry, are `protocol.messages.codec`'s to leave out (KAFKA-17011).
"""

import re
from typing import Final

from broker.api import Api, Cold, error_alone
from broker.calls.call import Call
from broker.calls.software import software_of
from broker.cluster import features
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


async def handle(node: Node, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= NAMED_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if call.version >= NAMED_SINCE:
        call.connection.software = software_of(
            request.client_software_name, request.client_software_version
        )
    if call.connection.authentication is not None:
        call.connection.authentication.told_versions()
    told = node.log_client.machine.features
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in apis.APIS.values()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, (least, most) in features.SUPPORTED.items()
        ],
        finalized_features_epoch=told.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in features.levels(told).items()
        ],
    )


API: Final = Api(
    key=apis.API_VERSIONS,
    handler=Cold(handle, error_alone(ApiVersionsResponse)),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(),
)
