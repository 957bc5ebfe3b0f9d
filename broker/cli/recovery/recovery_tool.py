"""`frazil recover`: says what the store has of a lost log, asks, and begins the log anew.

Left out: what is made of it, and what holds (`broker.recovery`).
"""

import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final

from broker.cli import doctor
from broker.cli.command_result import ToolError
from broker.config.settings import Settings
from broker.environment import now_ms, open_adapters
from broker.recovery import recovery
from broker.recovery.rebuilding import RecoveryError, Until
from broker.recovery.recovery import Plan
from broker.reports.log_lines import place
from broker.reports.tables import table
from coordinator.log.metadata_log import (
    LiveSessionsError,
    LogError,
    LogRefusedError,
    MetadataLog,
)
from coordinator.snapshot.stream import SnapshotError
from protocol.fault_codes import FaultCode, FaultError, Sentence, fault_of
from storage.stores.object_store import ObjectStore, StoreError

TOLD_MAX: Final = 10
"""Of names in a sentence; all of them with --json."""


async def dry_run(
    settings: Settings, until: Until, *, as_json: bool, tell: Callable[[str], None]
) -> list[str]:
    """What there is and what would become of it; the lines to print. Raises ToolError."""
    async with _opened(settings) as (store, log):
        planned = await recovery.plan(store, log, settings.cluster_id, until, tell=tell)
        refused = await _refused(settings, store, log, planned)
    if as_json:
        return [json.dumps(view(planned) | {"refused": refused})]
    told = [*lines(planned), "nothing was changed"]
    return told if refused is None else [*told, f"it would be refused: {refused}"]


async def recover(
    settings: Settings,
    until: Until,
    *,
    ask: Callable[[list[str]], None],
    tell: Callable[[str], None],
) -> list[str]:
    """Begin the era, once `ask` has been shown what will become of it and has returned.

    Raises ToolError, and what `ask` raises.
    """
    async with _opened(settings) as (store, log):
        planned = await recovery.plan(store, log, settings.cluster_id, until, tell=tell)
        await recovery.check_log(store, log, planned)
        ask(lines(planned))
        marker = await recovery.begin(
            store, log, planned, now_ms=now_ms(), rng=random.SystemRandom(), tell=tell
        )
    return [
        f"era {marker.era} has begun behind {place(marker.behind)}: start the agents, all of this release"
    ]


async def _refused(
    settings: Settings, store: ObjectStore, log: MetadataLog, planned: Plan
) -> str | None:
    """Why the log would not be begun anew; None: nothing is known against it."""
    if settings.log_url.startswith("sqlite:") and not doctor.exists(settings.log_url):
        return None  # To look would make the file.
    try:
        await recovery.check_log(store, log, planned)
    except (RecoveryError, LogError) as error:
        return str(_said(settings, error))
    return None


def _said(settings: Settings, error: FaultError) -> Sentence:
    """The error, with what to do about a file that is no log any more."""
    is_file = settings.log_url.startswith("sqlite:") and isinstance(error, LogRefusedError)
    if is_file and error.fault is not FaultCode.DATA_FOLDER_IN_USE:
        return Sentence(f"{error}. Move what is damaged away, with -wal and -shm", error.fault)
    return Sentence(str(error), error.fault)


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[ObjectStore, MetadataLog]]:
    """Store and log; their errors become sentences."""
    if settings.store_url.startswith("file:") and not doctor.exists(settings.store_url):
        raise ToolError(
            f"the store {settings.store_url} is not there: --config or --data names another"
        )
    store, log = open_adapters(settings)
    async with aclosing(store), aclosing(log):
        try:
            yield store, log
        except LiveSessionsError as error:
            raise ToolError(
                f"{error}: end all agents first; the session of one that was killed ends by itself, in some"
                " seconds"
            ) from error
        except (RecoveryError, LogError, StoreError) as error:
            said = _said(settings, error)
            raise ToolError(said, fault=fault_of(said)) from error
        except SnapshotError as error:
            raise ToolError(str(error)) from error


def view(planned: Plan) -> dict[str, Any]:
    """For JSON."""
    rebuilt = planned.rebuilt
    return {
        "cluster": planned.cluster_id,
        "era": planned.era,
        "snapshot": place(rebuilt.begun) if rebuilt.begun else None,
        "entries": rebuilt.entries,
        "reached": place(planned.reached),
        "newest_entry_ms": rebuilt.clock_ms or None,
        "is_all": rebuilt.is_all,
        "troubles": rebuilt.troubles,
        "agents": list(planned.effects.agents),
        "aborted": list(planned.effects.transactions),
        "unarchived": [each._asdict() for each in planned.lost.rows],
        "unreadable_chunks": list(planned.lost.unreadable),
        "lacking": [each._asdict() for each in planned.lacking],
    }


def lines(planned: Plan) -> list[str]:
    """What was found and what will become of it."""
    rebuilt, effects = planned.rebuilt, planned.effects
    begun = (
        f"the snapshot at {place(rebuilt.begun)}" if rebuilt.begun else "the beginning of the log"
    )
    told = [
        f"cluster {planned.cluster_id!r} goes on in era {planned.era}, behind {place(planned.reached)}",
        (
            f"    made of {begun} and {rebuilt.entries} entries"
            f" that were archived behind it{_newest(rebuilt.clock_ms)}"
        ),
    ]
    if rebuilt.stopped:
        told.append("    there is more, which is left out as you asked for")
    told += [f"    {each}" for each in rebuilt.troubles]
    told.append(
        "    records keep their offsets; consumers that have read further are sent back to where the partition"
        " ends (KIP-320)"
    )
    if effects.transactions:
        told.append(
            f"    {len(effects.transactions)} open transactions are aborted: {_named(effects.transactions)}"
        )
    told.append("    transactional producers of before are fenced: start them again")
    if planned.lacking:
        told.append(
            f"    {len(planned.lacking)} objects that the log points at are not in the object store, or not whole:"
            f" {_named(tuple([each.key for each in planned.lacking]))}. Is the copy complete? Where they stay away,"
            " frazil check says which records are lost, and frazil check --repair lets consumers pass"
        )
    return [*told, *_lost_lines(planned)]


def _lost_lines(planned: Plan) -> list[str]:
    lost = planned.lost
    if not lost.rows and not lost.unreadable:
        return ["    no records lie in the object store that may be missing from the log"]
    told = [
        (
            "    these lie in the object store, and nothing that is left of the log tells of them. Those that were"
            " acknowledged came after what is left; they get no offsets, and nobody deletes them:"
        )
    ]
    rows = [
        (row.topic, row.partition, row.records, row.bytes, row.chunks, row.end_offset)
        for row in lost.rows
    ]
    headers = ("TOPIC", "PARTITION", "RECORDS", "BYTES", "CHUNKS", "AFTER OFFSET")
    told += table(headers, rows)
    if lost.unreadable:
        told.append(f"    {len(lost.unreadable)} chunks cannot be read: {_named(lost.unreadable)}")
    return told


def _named(names: tuple[str, ...]) -> str:
    more = ", …" if len(names) > TOLD_MAX else ""
    return ", ".join(names[:TOLD_MAX]) + more


def _newest(clock_ms: int) -> str:
    if not clock_ms:
        return ""
    at = datetime.fromtimestamp(clock_ms / 1000, UTC)
    return f", the newest of {at:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
