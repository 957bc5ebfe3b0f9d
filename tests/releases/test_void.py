"""An entry that is void, and a release that does not know of voids and could take it: it stops (P13)."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from broker.cli.admin_client import AgentPlace, ask
from coordinator.commands.codec import encode_entry
from coordinator.commands.entries import CreateTopic, Entry, Open, VoidEntry
from coordinator.log.metadata_log import LogEntry
from coordinator.log.open_log import LogOptions, open_log
from protocol.types import INCARNATION_NONE
from tests.clients.bounded import Bounded, until
from tests.coordinator.support import void_of
from tests.releases import KEPT, Release, agents
from tests.releases.agents import KeptAgent
from tests.releases.keep import started

pytestmark = pytest.mark.integration

TOOK_IT = ["0.1.0-1"]
"""Releases from before `frazil log void`."""


async def _write_and_void(data: Path) -> int:
    """A topic that every release can make, by somebody who is gone; void. Where the log says so."""
    async with aclosing(open_log(f"sqlite://{data}/log.db", LogOptions(), "kept")) as log:
        lease = await log.grant(60_000)
        opening = Entry(INCARNATION_NONE, 0, 1, (Open(lease, "stranger", -1, "", (), "1", 5),))
        session = await log.open(lease, encode_entry(opening))
        payload = encode_entry(Entry(session.incarnation, 1, 1, (CreateTopic("void", 1, ()),)))
        position = await log.append(session, 1, payload)
        await log.revoke(lease)
        voided = void_of(LogEntry(position, lease, 1, payload))
        command = VoidEntry(position, voided.digest)
        notice = encode_entry(Entry(INCARNATION_NONE, 0, 1, (command,)))
        return await log.void(voided, notice, snapshots=await log.snapshots())


def _take_snapshot(agent: KeptAgent, *, behind: int) -> None:
    def newest() -> int:
        found: list[dict[str, int]] = ask(AgentPlace(agent.admin), "/jobs")["snapshots"]
        return max(each["position"] for each in found)

    Bounded(agent.bootstrap, agent.http_port).run("snapshot")
    made = until(newest, lambda position: position > behind)
    # Only when the log was told of it, too, a start begins with it.
    told = f"the log knows of a new snapshot snapshot={made}"
    until(agent.child.log.read_text, lambda text: told in text)


@pytest.mark.promise("P13")
@pytest.mark.parametrize(
    "release", [each for each in KEPT if each.version in TOOK_IT], ids=lambda each: each.version
)
def test_a_release_from_before_voids_stops_until_a_snapshot_lies_behind_them(
    release: Release, tmp_path: Path
) -> None:
    package = agents.unpacked(release.wheel, tmp_path / "package")
    data = release.unpack("data", tmp_path / "data")
    notice = asyncio.run(_write_and_void(data))
    older = agents.embedded(tmp_path / "older", data, package=package)
    with pytest.raises(AssertionError, match="ended by itself"):
        older.start()
    assert "cannot be decoded: a command of kind 83" in older.child.tail()
    with started(agents.embedded(tmp_path / "newer", data)) as newer:
        _take_snapshot(newer, behind=notice)
    with started(older):
        pass
