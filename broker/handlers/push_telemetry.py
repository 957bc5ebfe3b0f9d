"""PushTelemetry, v0: a client's metrics, in OTLP, as it was told to push them.

KIP-714. What becomes of them: `broker.telemetry`. Anybody may push, as in Kafka.

Errors: 42 (an id that nobody has, or a push behind the one that was to be the last), 89 (within the
interval, or too many clients push already), 117 (something else is asked by now: ask), 76 (a codec
that is none), 118 (more than `telemetry.max.bytes` as sent), 87 (they cannot be read, or become more than
`telemetry.max.bytes`).
"""

from typing import Final

from broker.api import Api, Cold, error_alone
from broker.calls.call import Call
from broker.node import Node
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import PushTelemetryRequest, PushTelemetryResponse


async def handle(node: Node, call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    await node.telemetry.push(call, request)
    return PushTelemetryResponse()


API: Final = Api(
    key=apis.PUSH_TELEMETRY,
    handler=Cold(handle, error_alone(PushTelemetryResponse)),
    unavailable=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    changes=False,
    rights=(),
)
