"""GetTelemetrySubscriptions, v0: a client asks which of its metrics it shall push, and how often.

KIP-714. Who has no id gets one. Where no subscription matches it is told of no metrics, and only asks
again after the interval. Anybody may ask, as in Kafka.

Errors: 89 (asked again within the interval, or too many clients push already).
"""

from typing import Final

from broker.api import Api, Cold, error_alone
from broker.calls.call import Call
from broker.node import Node
from protocol import apis
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse

ACCEPTED: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""Clients take the first that they have; that none is taken as well need not be said."""


async def handle(
    node: Node, call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    told = await node.telemetry.ask(call, request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=told.instance_id,
        subscription_id=told.subscription_id,
        accepted_compression_types=list(ACCEPTED),
        push_interval_ms=told.asked.interval_ms,
        telemetry_max_bytes=node.telemetry.bytes_max,
        delta_temporality=True,
        requested_metrics=list(told.asked.metrics),
    )


API: Final = Api(
    key=apis.GET_TELEMETRY_SUBSCRIPTIONS,
    handler=Cold(handle, error_alone(GetTelemetrySubscriptionsResponse)),
    unavailable=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    changes=False,
    rights=(),
)
