"""Agents of a cluster that lost its log: what clients of before are told, and what is listed as lost."""

import asyncio
import random

import pytest

from broker.check import check_report
from broker.cli import doctor
from broker.cli.checks import check_tool
from broker.jobs.kinds import unnamed_objects
from broker.recovery import recovery, unarchived
from broker.recovery.rebuilding import Until
from broker.recovery.recovery import Plan
from coordinator.commands.codec import decode_entry
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.machine.machine import Machine
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.types import POSITION_ZERO
from storage.formats.log_archive import ArchivedEntry, LogArchive, archive_key, encode_archive
from tests.broker.cli.checks.test_check_tool import agent_at
from tests.broker.recovery.disaster import unheard
from tests.kit import requests
from tests.kit.faults import FaultyStore, NoAnswerError, lost
from tests.kit.sockets import Place, SocketClient, agent_of

pytestmark = pytest.mark.real_loop

NO_JOBS = "jobs.enabled=false"
CLUSTER = "frazil"


async def archive_all(place: Place) -> None:
    """What the holder of the jobs puts, at once."""
    machine = Machine()
    entries = []
    for logged in place.cluster.entries:
        machine.apply(logged.position, decode_entry(logged.payload))
        entries.append(
            ArchivedEntry(logged.position, logged.session, logged.n, False, logged.payload)
        )
    last = machine.position
    archive = LogArchive(CLUSTER, POSITION_ZERO, last, machine.digest(), tuple(entries))
    await place.objects.put_new(archive_key(POSITION_ZERO, last), [encode_archive(archive)])


async def lost_log() -> tuple[Place, Plan]:
    """A topic with two records that are archived, and one in a chunk of which nothing tells."""
    place = Place()
    async with agent_of(place, NO_JOBS) as running:
        await running.until(ready=True)
        client = await running.connect()
        await client.create("t")
        for value in (b"one", b"two"):
            assert (await client.produce("t", [value]))[0] == ErrorCode.NONE
        await archive_all(place)
        assert await client.produce("t", [b"three"]) == (ErrorCode.NONE, 2)
    place.cluster = MemoryLogCluster()
    log = MemoryLog(place.cluster)
    return place, await recovery.plan(place.objects, log, CLUSTER, Until(), tell=unheard)


async def begin(place: Place, planned: Plan) -> None:
    log = MemoryLog(place.cluster)
    rng = random.Random(1)
    await recovery.begin(place.objects, log, planned, now_ms=1, rng=rng, tell=unheard)


async def test_records_of_which_nothing_tells_are_listed_by_topic_and_partition() -> None:
    _, planned = await lost_log()
    (row,) = planned.lost.rows
    assert (row.topic, row.partition, row.records, row.chunks) == ("t", 0, 1, 1)
    assert row.end_offset == 2, "where they came, if they were acknowledged"
    assert planned.effects.agents == ("one",)
    assert not planned.lacking


async def test_objects_that_a_copy_of_the_store_lacks_are_told() -> None:
    place, _ = await lost_log()
    key = min([key for key in place.objects._objects if key.startswith("chunks/")])
    await place.objects.delete([key])
    log = MemoryLog(place.cluster)
    planned = await recovery.plan(place.objects, log, CLUSTER, Until(), tell=unheard)
    assert [(each.key, each.trouble) for each in planned.lacking] == [(key, "missing")]


async def test_how_many_chunks_were_read_is_told_and_one_answer_that_is_lost_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, before = await lost_log()
    monkeypatch.setattr(unarchived, "TOLD_CHUNKS", 1)
    store = FaultyStore(place.objects)
    store.before["get_range"] = lost(1)
    told: list[str] = []
    log = MemoryLog(place.cluster)
    planned = await recovery.plan(store, log, CLUSTER, Until(), tell=told.append)
    assert planned.lost == before.lost
    assert "read what 1 chunks hold of which no archive tells" in told


async def test_the_era_is_begun_though_the_answer_to_its_last_step_is_lost() -> None:
    place, planned = await lost_log()
    store = FaultyStore(place.objects)

    async def gate(key: str, *_arguments: object) -> None:
        if key.startswith("eras/") and calls.append(key) is None and len(calls) == 1:
            raise NoAnswerError("lost on the way")

    calls: list[str] = []
    store.after["put_new"] = gate
    log, rng = MemoryLog(place.cluster), random.Random(1)
    marker = await recovery.begin(store, log, planned, now_ms=1, rng=rng, tell=unheard)
    assert calls == [marker.key] * 2
    assert marker.era == 2


async def test_a_consumer_of_the_era_before_is_fenced_and_told_where_its_epoch_ended() -> None:
    place, planned = await lost_log()
    await begin(place, planned)
    async with agent_of(place, NO_JOBS) as running:
        await running.until(ready=True)
        client = await running.connect()
        metadata = await client.call(apis.METADATA, 12, requests.metadata("t"))
        assert metadata.topics[0].partitions[0].leader_epoch == 1
        assert await fetched(client, offset=3, epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
        assert await fetched(client, offset=1, epoch=1) is ErrorCode.NONE
        answer = await client.call(apis.OFFSET_FOR_LEADER_EPOCH, 4, epoch_request(0, current=1))
        (row,) = answer.topics[0].partitions
        assert (row.error_code, row.leader_epoch, row.end_offset) == (ErrorCode.NONE, 0, 2)


async def test_what_is_written_in_the_next_era_comes_where_the_one_before_ended() -> None:
    place, planned = await lost_log()
    await begin(place, planned)
    async with agent_of(place, NO_JOBS) as running:
        await running.until(ready=True)
        client = await running.connect()
        assert await client.produce("t", [b"another three"]) == (ErrorCode.NONE, 2)
        answer = await client.call(apis.FETCH, 11, requests.fetch({("t", 0): 0}))
        batches = requests.batches_in(requests.rows_of(answer)["t", 0].records)
        read = [
            (header.leader_epoch, record.value) for header, records in batches for record in records
        ]
        assert read == [(0, b"one"), (0, b"two"), (1, b"another three")]


async def test_objects_of_an_era_that_is_over_are_not_told_to_be_deleted_ever() -> None:
    place, planned = await lost_log()
    await begin(place, planned)
    async with agent_of(place, NO_JOBS) as running:
        await running.until(ready=True)
        client = await running.connect()
        assert await client.produce("t", [b"another three"]) == (ErrorCode.NONE, 2)
        machine = running.agent.node.log_client.machine
        found = await unnamed_objects.count(place.objects, machine)
        checked = await asyncio.to_thread(
            check_tool.ask, agent_at(running), deep=False, tell=unheard
        )
    assert (found.objects, found.orphans, found.kept) == (1, 0, 1)
    said = "\n".join(check_report.lines(checked))
    assert "1 of them are of an era that is over" in said
    (key,) = [each.key for each in found.examples]
    text = doctor._unnamed(found.view(), [key]).text
    assert "1 are of an era that is over" in text
    assert "deleted, the others" not in text
    assert text.endswith(key)


async def fetched(client: SocketClient, *, offset: int, epoch: int) -> ErrorCode:
    request = requests.fetch({("t", 0): offset}, max_wait_ms=0)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    answer = await client.call(apis.FETCH, 11, request)
    return ErrorCode(requests.rows_of(answer)["t", 0].error_code)


def epoch_request(epoch: int, *, current: int) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])]
    )
