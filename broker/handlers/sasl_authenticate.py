"""SaslAuthenticate, v0-2: the messages of a SASL mechanism, until it is known who the client is.

KIP-152, KIP-368 (v1: how long that holds). After SaslHandshake v0 messages come without headers, and so
do answers. A refusal leaves a while after it was decided, and the connection is closed behind it.

Errors: 34 (the listener has no SASL, or all is done), 58.
"""

import logging
from typing import Final

from broker.api import Api, Hot
from broker.calls.call import Call
from broker.calls.requester import Requester
from broker.node import Node
from broker.sasl.authentication import ILLEGAL_AUTHENTICATE, AuthenticateAnswer
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.framing import BARE
from protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.types import Buffer

logger = logging.getLogger(__name__)


def start(node: Node, call: Call) -> None:
    """Raises ProtocolError."""
    message = bytes(call.body)
    if call.version != BARE:
        request: SaslAuthenticateRequest = messages.decode_request(
            call.api_key, call.version, call.body
        )
        message = request.auth_bytes
    connection = call.connection
    authentication = connection.authentication
    told = ILLEGAL_AUTHENTICATE
    if authentication is not None:
        told = authentication.authenticate(message, version=call.version, boot_ms=node.boot_ms())
        if told.user is not None:
            connection.requester = Requester(f"User:{told.user}", connection.requester.host)
            node.stats.count_authentication(authentication.mechanism, "accepted")
            logger.debug("%s is %s", connection.peer, connection.requester.principal)
        elif told.refused:
            node.stats.count_authentication(authentication.mechanism, "refused")
    if told.refused:
        connection.refuse(call, _body(call, told), told.refused)
    else:
        call.answer(_body(call, told))


API: Final = Api(
    key=apis.SASL_AUTHENTICATE,
    handler=Hot(start),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(),
)


def _body(call: Call, told: AuthenticateAnswer) -> list[Buffer] | None:
    """None: without a header an error cannot be told."""
    if call.version == BARE:
        return None if told.refused else [told.data]
    response = SaslAuthenticateResponse(
        error_code=told.error,
        error_message=told.message,
        auth_bytes=told.data,
        session_lifetime_ms=told.lifetime_ms,
    )
    return [messages.encode_response(call.api_key, call.version, response)]
