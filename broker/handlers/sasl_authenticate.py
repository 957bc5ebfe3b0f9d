"""SaslAuthenticate, v0-2: the messages of a SASL mechanism, until it is known who the client is.

KIP-152, KIP-368 (v1: how long that holds). After SaslHandshake v0 messages come without headers, and so
do answers. A refusal leaves a while after it was decided, and the connection is closed behind it. What
takes long to decide (signatures of tokens) is decided in a thread meanwhile.

Errors: 34 (the listener has no SASL, or all is done), 58.
"""

import logging
from collections.abc import Coroutine
from typing import Any, Final

from broker.api import Api, Hot
from broker.calls.call import Call
from broker.calls.requester import Requester
from broker.node import Node
from broker.sasl.authentication import (
    ILLEGAL_AUTHENTICATE,
    AuthenticateAnswer,
    Authentication,
)
from broker.sasl.exchange import Undecided
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.framing import BARE
from protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.types import Buffer

logger = logging.getLogger(__name__)


def start(node: Node, call: Call) -> Coroutine[Any, Any, None] | None:
    """Raises ProtocolError."""
    message = bytes(call.body)
    if call.version != BARE:
        request: SaslAuthenticateRequest = messages.decode_request(
            call.api_key, call.version, call.body
        )
        message = request.auth_bytes
    authentication = call.connection.authentication
    if authentication is None:
        call.answer(_body(call, ILLEGAL_AUTHENTICATE))
        return None
    told = authentication.authenticate(
        message, version=call.version, boot_ms=node.boot_ms(), now_ms=node.now_ms()
    )
    if isinstance(told, Undecided):
        return _decide(node, call, authentication, told)
    _tell(node, call, authentication, told)
    return None


API: Final = Api(
    key=apis.SASL_AUTHENTICATE,
    handler=Hot(start),
    unavailable=ErrorCode.REQUEST_TIMED_OUT,
    changes=False,
    rights=(),
)


async def _decide(
    node: Node, call: Call, authentication: Authentication, undecided: Undecided
) -> None:
    step = await node.decisions.decide(undecided)
    if not call.abandoned:
        told = authentication.decided(
            step, version=call.version, boot_ms=node.boot_ms(), now_ms=node.now_ms()
        )
        _tell(node, call, authentication, told)


def _tell(node: Node, call: Call, authentication: Authentication, told: AuthenticateAnswer) -> None:
    connection = call.connection
    if told.user is not None:
        connection.requester = Requester(
            f"User:{told.user}", connection.requester.host, by_token=told.by_token
        )
        node.stats.count_authentication(authentication.mechanism, "accepted")
        logger.debug("%s is %s", connection.peer, connection.requester.principal)
    elif told.refused:
        node.stats.count_authentication(authentication.mechanism, "refused")
    if told.refused:
        connection.refuse(call, _body(call, told), told.refused)
    else:
        call.answer(_body(call, told))


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
