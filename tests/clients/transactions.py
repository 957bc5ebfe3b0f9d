"""The stories about transactions that every client is told, and the clients that are told them.

Readers are the members of groups of `members`; producers and pipes are in modules of their own. What
clients show is compared with what `raw_txn.visible` reads by hand.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.clients import raw_txn
from tests.clients.groups import Member, Stream, assert_no_errors, fresh, until
from tests.clients.pipes import Pipe
from tests.clients.producers import TransactionError, TxnProducer
from tests.parts.servers import Frazil, FrazilCluster, get_text

PARTITIONS = 4
QUIET_S = 0.5
"""So long a reader is watched that should see nothing; seeing something late is no failure."""
SMALL_FETCH = 2_000
"""Bytes: less than a batch of those that are read over."""


@dataclass(frozen=True)
class Client:
    """How one client produces, reads and pipes."""

    name: str
    producer: Callable[..., TxnProducer]
    """(bootstrap, transactional id, timeout in ms)"""
    reader: Callable[[str, str, str, str, int], Member]
    """(bootstrap, group, topic, isolation level, fetch size), a member of the group, alone."""
    pipe: Callable[..., Pipe]
    """(bootstrap, transactional id, source, sink, seed=…)"""
    fenced: str
    """A pattern of what it says when another producer has its transactional id."""
    timed_out: str
    """The same, when its transaction was ended by the coordinator."""

    def fresh(self, story: str) -> str:
        return fresh(f"txn-{self.name}-{story}")


def everywhere(letter: str, count: int, width: int = 0) -> list[tuple[int, str]]:
    """Values for each partition: "a0", "a1"…, filled up to `width`."""
    return [
        (partition, f"{letter}{number}".ljust(width, "."))
        for number in range(count)
        for partition in range(PARTITIONS)
    ]


def read_in_order(reader: Member) -> list[list[str]]:
    """The values that it read of each partition, in the order in which it did."""
    read = reader.records.copy()
    return [[got.value for got in read if got.partition == index] for index in range(PARTITIONS)]


def in_order(*sent: list[tuple[int, str]]) -> list[list[str]]:
    """What `read_in_order` gives when all this was read."""
    rows = list(itertools.chain(*sent))
    return [[value for place, value in rows if place == index] for index in range(PARTITIONS)]


def until_read_in_order(reader: Member, *sent: list[tuple[int, str]]) -> None:
    wanted = in_order(*sent)
    total = sum(map(len, wanted))
    until(lambda: len(reader.records) >= total, [reader], f"{total} records are read")
    assert read_in_order(reader) == wanted


def shown(bootstrap: str, topic: str) -> list[list[str]]:
    """What is committed of each partition, read by hand."""
    return [raw_txn.visible(bootstrap, (topic, index)) for index in range(PARTITIONS)]


def until_stable(bootstrap: str, topic: str) -> None:
    for index in range(PARTITIONS):
        raw_txn.until_stable(bootstrap, (topic, index))


def commit_and_abort(client: Client, bootstrap: str) -> None:
    """Both isolation levels see what they should, at every step."""
    topic = client.fresh("ends")
    Stream(bootstrap, topic, PARTITIONS)
    committed = client.reader(bootstrap, f"{topic}-c", topic, "read_committed", 1 << 20)
    uncommitted = client.reader(bootstrap, f"{topic}-u", topic, "read_uncommitted", 1 << 20)
    producer = client.producer(bootstrap, topic)
    first, second, third = everywhere("a", 25), everywhere("b", 25), everywhere("c", 25)

    producer.begin()
    producer.send(topic, first)
    until_read_in_order(uncommitted, first)
    time.sleep(QUIET_S)
    assert committed.records == [], "an open transaction is not to be seen"
    producer.commit()
    until_read_in_order(committed, first)

    producer.begin()
    producer.send(topic, second)
    until_read_in_order(uncommitted, first, second)
    producer.abort()
    producer.begin()
    producer.send(topic, third)
    producer.commit()
    until_read_in_order(committed, first, third)
    until_read_in_order(uncommitted, first, second, third)
    assert shown(bootstrap, topic) == in_order(first, third)
    # A marker has an offset of its own, after either end.
    offsets = sorted(got.offset for got in committed.records.copy() if got.partition == 0)
    assert offsets == [*range(25), *range(25 + 1 + 25 + 1, 25 + 1 + 25 + 1 + 25)]
    _close(producer, committed, uncommitted)


def read_over_aborted(client: Client, bootstrap: str) -> None:
    """A reader with small fetches gets over long stretches of nothing but aborted records."""
    topic = client.fresh("aborted")
    Stream(bootstrap, topic, PARTITIONS)
    producer = client.producer(bootstrap, topic)
    first, last = everywhere("first", 3), everywhere("last", 3)
    producer.begin()
    producer.send(topic, first)
    producer.commit()
    for round_ in range(4):
        producer.begin()
        producer.send(topic, everywhere(f"gone{round_}-", 60, 200))
        producer.abort()
    reader = client.reader(bootstrap, topic, topic, "read_committed", SMALL_FETCH)
    until_read_in_order(reader, first)
    producer.begin()
    producer.send(topic, last)
    producer.commit()
    until_read_in_order(reader, first, last)
    assert shown(bootstrap, topic) == in_order(first, last)
    _close(producer, reader)


def take_over(client: Client, bootstrap: str) -> None:
    """A second producer of the same transactional id ends what the first has open, and fences it."""
    topic = client.fresh("takeover")
    Stream(bootstrap, topic, PARTITIONS)
    old = client.producer(bootstrap, topic)
    first, lost, last = everywhere("first", 5), everywhere("lost", 5), everywhere("last", 5)
    old.begin()
    old.send(topic, first)
    old.commit()
    old.begin()
    old.send(topic, lost)
    new = client.producer(bootstrap, topic)
    # Only now kafkajs asks for a producer id.
    new.begin()
    until_stable(bootstrap, topic)
    with pytest.raises(TransactionError, match=client.fenced):
        old.commit()
    new.send(topic, last)
    new.commit()
    until_stable(bootstrap, topic)
    assert shown(bootstrap, topic) == in_order(first, last)
    old.close()
    new.close()


def time_out(client: Client, bootstrap: str) -> None:
    """A transaction past its timeout is aborted; its producer hears of it, and the next goes on."""
    topic = client.fresh("timeout")
    Stream(bootstrap, topic, PARTITIONS)
    slow = client.producer(bootstrap, topic, 1_000)
    lost, last = everywhere("lost", 5), everywhere("last", 5)
    slow.begin()
    slow.send(topic, lost)
    until_stable(bootstrap, topic)
    with pytest.raises(TransactionError, match=client.timed_out):
        slow.commit()
    new = client.producer(bootstrap, topic)
    new.begin()
    new.send(topic, last)
    new.commit()
    until_stable(bootstrap, topic)
    assert shown(bootstrap, topic) == in_order(last)
    slow.close()
    new.close()


def pipe_through(client: Client, bootstrap: str, *, each: int = 150) -> None:
    """Consume, transform, produce with aborts: each record once, and the group is at the end."""
    source = client.fresh("pipe")
    sink = f"{source}-out"
    stream, _ = Stream(bootstrap, source, PARTITIONS), Stream(bootstrap, sink, PARTITIONS)
    stream.send(each)
    pipe = client.pipe(bootstrap, source, source, sink, seed=5)
    commits, aborts = until_piped(stream, sink, [pipe])
    assert commits > 0
    assert aborts > 0
    assert_piped_once([bootstrap], stream, sink)


def until_piped(
    stream: Stream, sink: str, pipes: Sequence[Pipe], seconds: float = 60
) -> tuple[int, int]:
    """Wait until the group `sink` has committed all of the stream, and stop; commits and aborts."""
    deadline = time.monotonic() + seconds
    try:
        while (now := stream.committed(sink)) != stream.ends:
            assert time.monotonic() < deadline, f"{now} of {stream.ends}"
            time.sleep(0.1)
    finally:
        counts = stopped(pipes)
    return counts


def stopped(pipes: Sequence[Pipe]) -> tuple[int, int]:
    """End them; their commits and aborts together."""
    counts = [pipe.stop() for pipe in pipes]
    return sum(row[0] for row in counts), sum(row[1] for row in counts)


def assert_piped_once(addresses: Sequence[str], stream: Stream, sink: str) -> None:
    """By every agent: the output that is committed is the input, each record once, in order."""
    wanted = [
        [f"{index}:{number}!" for number in range(end)] for index, end in enumerate(stream.ends)
    ]
    raw_txn.until_all_know(addresses, *[(sink, index) for index in range(PARTITIONS)])
    for address in addresses:
        for index, values in enumerate(shown(address, sink)):
            twice = [value for value, count in Counter(values).items() if count > 1]
            missing = set(wanted[index]) - set(values)
            assert (twice[:5], sorted(missing)[:5]) == ([], []), f"partition {index} at {address}"
            assert values == wanted[index]


def _close(producer: TxnProducer, *readers: Member) -> None:
    producer.close()
    for reader in readers:
        reader.close()
    assert_no_errors(*readers)


STORIES = {
    "commit and abort": commit_and_abort,
    "read over aborted": read_over_aborted,
    "take over": take_over,
    "time out": time_out,
    "pipe": pipe_through,
}


CHALLENGES = "frazil_transaction_challenges_total"


def challenges(cluster: FrazilCluster) -> int:
    """How often an EndTxn was challenged, at all agents together."""
    return sum(_counter(agent, CHALLENGES) for agent in cluster.agents)


def _counter(agent: Frazil, name: str) -> int:
    rows = [
        float(line.rsplit(" ", 1)[1])
        for line in get_text(agent.http_port, "/metrics").splitlines()
        if line.startswith((f"{name} ", f"{name}{{"))
    ]
    assert rows, f"no metric is called {name}"
    return int(sum(rows))
