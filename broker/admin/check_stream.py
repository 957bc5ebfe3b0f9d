"""A check of the cluster by the agent, as lines of JSON: `progress` whenever there is some, and at the end
`found`, or `error`.
"""

import json
from collections.abc import Mapping
from typing import Any

from broker.admin.log_stream import Write
from broker.check import check_report
from broker.check.checking import Check
from broker.config.settings import Settings
from coordinator.log.metadata_log import LogError
from coordinator.log_client import LogClient
from coordinator.machine.machine import Machine
from protocol.fault_codes import coded
from protocol.types import ERA
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.object_store import ObjectStore, StoreError


async def check(
    store: ObjectStore, settings: Settings, log_client: LogClient, write: Write, *, deep: bool
) -> None:
    """Raises what `write` raises."""

    async def tell(said: Mapping[str, Any]) -> None:
        await write(json.dumps(said).encode() + b"\n")

    async def current() -> Machine:
        await log_client.barrier()
        return log_client.machine

    checking = Check(
        store,
        ClusterIdentity(settings.cluster_id, ERA),
        current,
        deep=deep,
        bytes_per_second=settings.jobs_bytes_per_second,
        tell=lambda line: tell({"progress": line}),
    )
    try:
        await tell({"found": check_report.view(await checking.run())})
    except (LogError, StoreError) as error:
        await tell({"error": str(error)} | coded(error))
