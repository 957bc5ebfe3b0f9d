"""The APIs that are served: one module for each, with its declaration (`API`, see `broker.api`).

Deliberately absent, so not advertised, and a request for one closes the connection as in Kafka:

    share and streams   ShareGroup*, ShareFetch, ShareAcknowledge, StreamsGroup*

Handlers may touch what the node holds, and nothing else. Called by the dispatcher.
"""

import pkgutil
from importlib import import_module
from typing import Final

from broker.api import Api

_APIS: Final[list[Api]] = [
    import_module(f"{__name__}.{module.name}").API for module in pkgutil.iter_modules(__path__)
]
SERVED: Final[dict[int, Api]] = {api.key: api for api in sorted(_APIS, key=lambda api: api.key)}
"""By key, in the order in which ApiVersions lists them."""
