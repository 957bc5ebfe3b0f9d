"""This release over what releases before it left: in SQLite and a folder, and in etcd."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import ConsumerGroupHeartbeatRequest
from tests.clients import raw
from tests.clients.bounded import Bounded, until
from tests.clients.raw import Connection
from tests.clients.raw_txn import Producer as RawProducer
from tests.clients.raw_txn import until_stable
from tests.releases import KEPT, Release, agents, story
from tests.releases.agents import KeptAgent
from tests.releases.keep import PREFIX, restored_etcd, started, take_snapshots
from tests.releases.seen import Seen, differences, read, seen, seen_group, seen_transactions

pytestmark = pytest.mark.integration

STORAGES = ("data", "etcd")
MadeAgent = Callable[[], KeptAgent]


class Kept(NamedTuple):
    agent: MadeAgent
    """One over the data; they are the test's own."""
    seen: Seen
    """By the release that left them."""


@pytest.fixture(params=[pytest.param(release, id=release.version) for release in KEPT])
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture(params=STORAGES)
def kept(request: pytest.FixtureRequest, release: Release, tmp_path: Path) -> Iterator[Kept]:
    left = _seen(release, request.param)
    if request.param == "data":
        data = release.unpack("data", tmp_path / "data")
        yield Kept(lambda: agents.embedded(tmp_path / "dev", data), left)
        return
    with restored_etcd(release, tmp_path / "restored") as (data, etcd):
        yield Kept(lambda: agents.on_etcd(tmp_path / "agent-9", data, etcd, PREFIX), left)


def _seen(release: Release, storage: str) -> Seen:
    found: Seen = json.loads((release.folder / f"{storage}.json").read_text())
    return found


@pytest.mark.parametrize("storage", STORAGES)
def test_what_is_kept_has_something_of_everything(release: Release, storage: str) -> None:
    """So that the other tests say something."""
    left = _seen(release, storage)
    topics, transactions = left["topics"], left["transactions"]
    assert topics.keys() == story.TOPICS.keys()
    assert {row["state"] for row in transactions.values()} == {
        "CompleteCommit",
        "CompleteAbort",
        "Ongoing",
    }
    assert topics["plain"]["partitions"][2]["start"] == 3
    assert topics["compacted"]["partitions"][0]["end"] > len(
        topics["compacted"]["partitions"][0]["all"]
    )
    assert topics["layered"]["partitions"][0]["committed"]["count"] > 400


def test_clients_see_what_they_saw_of_the_release_that_left_it(kept: Kept) -> None:
    with started(kept.agent()) as agent:
        assert differences(kept.seen, seen(agent)) == []


@pytest.mark.parametrize("committed", story.OPEN)
def test_open_transactions_are_ended_by_their_owners(kept: Kept, committed: str) -> None:
    with started(kept.agent()) as agent:
        for name, dialect in story.OPEN.items():
            producer = RawProducer(name, dialect, *kept.seen["transactions"][name]["producer"])
            with Connection(agent.bootstrap) as connection:
                for partition in range(2):
                    # As it was sent before: it is there once.
                    producer.write(connection, ("transactional", partition), f"{name} {partition}")
                assert producer.end(connection, commit=name == committed)[-1] == 0
        places = [("transactional", partition) for partition in range(2)]
        for place in places:
            until_stable(agent.bootstrap, place)
        transactions = seen_transactions(agent.bootstrap)
        offsets = story.committed(agent.bootstrap, "in-transaction", "plain")
        values = [[row["value"] for row in read(agent.bootstrap, *place)] for place in places]
    assert values == [
        ["committed 0", f"{committed} 0", "behind"],
        ["committed 1", f"{committed} 1"],
    ]
    states = {name: transactions[name]["state"] for name in story.OPEN}
    assert states == {
        name: "CompleteCommit" if name == committed else "CompleteAbort" for name in story.OPEN
    }
    assert offsets[1] == ((3, "pending") if committed == "open-new" else (OFFSET_INVALID, None))


def test_it_is_written_on_and_is_whole_after_another_start(kept: Kept) -> None:
    with started(kept.agent()) as agent:
        story.write_plain(agent.bootstrap, first=100)
        story.write_keys(agent.bootstrap, "compacted", rounds=2)
        story.register(agent.registry)
        new = {"schema": json.dumps({**story.SCHEMA, "doc": "new"})}
        registered = story.http("POST", f"{agent.registry}/subjects/typed-value/versions", new)
        jobs = Bounded(agent.bootstrap, agent.http_port)
        clean_to = jobs.partition("compacted")["clean_to"]
        jobs.run_until("compact", "compacted", lambda row: row["clean_to"] > clean_to)
        jobs.run_until("merge", "plain", lambda row: row["chunk_bytes"] == 0)
        take_snapshots(agent)
        before = seen(agent)
    ids = [row["id"] for rows in kept.seen["subjects"]["versions"].values() for row in rows]
    assert registered["id"] == max(ids) + 1
    for subject, rows in kept.seen["subjects"]["versions"].items():
        assert before["subjects"]["versions"][subject][: len(rows)] == rows
    for was, now in zip(_partitions(kept.seen), _partitions(before), strict=True):
        assert now["all"][: len(was["all"])] == was["all"]
        assert len(now["all"]) == len(was["all"]) + 5
    with started(kept.agent()) as agent:
        assert differences(before, seen(agent)) == []


def _partitions(found: Seen) -> list[Seen]:
    rows: list[Seen] = found["topics"]["plain"]["partitions"]
    return rows


def test_a_static_member_of_a_classic_group_comes_back_and_goes_on(kept: Kept) -> None:
    group = "classic-static"
    with started(kept.agent()) as agent:
        member = story.static_member(agent.bootstrap, group)
        places = [TopicPartition("plain", partition) for partition in range(3)]
        committed = [(row.offset, row.metadata) for row in member.committed(places, timeout=30)]
        assert committed == [(1 + partition, f"by {group}") for partition in range(3)]
        story.commit(member, [TopicPartition("plain", 0, 4, "new")])
        member.close()
        now = seen_group(agent.bootstrap, group)
    assert ["plain", 0, 4, "new"] in now["offsets"]
    # Nobody was waited for, and nothing was given to anybody else.
    assert now["members"] == kept.seen["groups"][group]["members"]


def test_a_member_of_a_new_group_goes_on_as_if_nothing_had_been(kept: Kept) -> None:
    group = "new-static"
    with started(kept.agent()) as agent:
        address = agent.bootstrap
        # An agent that was killed is known to be dead after a while.
        until(lambda: raw.coordinator(address, group), lambda named: named == address)
        assert raw.committed(address, group, "plain", 3) == [1, 2, 3]
        epoch, members = raw.epochs(address, group)
        ((member_id, member_epoch),) = members.items()
        assert member_epoch == epoch
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=f"{group}-1",
        )
        answer = raw.ask(address, apis.CONSUMER_GROUP_HEARTBEAT, 0, beat)
        assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, epoch)
        for named, error in ((epoch, ErrorCode.NONE), (epoch - 1, ErrorCode.STALE_MEMBER_EPOCH)):
            place = ("plain", 0)
            found = raw.commit(address, group, place, 4, epoch=named, member_id=member_id)
            assert found == error
        assert raw.committed(address, group, "plain", 3) == [4, 2, 3]
