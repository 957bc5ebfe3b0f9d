"""Messages: one neutral shape per API and direction, and the way from and to bytes.

Handlers see shapes only; versions differ in layout, which is the codec's concern. Shapes are
generated (`python -m tests.protocol.generate_shapes`), in `topics`, `groups`, `transactions` and
`cluster`. Those of Produce and Fetch are in `hot` and are not for agents. Called by handlers, tools and tests.
"""

from typing import Final

from protocol.messages import cluster, groups, topics, transactions
from protocol.messages.cluster import *  # noqa: F403
from protocol.messages.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    unsupported_api_versions,
)
from protocol.messages.groups import *  # noqa: F403
from protocol.messages.topics import *  # noqa: F403
from protocol.messages.transactions import *  # noqa: F403

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
__all__ += cluster.__all__
__all__ += groups.__all__
__all__ += topics.__all__
__all__ += transactions.__all__
