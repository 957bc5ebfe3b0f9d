"""SaslHandshake, v0-1: a client names the SASL mechanism by which it will authenticate itself.

KIP-43, KIP-152 (v1: its messages come in SaslAuthenticate), KIP-368 (again, on a connection that has
done it). A mechanism that is not enabled is answered with those that are, and the connection closed.

Errors: 33, 34 (the listener has no SASL; or again within a second).
"""

from typing import Final

from broker.api import Api, Hot
from broker.calls.call import Call
from broker.node import Node
from broker.sasl.authentication import ILLEGAL_HANDSHAKE
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse


def start(node: Node, call: Call) -> None:
    """Raises ProtocolError."""
    request: SaslHandshakeRequest = messages.decode_request(call.api_key, call.version, call.body)
    connection = call.connection
    told = ILLEGAL_HANDSHAKE
    if connection.authentication is not None:
        told = connection.authentication.handshake(
            request.mechanism, version=call.version, boot_ms=node.boot_ms()
        )
    response = SaslHandshakeResponse(error_code=told.error, mechanisms=[*told.mechanisms])
    body = [messages.encode_response(call.api_key, call.version, response)]
    if told.refused:
        node.stats.count_authentication("", "refused")
        connection.refuse(call, body, told.refused)
    else:
        call.answer(body)


API: Final = Api(
    key=apis.SASL_HANDSHAKE,
    handler=Hot(start),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(),
)
