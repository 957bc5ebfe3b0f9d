"""Agents tell each other what their clients use up of the cluster's quotas, and take their parts of them.

Only with `frazil.quota.scope=cluster`: every two seconds, while anything is used up, each agent reports
what was used lately (`ReportUsage`), and takes its part of each quota by what all have reported
(`broker.quotas.parts`). Whoever is not in the reports has an even part. Quotas of addresses are each
agent's own. Between two samples the parts may add up to a little more or less than the quota.
"""

import asyncio
import logging
from collections import deque
from typing import Final

from broker.node import Node
from broker.quotas.entities import Holder
from broker.quotas.parts import UsageSoFar, demand, shares
from broker.quotas.sensors import AnySensor, Key
from coordinator.commands.config_commands import (
    CONFIG_LEVEL,
    USAGE_ROWS_MAX,
    Quota,
    ReportUsage,
    UsageRow,
)
from coordinator.log.metadata_log import LogError
from coordinator.proposer import NotDoneError
from protocol.types import Incarnation

logger = logging.getLogger(__name__)

REPORT_S: Final = 2.0
SAMPLES: Final = 3
"""What is wanted is told by so many of them: clients that write much at once use nothing in between."""
NAMES_MAX: Final = 100_000
"""Characters of one report; they take four bytes at most."""


async def run(node: Node) -> None:
    """Report and take, for ever; nothing is done where quotas are each agent's own."""
    if node.settings.quota_scope != "cluster":
        return
    reports = UsageReports(node)
    while True:
        await asyncio.sleep(REPORT_S)
        await reports.look()


class UsageReports:
    """What this agent has reported."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._has_rows = False
        self._samples: dict[Key, deque[UsageSoFar]] = {}
        """The newest ones of what was used lately, the oldest first."""
        self._sampled = UsageSoFar(node.quotas.boot_ms(), 0.0, 0)
        """Whatever is new since then had used nothing yet."""

    async def look(self) -> None:
        """Report what is used, and take this agent's parts."""
        node = self._node
        incarnation = node.log_client.incarnation()
        if incarnation is None or not node.log_client.machine.incarnations.all_support(
            CONFIG_LEVEL
        ):
            return
        busy = self._busy()
        rows = self._rows(busy)
        if rows or self._has_rows:
            try:
                await asyncio.shield(node.log_client.propose(ReportUsage(rows), incarnation))
                self._has_rows = bool(rows)
            except (NotDoneError, LogError) as error:
                logger.info("the report of what clients use waits: %s", error)
        self._take(busy, incarnation)

    def _busy(self) -> dict[Key, AnySensor]:
        """What was used in the window; the newest ones, when they are many."""
        quotas = self._node.quotas
        since_ms = quotas.boot_ms() - quotas.window.whole_ms
        used = [
            (key, sensor)
            for key, sensor in quotas.sensors.items()
            if sensor.used_ms > since_ms and key[0] is not Quota.CONNECTION_CREATION_RATE
        ]
        used.sort(key=lambda item: -item[1].used_ms)
        return dict(used[:USAGE_ROWS_MAX])

    def _rows(self, busy: dict[Key, AnySensor]) -> tuple[UsageRow, ...]:
        now_ms = self._node.quotas.boot_ms()
        known, self._samples = self._samples, {}
        rows = []
        characters = 0
        for (quota, holder), sensor in busy.items():
            characters += len(holder.user) + len(holder.client_id)
            if characters > NAMES_MAX:
                break
            samples = known.get((quota, holder)) or deque([self._sampled], SAMPLES)
            now = UsageSoFar(now_ms, sensor.used, sensor.waited_by(now_ms))
            wanted = demand(samples[0], now, sensor.limit)
            samples.append(now)
            self._samples[quota, holder] = samples
            rows.append(UsageRow(quota, holder.user, holder.client_id, wanted))
        self._sampled = UsageSoFar(now_ms, 0.0, 0)
        return tuple(sorted(rows))

    def _take(self, busy: dict[Key, AnySensor], incarnation: Incarnation) -> None:
        machine = self._node.log_client.machine
        live = [row.incarnation for row in machine.incarnations]
        if incarnation not in live:
            return
        demands: dict[Key, dict[Incarnation, float]] = {key: {} for key in busy}
        for each, rows in machine.quota_usage:
            for row in rows:
                found = demands.get((row.quota, Holder(row.user, row.client_id)))
                if found is not None:
                    found[each] = row.demand
        quotas = self._node.quotas
        quotas.sensors.part = 1 / len(live)
        mine = live.index(incarnation)
        for key, sensor in quotas.sensors.items():
            if key[0] is Quota.CONNECTION_CREATION_RATE:
                continue
            sensor.part = quotas.sensors.part
            if (found := demands.get(key)) is not None:
                of_all = shares([found.get(each, 0.0) for each in live], sensor.limit)
                sensor.part = of_all[mine] / sensor.limit
