"""Members of consumer groups as tests see them, whatever their client: what they own and read.

A `Member` runs by itself, in a thread or in a process of another language, and is watched; tests
say only when it commits and when it leaves. What is common to all clients is here: waiting until a
group has settled, a `Stream` of numbered records, and the stories that every client is told.
"""

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.clients import raw
from tests.parts.topics import NotNowError, create_topic, patiently, told

Place = tuple[str, int]
"""Topic and partition."""

PATIENCE_S = 30.0

_numbers = itertools.count()


def fresh(name: str) -> str:
    """A topic and group that no other test of this process uses."""
    return f"{name}-{next(_numbers)}"


class Got(NamedTuple):
    """A record, as a member read it."""

    topic: str
    partition: int
    offset: int
    value: str


class Event(NamedTuple):
    """A callback of a rebalance."""

    kind: str
    """"assigned", "revoked" or "lost"."""
    places: frozenset[Place]
    at_s: float
    """On the monotonic clock."""


class CommitError(Exception):
    """The client says that an offset was not committed."""


class Owners:
    """Who owns what at every moment, by the callbacks of members of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: dict[Place, str] = {}
        self.violations: list[str] = []

    def assigned(self, name: str, places: Iterable[Place]) -> None:
        with self._lock:
            for place in places:
                if self._owner.setdefault(place, name) != name:
                    self.violations.append(f"{place}: {self._owner[place]} and {name}")

    def revoked(self, name: str, places: Iterable[Place]) -> None:
        with self._lock:
            for place in places:
                if self._owner.get(place) == name:
                    del self._owner[place]


class Member(ABC):
    """One consumer in a group. What it owns, read and heard is to be read by anybody."""

    def __init__(self, name: str, owners: Owners | None = None) -> None:
        self.name = name
        self.owners = owners or Owners()
        self.owned: set[Place] = set()
        self.events: list[Event] = []
        self.records: list[Got] = []
        self.errors: list[str] = []
        self.member_id = ""
        self.generation = -1
        """Or the member epoch; -1 where the client does not tell."""

    @abstractmethod
    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        """Commit these offsets, or the positions of all that it read. Raises CommitError."""

    @abstractmethod
    def leave(self) -> None:
        """Begin to close, and do not wait for the end of it."""

    @abstractmethod
    def close(self) -> None:
        """End as a client does that is shut down in order; a dynamic member leaves the group."""

    def assigned(self, places: Iterable[Place]) -> None:
        """The client says: these came."""
        came = frozenset(places)
        self.owners.assigned(self.name, came)
        self.events.append(Event("assigned", came, time.monotonic()))
        self.owned |= came

    def revoked(self, places: Iterable[Place], kind: str = "revoked") -> None:
        """The client says: these are gone."""
        gone = frozenset(places)
        self.owners.revoked(self.name, gone)
        self.events.append(Event(kind, gone, time.monotonic()))
        self.owned -= gone

    def told(self) -> str:
        """For a failed test: what it went through."""
        events = "".join(f"\n    {kind} {sorted(places)}" for kind, places, _ in self.events[-12:])
        errors = "".join(f"\n    {error}" for error in self.errors[-5:])
        return f"{self.name}: owns {sorted(self.owned)}, read {len(self.records)}{events}{errors}"


Join = Callable[[str], Member]
"""A new member of the name given, in the group and with the subscription of the test."""


class Stream:
    """A topic with numbered records in each partition: value "<partition>:<number>"."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 4) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.ends = [0] * partitions
        # The admin client's is that of its call, too: on a busy machine that may take long.
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, partitions)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                # An agent that stands still is given up after that; then the others are asked.
                "socket.timeout.ms": 3_000,
                "reconnect.backoff.max.ms": 500,
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )

    @property
    def places(self) -> set[Place]:
        return {(self.topic, index) for index in range(len(self.ends))}

    def send(self, count: int) -> None:
        """Append `count` records to each partition, and wait until they are acknowledged."""
        failures: list[object] = []
        for index, end in enumerate(self.ends):
            for number in range(end, end + count):
                self._producer.produce(
                    self.topic,
                    value=f"{index}:{number}",
                    partition=index,
                    on_delivery=lambda error, _: error is not None and failures.append(error),
                )
            self.ends[index] = end + count
        assert self._producer.flush(30) == 0
        assert not failures, failures[:3]

    def records_from(self, starts: Sequence[int]) -> set[Got]:
        """All records of the stream from these offsets on."""
        return {
            Got(self.topic, index, number, f"{index}:{number}")
            for index, start in enumerate(starts)
            for number in range(start, self.ends[index])
        }

    def committed(self, group: str, address: str = "") -> list[int]:
        """The group's committed offset of each partition, -1 where there is none, asked there."""
        asked = address or self.bootstrap.split(",")[0]
        return raw.committed(asked, group, self.topic, len(self.ends))


def until(
    reached: Callable[[], bool], members: Sequence[Member], what: str, seconds: float = PATIENCE_S
) -> None:
    """Wait until it is so; AssertionError that tells of the members when it never is."""
    deadline = time.monotonic() + seconds
    while not reached():
        told = "\n".join(member.told() for member in members)
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}\n{told}"
        time.sleep(0.02)


def is_shared(members: Sequence[Member], places: set[Place]) -> bool:
    """Is every partition owned by exactly one, and is it fair?"""
    owners = Counter(place for member in members for place in member.owned.copy())
    counts = [len(member.owned) for member in members]
    return owners == Counter(places) and max(counts) - min(counts) <= 1


def until_shared(
    members: Sequence[Member], places: set[Place], seconds: float = PATIENCE_S
) -> None:
    until(lambda: is_shared(members, places), members, "each partition has one owner", seconds)


def read_by(members: Sequence[Member], since: dict[str, int] | None = None) -> Counter[Got]:
    """How often each record was read, of what each member read after so many records."""
    since = since or {}
    return Counter(got for member in members for got in member.records[since.get(member.name, 0) :])


def until_read(members: Sequence[Member], wanted: set[Got], seconds: float = PATIENCE_S) -> None:
    until(
        lambda: wanted <= read_by(members).keys(),
        members,
        f"all of {len(wanted)} records are read",
        seconds,
    )


def counts(members: Sequence[Member]) -> dict[str, int]:
    """How much each has read until now, for `read_by`."""
    return {member.name: len(member.records) for member in members}


def assert_no_errors(*members: Member) -> None:
    errors = [f"{member.name}: {error}" for member in members for error in member.errors]
    assert not errors, "\n".join(errors)


def set_group_config(bootstrap: str, group: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    patiently(lambda: told(admin.incremental_alter_configs([resource])[resource]), NotNowError)


def share_leave_and_go_on(stream: Stream, group: str, join: Join, *, each: int = 50) -> None:
    """Two share the partitions, one leaves, the other gets all; a later one goes on from there."""
    first, second = join("first"), join("second")
    both = [first, second]
    until_shared(both, stream.places)
    stream.send(each)
    until_read(both, stream.records_from([0] * 4))
    assert read_by(both) == Counter(stream.records_from([0] * 4)), "each record is read once"
    first.commit()
    second.commit()
    assert stream.committed(group) == stream.ends

    second.close()
    until(lambda: first.owned == stream.places, both, "the one that stayed has all")
    stream.send(each)
    until_read(both, stream.records_from([0] * 4))
    first.commit()
    first.close()
    assert read_by(both) == Counter(stream.records_from([0] * 4)), "nothing is read again"
    assert stream.committed(group) == stream.ends

    starts = list(stream.ends)
    stream.send(each)
    third = join("third")
    until_read([third], stream.records_from(starts))
    third.commit()
    third.close()
    assert read_by([third]) == Counter(stream.records_from(starts)), "it goes on where they were"
    assert stream.committed(group) == stream.ends
    assert_no_errors(first, second, third)


def come_back_unnoticed(
    stream: Stream, group: str, join: Callable[[str, str], Member], *, each: int = 20
) -> None:
    """A static member (KIP-345) is restarted: it gets what it had, and the other hears nothing."""
    stays, goes = join("stays", "instance-1"), join("goes", "instance-2")
    until_shared([stays, goes], stream.places)
    stream.send(each)
    until_read([stays, goes], stream.records_from([0] * 4))
    stays.commit()
    goes.commit()
    had, heard, before = set(goes.owned), len(stays.events), counts([stays])
    goes.close()
    starts = list(stream.ends)
    stream.send(each)
    back = join("back", "instance-2")
    until(lambda: back.owned == had, [stays, back], "it has again what it had")
    until_read([stays, back], stream.records_from(starts))
    assert read_by([stays, back], before) == Counter(stream.records_from(starts))
    assert stays.events[heard:] == [], "nobody else was disturbed"
    assert stays.owned == stream.places - had
    stays.commit()
    back.commit()
    assert stream.committed(group) == stream.ends
    back.close()
    stays.close()
    assert_no_errors(stays, goes, back)
