"""Looks at an agent's load four times a second, and tells when an overload begins and ends."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from broker.admin.overload import Load, Reason, overloaded, sentence
from broker.node import Node

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.25
LAGS_KEPT: Final = 60
"""Looks, a quarter of a minute: scrapes are as far apart."""


class LoadWatch:
    """`run` looks; the rest tells what was seen last."""

    def __init__(
        self, node: Node, *, request_bytes_max: int, connections_max: Callable[[], int]
    ) -> None:
        self._node = node
        self._request_bytes_max = request_bytes_max
        self._connections_max = connections_max
        self._lags_ms: deque[int] = deque([0, 0], maxlen=LAGS_KEPT)
        self._reasons: dict[Reason, int] = {}
        self._said: dict[Reason, str] = {}
        """Of each reason, as it was when it was last seen."""

    async def run(self) -> None:
        """Look, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self.look(lag_ms=max(0, int((loop.time() - due) * 1000)))

    def look(self, *, lag_ms: int) -> None:
        """`lag_ms`: how much later this is than it should be."""
        self._lags_ms.append(lag_ms)
        before, load, now_ms = self._reasons, self._load(), self._node.boot_ms()
        self._reasons = overloaded(before, load, now_ms=now_ms)
        for reason, seen_ms in self._reasons.items():
            if seen_ms == now_ms:
                self._said[reason] = sentence(reason, load)
        if self._reasons.keys() - before.keys():
            logger.warning("overloaded by %s", "; ".join(self.sentences()))
        elif before and not self._reasons:
            logger.info("overloaded no more")

    def sentences(self) -> Sequence[str]:
        """What the agent is overloaded by, and by how much; none: by nothing."""
        return [self._said[reason] for reason in self._reasons]

    def flags(self) -> dict[str, float]:
        """1 for each reason that holds, 0 for the others."""
        return {reason.value: float(reason in self._reasons) for reason in Reason}

    def lag_ms(self) -> int:
        """How late the loop was at most, of late."""
        return max(self._lags_ms)

    def _load(self) -> Load:
        node = self._node
        return Load(
            request_bytes=node.stats.held_bytes,
            request_bytes_max=self._request_bytes_max,
            produce_bytes=node.producing.stats.waiting_bytes,
            produce_bytes_max=node.settings.produce_buffer_bytes,
            queued=node.stats.queued,
            queued_ms=(node.boot_ms() - node.stats.queued_since_ms if node.stats.queued else 0),
            lag_ms=min(self._lags_ms[-1], self._lags_ms[-2]),
            connections=node.stats.connections_open,
            connections_max=self._connections_max(),
        )
