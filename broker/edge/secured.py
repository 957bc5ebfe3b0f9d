"""Which listeners speak TLS. What that needs, the whole of cryptography, is imported where one does."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.config.listeners import exposures
from broker.config.settings import Settings, listeners_of
from broker.node import EdgeStats
from protocol.fault_codes import FaultError

if TYPE_CHECKING:
    from broker.edge.tls_listener import TlsListener

logger = logging.getLogger(__name__)


class SecuredError(FaultError):
    """A certificate or key cannot be used; the sentence says why."""


def secured_listeners(settings: Settings, stats: EdgeStats) -> "Mapping[str, TlsListener]":
    """Those of Kafka that speak TLS, by name; tells which take anybody. Raises SecuredError."""
    listeners = listeners_of(settings)
    for sentence in exposures(listeners):
        logger.warning("%s", sentence)
    if all(each.tls is None for each in listeners):
        return {}
    from broker.edge.key_stores import TlsError
    from broker.edge.tls_listener import tls_listeners

    try:
        return tls_listeners(listeners, stats)
    except TlsError as error:
        raise SecuredError.of(error) from error
