"""`frazil check`: what the log points at, beside what is in the store.

`--repair` has a running agent declare lost what is. Reads log and store itself, by a replica of its own, so it needs no agent and disturbs none. An embedded log that an
agent has is that agent's alone: then the agent is asked to look.
"""

import urllib.error
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from broker.check import check_report
from broker.check.checking import Check
from broker.cli import admin_client, doctor
from broker.cli.admin_client import AgentPlace
from broker.cli.command_result import ToolError
from broker.cli.log_machine import UNREADABLE, Tell, check_is_ours, machine_of
from broker.config.settings import Settings
from broker.environment import open_adapters
from broker.process import run_once
from broker.store import truncation
from broker.store.truncation import TruncatedLogError
from coordinator.log.metadata_log import LogError, LogRefusedError, MetadataLog
from coordinator.machine.machine import Machine
from protocol.fault_codes import FaultCode, Sentence, fault_of
from protocol.types import ERA
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.object_store import ObjectStore

NAMING: Final = (
    "topic_id",
    "partition",
    "base_offset",
    "next_offset",
    "rows",
    "digest",
    "page_body",
)


def check(settings: Settings, agent: AgentPlace, *, deep: bool, tell: Tell) -> dict[str, Any]:
    """What was found, as `check_report.view` has it. `tell` gets lines about how far it is. Raises ToolError."""
    if settings.log_url.startswith("sqlite://") and not doctor.exists(settings.log_url):
        raise ToolError(
            f"the log {settings.log_url} is not there: --config or --data names another; one that is lost is"
            " begun anew from the store (frazil recover)"
        )
    found = run_once(look(settings, deep=deep, tell=tell))
    return ask(agent, deep=deep, tell=tell) if found is None else found


async def look(settings: Settings, *, deep: bool, tell: Tell) -> dict[str, Any] | None:
    """As `check`, by a replica of its own; None when a running agent alone has the log."""
    store, log = open_adapters(settings)
    async with aclosing(store), aclosing(log):
        try:
            await log.head()
        except LogRefusedError as error:
            if settings.log_url.startswith("sqlite:"):
                return None
            raise ToolError.of(error) from error
        except LogError as error:
            raise ToolError.of(error) from error
        try:
            return await _look(store, log, settings, deep=deep, tell=tell)
        except (*UNREADABLE, TruncatedLogError) as error:
            raise ToolError.of(error) from error


async def _look(
    store: ObjectStore, log: MetadataLog, settings: Settings, *, deep: bool, tell: Tell
) -> dict[str, Any]:
    await check_is_ours(store, log, settings)

    async def current() -> Machine:
        machine = await machine_of(store, log, settings, tell=tell)
        await truncation.check(store, log, machine)
        return machine

    async def told(line: str) -> None:
        tell(line)

    found = await Check(
        store,
        ClusterIdentity(settings.cluster_id, ERA),
        current,
        deep=deep,
        bytes_per_second=settings.jobs_bytes_per_second,
        tell=told,
    ).run()
    return check_report.view(found)


SILENT_S_MAX: Final = 120.0
"""An agent that checks says so more often (`broker.admin.check_stream`)."""


class Repaired(NamedTuple):
    """What became of ranges."""

    declared_lost: int
    put_back: int
    """Pages."""
    failures: tuple[Sentence, ...]


def repair(agent: AgentPlace, found: Mapping[str, Any], *, tell: Tell) -> Repaired:
    """Have the agent declare the ranges lost; one that it refuses stops no other.

    `tell` hears of each at once: there may be many, and what was declared before an interruption is.
    """
    lost = put_back = 0
    failures = []
    for each in found["ranges"]:
        where = (
            f"{each['topic']}-{each['partition']}, offsets {each['base_offset']} to"
            f" {each['next_offset'] - 1}"
        )
        named = {name: each[name] for name in NAMING}
        try:
            admin_client.ask(agent, f"/topics/{each['topic']}/lost", method="POST", body=named)
        except ToolError as error:
            failures.append(Sentence(f"{where}: {error}", fault_of(error)))
            continue
        if each["page_body"]:
            put_back += 1
            tell(f"{where}: put back")
        else:
            lost += 1
            tell(f"{where}: declared lost")
    if put_back:
        tell("check again: what lies in pages that were put back is looked at then")
    return Repaired(lost, put_back, tuple(failures))


def ask(agent: AgentPlace, *, deep: bool, tell: Tell) -> dict[str, Any]:
    """What the agent finds. Raises ToolError."""
    try:
        path = f"/check?deep={int(deep)}"
        with admin_client.opened(agent, path, timeout_s=SILENT_S_MAX) as response:
            for raw in response:
                said = admin_client.parsed(raw)
                if "error" in said:
                    raise ToolError(
                        str(said["error"]),
                        fault=FaultCode(said["code"]) if "code" in said else None,
                    )
                if "found" in said:
                    found: dict[str, Any] = said["found"]
                    return found
                tell(str(said.get("progress")))
    except urllib.error.HTTPError as error:
        said_by = f"{agent.url} answers {error.code}: {error.reason}"
        raise admin_client.refusal(error, said_by) from error
    raise ToolError(f"{agent.url} ended before it had checked all: is it running?")
