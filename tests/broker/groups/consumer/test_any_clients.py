"""A KIP-848 group against clients that follow the protocol, on a log and agents that may fail.

Safety, at every moment: what a client believes to own is its own in the coordinator's image,
and so nobody else's, unless the client was fenced; epochs never go back. Liveness, at the end:
when all follow and nothing fails, everybody reaches the group epoch, and every partition of every
topic that somebody subscribes to is owned.
"""

import random
from contextlib import ExitStack
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from broker.groups.consumer import delta
from broker.groups.consumer import steps as consumer_steps
from tests.broker.groups.consumer.clients import Client
from tests.broker.groups.pure import consumer_world
from tests.broker.groups.village import Village

TOPICS = ("orders", "orders-old", "bills")
REGEXES = ("", "", "", "orders.*", "(bills|none)")
INSTANCES = (None, None, "i", "j")
CLIENTS_MAX = 6
ROUNDS = 60
"""Enough for sessions and rebalance timeouts of who is gone, and all that comes after."""

names_strategy = st.lists(st.sampled_from(TOPICS), max_size=3, unique=True).map(tuple)
fails = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 3))
any_client = st.integers(0, CLIENTS_MAX - 1)


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.village = Village(consumer_world(), commits=False)
        self.world = self.village.world
        self.clients = self.village.clients
        self.epochs = (0, 0)
        self.patches = ExitStack()

    @initialize(
        rows=st.sampled_from([1, 2, 1000]),
        eager=st.sampled_from([100, 100, 1]),
        counts=st.lists(st.integers(1, 4), max_size=2),
    )
    def begin(self, rows: int, eager: int, counts: list[int]) -> None:
        """With `rows` in a command; groups of more than `eager` members rest between targets."""
        for module, name, value in (
            (delta, "GROUP_COMMAND_ROWS_MAX", rows),
            (consumer_steps, "EAGER_MEMBERS_MAX", eager),
            (consumer_steps, "REST_MS_PER_MEMBER", 400),
        ):
            self.patches.enter_context(patch.object(module, name, value))
        for name, count in zip(TOPICS, counts, strict=False):
            self.world.create(name, count)

    def running(self) -> list[Client]:
        return self.village.consumers()

    def pick(self, index: int) -> Client:
        return self.running()[index % len(self.running())]

    # Clients.

    @precondition(lambda self: len(self.running()) < CLIENTS_MAX)
    @rule(
        names=names_strategy,
        regex=st.sampled_from(REGEXES),
        instance=st.sampled_from(INSTANCES),
        timeout=st.sampled_from([10_000, 60_000]),
        loses_answer=st.booleans(),
        fail=fails,
    )
    def start(
        self,
        names: tuple[str, ...],
        regex: str,
        instance: str | None,
        timeout: int,
        loses_answer: bool,
        fail: int | None,
    ) -> None:
        client = self.village.consumer(
            *names, regex=regex, instance_id=instance, rebalance_timeout_ms=timeout
        )
        self.world.fail_after = fail
        client.beat(loses_answer=loses_answer)

    @precondition(lambda self: self.running())
    @rule(index=any_client, loses_answer=st.booleans(), adopts=st.booleans(), fail=fails)
    def beat(self, index: int, loses_answer: bool, adopts: bool, fail: int | None) -> None:
        client = self.pick(index)
        self.world.fail_after = fail
        client.beat(loses_answer=loses_answer)
        if adopts and client.is_running:
            client.adopt()

    @precondition(lambda self: self.running())
    @rule(
        adopts=st.booleans(), rounds=st.integers(1, 3), pause_ms=st.sampled_from([0, 1_000, 9_000])
    )
    def go_on(self, adopts: bool, rounds: int, pause_ms: int) -> None:
        """Everybody, for a while."""
        for _ in range(rounds):
            self.world.wait(pause_ms)
            for client in self.running():
                client.beat()
                if adopts and client.is_running:
                    client.adopt()
                self.village.check()

    @precondition(lambda self: self.running())
    @rule(index=any_client)
    def revoke(self, index: int) -> None:
        self.pick(index).revoke()

    @precondition(lambda self: self.running())
    @rule(index=any_client)
    def adopt(self, index: int) -> None:
        self.pick(index).adopt()

    @precondition(lambda self: self.running())
    @rule(index=any_client, names=names_strategy, regex=st.sampled_from(REGEXES), fail=fails)
    def subscribe(self, index: int, names: tuple[str, ...], regex: str, fail: int | None) -> None:
        client = self.pick(index)
        client.subscribe(names, regex)
        self.world.fail_after = fail
        client.beat()

    @precondition(lambda self: len(self.running()) > 2)
    @rule(index=any_client, for_good=st.booleans(), fail=fails)
    def leave(self, index: int, for_good: bool, fail: int | None) -> None:
        self.world.fail_after = fail
        self.pick(index).leave(for_good=for_good)

    @precondition(lambda self: len(self.running()) > 3)
    @rule(index=any_client)
    def crash(self, index: int) -> None:
        self.pick(index).crash()

    @precondition(lambda self: len(self.running()) < len(self.clients) and self.village.ids < 40)
    @rule(index=any_client, keeps_id=st.booleans(), fail=fails)
    def come_back(self, index: int, keeps_id: bool, fail: int | None) -> None:
        """As the same process would after a restart, or after it was refused."""
        gone = [client for client in self.clients if not client.is_running]
        client = gone[index % len(gone)]
        if not keeps_id:
            client.member_id = self.village.new_id()
        client.is_running = True
        self.world.fail_after = fail
        client.beat()

    @precondition(lambda self: self.running())
    @rule(index=any_client)
    def join_again(self, index: int) -> None:
        client = self.pick(index)
        client.start_again()
        client.beat()

    # What happens to the cluster.

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 4))
    def change_topic(self, name: str, partitions: int) -> None:
        if self.world.topics.by_name(name) is None:
            self.world.create(name, partitions)
        else:
            self.world.delete(name)

    @rule()
    def take_over(self) -> None:
        self.world.take_over()

    @rule(ms=st.sampled_from([1, 1_000, 1_000, 9_000, 9_000, 20_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    # What must hold.

    @invariant()
    def what_clients_believe_to_own_is_theirs_alone(self) -> None:
        self.village.check()

    @invariant()
    def epochs_never_go_back(self) -> None:
        image = self.world.image
        epochs = (image.epoch, image.assignment_epoch)
        assert image.assignment_epoch <= image.epoch
        assert epochs >= self.epochs
        assert epochs[1] >= self.epochs[1]
        self.epochs = epochs
        for member in image.members.values():
            assert member.epoch <= image.assignment_epoch

    @invariant()
    def targets_give_each_partition_to_one(self) -> None:
        image = self.world.image
        if image.epoch > image.assignment_epoch:
            return  # They are to be computed again.
        given = [
            (topic, number)
            for member in image.members.values()
            for topic, numbers in member.target.items()
            for number in numbers
        ]
        assert len({*given}) == len(given)

    def teardown(self) -> None:
        try:
            self.settles()
        finally:
            self.patches.close()

    def settles(self) -> None:
        """From now on nothing fails."""
        for _ in range(ROUNDS):
            self.village.round()
            self.epochs_never_go_back()
        self.village.check_settled()
        writes = self.world.writes
        for client in self.running():
            assert client.epoch == self.world.image.epoch
            client.beat()
        assert self.world.writes == writes, "a group at rest writes"


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _names(rng: random.Random) -> tuple[str, ...]:
    return tuple(rng.sample(TOPICS, rng.choice([0, 1, 1, 2, 3])))


def _step(machine: ConsumerGroupMachine, rng: random.Random, fail_rate: float) -> None:
    """One of the rules, the likelier ones more often."""
    fail = rng.randrange(4) if rng.random() < fail_rate else None
    index = rng.randrange(CLIENTS_MAX)
    running = len(machine.running())
    steps = [
        (2, lambda: machine.change_topic(rng.choice(TOPICS), rng.randint(1, 4))),
        (4, machine.take_over),
        (4, lambda: machine.wait(rng.choice([1, 1_000, 9_000, 9_000, 20_000]))),
    ]
    if running < CLIENTS_MAX:
        regex, instance = rng.choice(REGEXES), rng.choice(INSTANCES)
        timeout, loses = rng.choice([10_000, 60_000]), rng.random() < 0.2
        steps += [(9, lambda: machine.start(_names(rng), regex, instance, timeout, loses, fail))]
        if running < len(machine.clients):
            steps += [(4, lambda: machine.come_back(index, rng.random() < 0.5, fail))]
    if running:
        regex, adopts = rng.choice(REGEXES), rng.random() < 0.6
        steps += [
            (40, lambda: machine.beat(index, rng.random() < 0.15, adopts, fail)),
            (10, lambda: machine.adopt(index)),
            (5, lambda: machine.revoke(index)),
            (10, lambda: machine.go_on(adopts, 2, rng.choice([0, 1_000, 9_000]))),
            (5, lambda: machine.subscribe(index, _names(rng), regex, fail)),
            (3, lambda: machine.leave(index, rng.random() < 0.5, fail)),
            (2, lambda: machine.crash(index)),
            (2, lambda: machine.join_again(index)),
        ]
    (step,) = rng.choices([step for _, step in steps], [weight for weight, _ in steps])
    step()


def live_long(seed: int, steps: int) -> ConsumerGroupMachine:
    """What Hypothesis does in many short lives, in one long one: bigger groups, more epochs."""
    rng = random.Random(seed)
    machine = ConsumerGroupMachine()
    machine.begin(rng.choice([1, 2, 1000]), rng.choice([100, 1]), [4, 3])
    fail_rate = rng.choice([0.0, 0.1, 0.3])
    try:
        for _ in range(steps):
            _step(machine, rng, fail_rate)
            machine.village.check()
            machine.epochs_never_go_back()
            machine.targets_give_each_partition_to_one()
        machine.settles()
    finally:
        machine.patches.close()
    return machine


@pytest.mark.parametrize("seed", range(30))
def test_a_long_life_is_safe_and_ends_settled(seed: int):
    machine = live_long(seed, steps=300)
    assert machine.world.image.epoch > 20
    assert machine.world.writes > 40
