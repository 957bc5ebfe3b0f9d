"""A classic group under clients, logs and agents that do anything at any moment."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from protocol.errors import ErrorCode
from tests.broker.groups.classic.clients import NOISE, ORDINARY, TOO_MUCH, Client, Crowd

# All have "range": a group of those who have not would never take those who have nothing else.
PROTOCOLS = {
    "ordinary": ORDINARY,
    "changed": (("range", b"2"),),
    "two": (("range", b"1"), ("sticky", b"3")),
    "two, other order": (("sticky", b"3"), ("range", b"1")),
    "large": (("range", NOISE),),
    "too large": (("range", TOO_MUCH),),
}
WAIT_MS = st.sampled_from([1, 2_999, 3_000, 9_999, 10_000, 20_000, 60_000, 300_000])
ERRORS = [ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT]
WHO = st.integers(0, 5)


def not_writing(machine: Any) -> bool:
    return machine.crowd.world.writing is None


def writing(machine: Any) -> bool:
    return not not_writing(machine)


class AnyOrder(RuleBasedStateMachine):
    """c3 and c4 are two with one instance id; each fences the other."""

    def __init__(self) -> None:
        super().__init__()
        self.crowd = Crowd(
            Client("c0"),
            Client("c1", rebalance_ms=60_000),
            Client("c2", version=3),
            Client("c3", instance="i"),
            Client("c4", instance="i", version=5),
            Client("c5", instance="j", version=8),
        )

    @precondition(not_writing)
    @rule(who=WHO, protocols=st.sampled_from([*PROTOCOLS]), anew=st.integers(0, 3))
    def join(self, who: int, protocols: str, anew: int) -> None:
        client = self.crowd.clients[who]
        client.protocols = PROTOCOLS[protocols]
        self.crowd.join(client, member_id="" if anew == 0 else None)

    @precondition(not_writing)
    @rule(who=WHO)
    def join_as_before(self, who: int) -> None:
        self.crowd.join(self.crowd.clients[who])

    @precondition(not_writing)
    @rule(who=WHO, stale=st.integers(0, 7))
    def sync(self, who: int, stale: int) -> None:
        client = self.crowd.clients[who]
        self.crowd.sync(client, generation=client.generation - 1 if stale == 0 else None)

    @precondition(not_writing)
    @rule(who=st.sets(WHO, min_size=1), protocols=st.sampled_from(["", "two", "large"]), ms=WAIT_MS)
    def follow_the_protocol(self, who: set[int], protocols: str, ms: int) -> None:
        """Some do, up to a write, so that runs get far enough to be interesting."""
        clients = [self.crowd.clients[number] for number in sorted(who)]
        for client in clients:
            if protocols and PROTOCOLS[protocols] != client.protocols:
                client.protocols = PROTOCOLS[protocols]
                client.generation = -1
        self.crowd.live(clients, min(ms, 30_000), writes=False)

    @precondition(not_writing)
    @rule(who=WHO)
    def beat(self, who: int) -> None:
        self.crowd.beat(self.crowd.clients[who])

    @precondition(not_writing)
    @rule(who=WHO)
    def commit(self, who: int) -> None:
        self.crowd.commit(self.crowd.clients[who])

    @precondition(not_writing)
    @rule(who=WHO, version=st.sampled_from([2, 5]), by_instance=st.booleans())
    def leave(self, who: int, version: int, by_instance: bool) -> None:
        by_instance = by_instance and version > 2
        self.crowd.leave(self.crowd.clients[who], version=version, by_instance=by_instance)

    @precondition(not_writing)
    @rule(ms=WAIT_MS)
    def wait(self, ms: int) -> None:
        self.crowd.advance(ms)

    @precondition(not_writing)
    @rule(size=st.sampled_from([100, 3, 2, 1]), delay_ms=st.sampled_from([0, 3_000]))
    def configure(self, size: int, delay_ms: int) -> None:
        self.crowd.world.configure(max_size=size, initial_rebalance_delay_ms=delay_ms)

    @precondition(writing)
    @rule()
    def write(self) -> None:
        self.crowd.write()

    @precondition(writing)
    @rule(code=st.sampled_from(ERRORS), applied=st.integers(0, 4))
    def fail(self, code: ErrorCode, applied: int) -> None:
        self.crowd.fail(code, applied=applied)

    @precondition(not_writing)
    @rule(chance=st.integers(0, 3))
    def take_over(self, chance: int) -> None:
        if chance == 0:
            self.crowd.fail(ErrorCode.NOT_COORDINATOR)

    @invariant()
    def holds(self) -> None:
        self.crowd.check()

    def teardown(self) -> None:
        """When c4 has gone and the others follow the protocol, the group becomes stable."""
        crowd = self.crowd
        crowd.world.configure(max_size=100)
        clients = [client for client in crowd.clients if client.name != "c4"]
        for client in clients:
            client.protocols = ORDINARY
            client.rebalance_ms = 20_000
        # First joins that nobody waits for any more take five minutes to go.
        crowd.live(clients, 500_000)
        generation = crowd.world.group.generation
        crowd.live(clients, 120_000)
        assert crowd.world.group.state() == "Stable"
        assert crowd.world.group.generation == generation, "it rebalances for no reason"
        ids = sorted(client.member_id for client in clients)
        assert sorted(crowd.world.group.members.ids()) == ids
        for client in clients:
            assert client.generation == generation
            assert client.assignment is not None
            # A static member may have come back since, under another id.
            owner = client.assignment.decode().partition(":")[2]
            assert owner == client.member_id or owner.startswith(f"{client.instance}-")


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
