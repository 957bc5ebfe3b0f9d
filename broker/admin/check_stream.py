"""A check of the cluster by the agent, as lines of JSON: `progress` whenever there is some, and at the end
`found`, or `error`.

While there is nothing to tell for long, it is told that the check goes on: whoever reads the lines can tell it from an
agent that is dead.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from broker.admin.log_stream import Write
from broker.check import check_report
from broker.check.check_report import Checked
from broker.check.checking import Check
from broker.config.settings import Settings
from coordinator.log.metadata_log import LogError
from coordinator.log_client import LogClient
from coordinator.machine.machine import Machine
from protocol.fault_codes import coded
from protocol.types import ERA
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.object_store import ObjectStore, StoreError

STILL_S: Final = 30.0
"""Well below what `frazil check` waits for a line (`SILENT_S_MAX`)."""


async def check(
    store: ObjectStore, settings: Settings, log_client: LogClient, write: Write, *, deep: bool
) -> None:
    """Raises what `write` raises."""

    told_s = asyncio.get_running_loop().time()

    async def tell(said: Mapping[str, Any]) -> None:
        nonlocal told_s
        told_s = asyncio.get_running_loop().time()
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

    async def go_on_telling() -> None:
        while True:
            await asyncio.sleep(STILL_S / 3)
            if asyncio.get_running_loop().time() - told_s >= STILL_S:
                await tell({"progress": "the check goes on"})

    try:
        found = await _beside(go_on_telling, checking.run)
    except (LogError, StoreError) as error:
        await tell({"error": str(error)} | coded(error))
    else:
        await tell({"found": check_report.view(found)})


async def _beside(
    meanwhile: Callable[[], Coroutine[Any, Any, None]], work: Callable[[], Awaitable[Checked]]
) -> Checked:
    """The work's result; the other is ended with it. Raises what either raises."""
    try:
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(meanwhile())
            found = await work()
            telling.cancel()
    except ExceptionGroup as group:
        raise group.exceptions[0] from group
    return found
