"""`frazil backup list` and `frazil backup verify`: by the store that the settings name, without agent and log.

A running cluster goes on meanwhile. So before a fault of a snapshot counts it is looked whether the snapshot is still
one that is kept: others go, and what they point at with them.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from broker.cli import doctor
from broker.cli.command_result import CommandResult, ToolError
from broker.config.settings import Settings
from broker.environment import now_ms, store_options
from broker.reports import backup_report
from broker.reports.log_lines import place
from broker.store import backups
from broker.store.backups import Tell, Verdict
from broker.store.identity import begun_eras
from coordinator.snapshot.listing import StoredSnapshot, stored_snapshots
from protocol.types import Position, era_of
from storage.formats.cluster_identity import KEY, read_identity
from storage.stores.object_store import ObjectStore, StoreError
from storage.stores.open_store import open_store

Work = Callable[[ObjectStore, str], Awaitable[CommandResult]]
"""Has the store, and the id of the cluster that it belongs to."""


async def list_snapshots(settings: Settings, *, is_named: bool, as_json: bool) -> CommandResult:
    """All that there are, the newest first. `is_named`: the settings' cluster.id was asked for. Raises ToolError."""

    async def work(store: ObjectStore, _cluster_id: str) -> CommandResult:
        found, now = await stored_snapshots(store), now_ms()
        reasons = backup_report.reasons(found, now, eras=await begun_eras(store))
        if as_json:
            return CommandResult([json.dumps(backup_report.views(found, reasons, now))])
        warnings = [
            f"{each.key} cannot be read: {each.trouble}" for each in found if each.manifest is None
        ]
        return CommandResult(backup_report.lines(found, reasons, now, _when), warnings)

    return await _on_store(settings, work, is_named=is_named)


async def verify(
    settings: Settings,
    positions: Sequence[int],
    *,
    everything: bool,
    is_named: bool,
    tell: Tell,
) -> CommandResult:
    """A line for each snapshot that is good, and failures of the others. Without positions it is the newest.

    `tell` has a clause about what is done now. Raises ToolError.
    """

    async def work(store: ObjectStore, cluster_id: str) -> CommandResult:
        found = await stored_snapshots(store)
        if not found:
            raise ToolError(f"there are no snapshots in {settings.store_url}")
        chosen = found if everything else _chosen(found, positions, await begun_eras(store))
        verdicts = await backups.verify(store, cluster_id, chosen, tell)
        lines = [_good(each) for each in verdicts if each.is_good]
        if len(lines) == len(verdicts):
            return CommandResult(lines)
        kept = await _kept(store)
        failures, warnings = [], []
        for verdict in verdicts:
            sentences = [] if verdict.is_good else _faults(verdict)
            if verdict.snapshot.position in kept or verdict.snapshot.manifest is None:
                failures += sentences
            elif sentences:
                name = place(verdict.snapshot.position)
                warnings += [f"{name} is not kept any more, and this is no failure", *sentences]
        return CommandResult(lines, warnings, failures)

    return await _on_store(settings, work, is_named=is_named)


async def _on_store(settings: Settings, work: Work, *, is_named: bool) -> CommandResult:
    """Raises ToolError."""
    if settings.store_url.startswith("file://") and not doctor.exists(settings.store_url):
        raise ToolError(f"the store {settings.store_url} is not there: --store names another")
    store = open_store(settings.store_url, store_options(settings), now_ms=now_ms)
    async with aclosing(store):
        try:
            owner = await read_identity(store)
            if owner is None:
                said = await work(store, settings.cluster_id)
                note = f"{settings.store_url} is nobody's store: it has no {KEY}"
                return said._replace(warnings=[note, *said.warnings])
            if is_named and owner.cluster_id != settings.cluster_id:
                raise ToolError(
                    f"{settings.store_url} belongs to {owner.describe()}, and not to"
                    f" {settings.cluster_id!r}"
                )
            return await work(store, owner.cluster_id)
        except StoreError as error:
            raise ToolError(f"{settings.store_url}: {error}", fault=error.fault) from error


def _chosen(
    found: Sequence[StoredSnapshot], positions: Sequence[int], eras: Collection[int]
) -> list[StoredSnapshot]:
    """The newest first. Without positions: the newest of an era that has begun. Raises ToolError."""
    if not positions:
        return [each for each in found if era_of(each.position) in eras][:1]
    there = {each.position for each in found}
    for position in positions:
        if position not in there:
            raise ToolError(
                f"there is no snapshot at {place(position)}: frazil backup list has all"
            )
    return [each for each in found if each.position in positions]


async def _kept(store: ObjectStore) -> set[Position]:
    """Those that are kept now."""
    found = await stored_snapshots(store)
    reasons = backup_report.reasons(found, now_ms(), eras=await begun_eras(store))
    return {each.position for each, reason in zip(found, reasons, strict=True) if reason.is_kept}


def _good(verdict: Verdict) -> str:
    size = backup_report.size(verdict.snapshot.bytes)
    own = f"{place(verdict.snapshot.position)} is whole ({size})"
    if verdict.objects == 0:
        return f"{own}, and points at no objects"
    size = backup_report.size(verdict.bytes)
    return f"{own}, and all {verdict.objects} objects that it points at are there ({size})"


def _faults(verdict: Verdict) -> list[str]:
    name = place(verdict.snapshot.position)
    if verdict.damage:
        return [f"{name} is damaged: {verdict.damage}"]
    told = [f"{name}: {clause}" for clause in verdict.faults[: backup_report.FAULTS_TOLD_MAX]]
    more = len(verdict.faults) - len(told)
    if more > 0:
        told.append(f"{name}: and {more} more of its {verdict.objects} objects")
    return told


def _when(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
