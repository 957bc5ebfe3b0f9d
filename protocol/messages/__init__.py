"""Messages: one neutral shape per API and direction, and the way from and to bytes.

Handlers see shapes only; versions differ in layout, which is the codec's concern. Shapes are
generated (`python -m tests.protocol.generate_shapes`), in `discovery`, `topics`, `groups`,
`transactions`, `rights`, `security` and `cluster`, each of which is imported with the first of its
shapes: to make 250 classes takes a tenth of a second, and a tool needs a few. Those of Produce and
Fetch are in `hot` and are not for agents. Called by handlers, tools and tests.
"""

import importlib
from typing import TYPE_CHECKING, Final

from protocol.messages.codec import decode_request as decode_request
from protocol.messages.codec import decode_response as decode_response
from protocol.messages.codec import encode_request as encode_request
from protocol.messages.codec import encode_response as encode_response
from protocol.messages.codec import unsupported_api_versions as unsupported_api_versions
from protocol.messages.places import MODULE_OF

if TYPE_CHECKING:
    from protocol.messages.cluster import *  # noqa: F403
    from protocol.messages.discovery import *  # noqa: F403
    from protocol.messages.groups import *  # noqa: F403
    from protocol.messages.rights import *  # noqa: F403
    from protocol.messages.security import *  # noqa: F403
    from protocol.messages.topics import *  # noqa: F403
    from protocol.messages.transactions import *  # noqa: F403
else:

    def __getattr__(name: str) -> type:
        if name not in MODULE_OF:
            raise AttributeError(f"there is no message {name}")
        module = importlib.import_module(f"protocol.messages.{MODULE_OF[name]}")
        shape = globals()[name] = getattr(module, name)
        return shape


NOT_ASKED: Final = -(1 << 31)
"""Authorized operations that were not asked for."""
