"""Asks the object store now and then whether it is there, for readiness (P16)."""

import asyncio
import logging
from typing import Final

from protocol.fault_codes import FaultCode, Sentence, coded, fault_of
from storage.formats import cluster_identity
from storage.stores.object_store import ObjectStore, StoreError

logger = logging.getLogger(__name__)

PROBE_S: Final = 5.0
PROBE_FAILED_S: Final = 1.0
PROBE_TIMEOUT_S: Final = 5.0


class StoreProbe:
    """`run` must be going."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.trouble: Sentence | None = None
        """Why it is away; None while it answers."""

    async def run(self) -> None:
        """Ask for the store's marker, for ever."""
        while True:
            trouble = await self._probe()
            if (trouble is None) != (self.trouble is None):
                if trouble is None:
                    logger.info("the object store answers again")
                else:
                    logger.warning("the object store is away: %s", trouble, extra=coded(trouble))
            self.trouble = trouble
            await asyncio.sleep(PROBE_S if trouble is None else PROBE_FAILED_S)

    async def _probe(self) -> Sentence | None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._store.get(cluster_identity.KEY)
        except StoreError as error:
            return Sentence(str(error) or type(error).__name__, fault_of(error))
        except TimeoutError:
            text = f"no answer within {PROBE_TIMEOUT_S:g} s"
            return Sentence(text, FaultCode.STORE_UNREACHABLE)
        return None
