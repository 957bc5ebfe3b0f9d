"""Consumers of both protocols come and go in one group, on a log and agents that may fail."""

from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.groups.consumer import delta
from broker.groups.group import change_commands
from tests.broker.groups.migration.clients import ClassicClient
from tests.broker.groups.requests import COOPERATIVE, RANGE
from tests.broker.groups.village import AnyClient, Village

TOPICS = ("orders", "bills")
CLIENTS_MAX = 5
fails = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 3))
any_client = st.integers(0, CLIENTS_MAX - 1)


class MigratingGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.village = Village()
        self.world = self.village.world
        self.patches = []

    @initialize(
        rows=st.sampled_from([1, 2, 1000]),
        counts=st.lists(st.integers(1, 5), min_size=1, max_size=2),
        protocol=st.sampled_from([RANGE, COOPERATIVE]),
        delay_ms=st.sampled_from([0, 3_000]),
    )
    def begin(self, rows: int, counts: list[int], protocol: str, delay_ms: int) -> None:
        self.patches = [
            patch.object(delta, "GROUP_COMMAND_ROWS_MAX", rows),
            # A static member's new id and its old one are in one command.
            patch.object(change_commands, "GROUP_COMMAND_ROWS_MAX", max(rows, 2)),
        ]
        for each in self.patches:
            each.start()
        for name, count in zip(TOPICS, counts, strict=False):
            self.world.create(name, count)
        self.protocol = protocol
        self.world.configure(initial_rebalance_delay_ms=delay_ms)

    # Clients.

    @precondition(lambda self: len(self.village.running()) < CLIENTS_MAX)
    @rule(
        is_classic=st.booleans(),
        names=st.sampled_from([TOPICS, TOPICS, TOPICS[:1], TOPICS[1:]]),
        instance_id=st.sampled_from([None, None, None, "i", "j"]),
        timeout=st.sampled_from([8_000, 60_000]),
        fail=fails,
    )
    def start(
        self,
        is_classic: bool,
        names: tuple[str, ...],
        instance_id: str | None,
        timeout: int,
        fail: int | None,
    ) -> None:
        if instance_id is not None:
            names = TOPICS  # Another subscription of a static member changes nothing by itself.
        client: AnyClient
        if is_classic:
            client = self.village.classic(
                *names,
                protocol=self.protocol,
                instance_id=instance_id,
                rebalance_timeout_ms=timeout,
            )
        else:
            client = self.village.consumer(
                *names, instance_id=instance_id, rebalance_timeout_ms=timeout
            )
        self.world.fail_after = fail
        self.village.step(client)

    @precondition(lambda self: self.village.running())
    @rule(index=any_client, adopts=st.booleans(), fail=fails)
    def step(self, index: int, adopts: bool, fail: int | None) -> None:
        self.world.fail_after = fail
        self.village.step(self.village.pick(index), adopts=adopts)

    @precondition(lambda self: self.village.running())
    @rule(times=st.integers(1, 4))
    def step_all(self, times: int) -> None:
        for _ in range(times):
            for client in self.village.running():
                if client.is_running:
                    self.village.step(client)

    @precondition(lambda self: self.village.running())
    @rule(index=any_client)
    def revoke(self, index: int) -> None:
        client = self.village.pick(index)
        if not isinstance(client, ClassicClient):
            client.revoke()

    @precondition(lambda self: self.village.running())
    @rule(index=any_client, fail=fails)
    def leave(self, index: int, fail: int | None) -> None:
        self.world.fail_after = fail
        self.goes(self.village.pick(index))

    def goes(self, client: AnyClient) -> None:
        if isinstance(client, ClassicClient):
            client.leave()
        else:
            client.leave(for_good=False)

    @precondition(lambda self: len(self.village.running()) > 1)
    @rule(index=any_client)
    def crash(self, index: int) -> None:
        self.village.pick(index).crash()

    @precondition(lambda self: self.village.running())
    @rule(index=any_client, is_classic=st.booleans(), crashes=st.booleans(), fail=fails)
    def restart(self, index: int, is_classic: bool, crashes: bool, fail: int | None) -> None:
        """As a rolling upgrade does it, or its way back."""
        client = self.village.pick(index)
        if crashes:
            client.crash()
        else:
            self.goes(client)
        self.start(is_classic, client.names, client.instance_id, 60_000, fail)

    # What happens to the cluster.

    @rule(name=st.sampled_from(TOPICS), partitions=st.integers(1, 5))
    def create_topic(self, name: str, partitions: int) -> None:
        if self.world.topics.by_name(name) is None:
            self.world.create(name, partitions)

    @rule()
    def take_over(self) -> None:
        self.world.take_over()

    @rule(ms=st.sampled_from([1, 1_000, 3_000, 9_000, 9_000, 20_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    # What must hold.

    @invariant()
    def all_is_well(self) -> None:
        self.village.check()

    def teardown(self) -> None:
        try:
            self.world.fail_after = None
            self.village.settle()
        finally:
            for each in self.patches:
                each.stop()


MigratingGroups.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_consumers_of_both_protocols_share_a_group = MigratingGroups.TestCase
