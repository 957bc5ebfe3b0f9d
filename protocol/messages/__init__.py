"""Messages: one neutral shape per API and direction, and the way from and to bytes.

Handlers see shapes only; versions differ in layout, which is the codec's concern. Shapes are
generated (`python -m tests.protocol.generate_shapes`). Those of Produce and Fetch are in
`protocol.messages.hot` and are not for agents. Called by handlers, tools and tests.
"""

from typing import Final

from protocol.messages import shapes
from protocol.messages.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    unsupported_api_versions,
)
from protocol.messages.shapes import *  # noqa: F403

NOT_ASKED: Final = -(1 << 31)
"""Authorized operations that were not asked for."""

__all__ = [
    "NOT_ASKED",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "unsupported_api_versions",
]
__all__ += shapes.__all__
