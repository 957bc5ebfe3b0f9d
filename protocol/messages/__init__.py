"""Messages: one neutral shape per API and direction, and the way from and to bytes.

Handlers see shapes only; versions differ in layout, which is the codec's concern. Shapes are
generated (`python -m tests.protocol.generate_shapes`), in `topics`, `groups`, `transactions`,
`rights`, `security` and `cluster`. Those of Produce and Fetch are in `hot` and are not for agents.
Called by handlers, tools and tests.
"""

from typing import Final

from protocol.messages.cluster import *  # noqa: F403
from protocol.messages.codec import decode_request as decode_request
from protocol.messages.codec import decode_response as decode_response
from protocol.messages.codec import encode_request as encode_request
from protocol.messages.codec import encode_response as encode_response
from protocol.messages.codec import unsupported_api_versions as unsupported_api_versions
from protocol.messages.groups import *  # noqa: F403
from protocol.messages.rights import *  # noqa: F403
from protocol.messages.security import *  # noqa: F403
from protocol.messages.topics import *  # noqa: F403
from protocol.messages.transactions import *  # noqa: F403

NOT_ASKED: Final = -(1 << 31)
"""Authorized operations that were not asked for."""
