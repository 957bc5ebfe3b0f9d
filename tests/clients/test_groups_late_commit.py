"""A late commit cannot skip records: `frazil.commit.owner.only`, and what happens without it.

What befell Redpanda Connect (redpanda-data/connect#4010, #4009, #4477), replayed step by step with
librdkafka. A pipeline gathers the records of each partition in windows and stores a window as one
object, named by topic, partition and first offset, so that what is done again overwrites. It
commits when a window is stored. While a window of the old consumer is on its way to a slow store
the group is scaled up, and half of the partitions go to a new consumer, which begins where the
group is. When the old window has been stored at last it is committed, though others own its
partitions now: Kafka takes it, because the member and its generation are right. The group is then
beyond what the new consumer has stored and will ever be asked to store.
"""

import pytest

from tests.clients.groups import (
    CommitError,
    Got,
    Place,
    Stream,
    fresh,
    set_group_config,
    until,
    until_read,
    until_shared,
)
from tests.clients.members import ConfluentMember
from tests.parts.servers import KafkaServer

pytestmark = pytest.mark.integration

KINDS = {
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
OLD_WINDOW, NEW_WINDOW = 100, 60


class Store:
    """Objects by name; one put under a name replaces the one before."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, int, int], list[Got]] = {}

    def put(self, window: list[Got]) -> None:
        first = window[0]
        self._objects[first.topic, first.partition, first.offset] = window

    def contents(self) -> set[Got]:
        return {got for window in self._objects.values() for got in window}


def _window(member: ConfluentMember, place: Place, start: int, end: int) -> list[Got]:
    """What the pipeline of this member has gathered of a partition."""
    found = {
        got.offset: got
        for got in member.records
        if (got.topic, got.partition) == place and start <= got.offset < end
    }
    assert sorted(found) == list(range(start, end))
    return [found[offset] for offset in range(start, end)]


def _lost_by_a_scale_up(bootstrap: str, kind: str, *, owner_only: bool) -> tuple[int, int]:
    """How many records nobody stored in the end, and how many late commits were refused."""
    name = fresh(f"late-commit-{kind}")
    if owner_only:
        set_group_config(bootstrap, name, "frazil.commit.owner.only", "true")
    stream, store = Stream(bootstrap, name), Store()
    stream.send(OLD_WINDOW)
    everything = stream.records_from([0] * 4)

    def join(member: str) -> ConfluentMember:
        return ConfluentMember(member, bootstrap, name, [name], **KINDS[kind])

    # The old consumer has a window of each partition on its way to the store, and nothing committed.
    old = join("old")
    until_read([old], everything)
    slow = {place: _window(old, place, 0, OLD_WINDOW) for place in sorted(stream.places)}

    # Scaled up: half of the partitions go to the new consumer, which reads from the beginning.
    new = join("new")
    until_shared([old, new], stream.places)
    moved = sorted(new.owned)
    until_read([new], {got for place in moved for got in slow[place]})

    # The old windows arrive; the first new ones overwrite theirs; both are committed, the old later.
    for window in slow.values():
        store.put(window)
    for place in moved:
        store.put(_window(new, place, 0, NEW_WINDOW))
    new.commit(dict.fromkeys(moved, NEW_WINDOW))
    refused: list[Place] = []
    for place in slow:
        try:
            old.commit({place: OLD_WINDOW})
        except CommitError:
            refused.append(place)
    assert set(refused) <= set(moved), "what the old consumer owns it may commit"

    # The new consumer goes before its second windows are stored; who owns them next begins where
    # the group is, and stores everything.
    new.close()
    until(lambda: old.owned == stream.places, [old], "the old consumer has all again")
    old.close()
    last = join("last")
    until(lambda: last.owned == stream.places, [last], "the last consumer has all")
    stream.send(1)
    until_read([last], stream.records_from([OLD_WINDOW] * 4))
    for place in stream.places:
        ends = [got.offset for got in last.records if (got.topic, got.partition) == place]
        store.put(_window(last, place, min(ends), OLD_WINDOW + 1))
    last.close()
    return len(everything - store.contents()), len(refused)


WINDOW_LEFT_OUT = 2 * (OLD_WINDOW - NEW_WINDOW)
"""Of each of the two partitions that moved."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_commit_loses_records_as_in_kafka_unless_only_owners_may_commit(
    bootstrap: str, kind: str
) -> None:
    lost, refused = _lost_by_a_scale_up(bootstrap, kind, owner_only=False)
    assert (lost, refused) == (WINDOW_LEFT_OUT, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_to_a_late_commit_when_only_owners_may_commit(
    bootstrap: str, kind: str
) -> None:
    lost, refused = _lost_by_a_scale_up(bootstrap, kind, owner_only=True)
    assert (lost, refused) == (0, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_apache_kafka_loses_records_to_a_late_commit(kafka: KafkaServer, kind: str) -> None:
    lost, refused = _lost_by_a_scale_up(kafka.bootstrap, kind, owner_only=False)
    assert (lost, refused) == (WINDOW_LEFT_OUT, 0)
