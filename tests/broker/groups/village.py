"""Consumers of either protocol in one group, and what must hold of them at every moment.

 - no partition is owned by two, of those whom the group knows (whoever else is fenced, and will
   hear of it with its next request);
 - in a KIP-848 group what a member believes to own is its own in the coordinator's image;
 - a commit that the group lets through is one that the log takes.

`settle` lets everybody do what clients do until nothing changes: then all have what they subscribe
to, and the group is of KIP-848 if a member of that is there, and else a classic one.
"""

from dataclasses import dataclass, field

from broker.groups.classic.group import ClassicGroup
from coordinator.commands.group_commands import GroupKind
from protocol.consumer_protocol import write_assignment
from protocol.errors import ErrorCode
from protocol.types import TopicId
from tests.broker.groups import requests
from tests.broker.groups.consumer.clients import Client as ConsumerClient
from tests.broker.groups.migration.clients import ClassicClient
from tests.broker.groups.pure import GROUP, World, world_of_either
from tests.broker.groups.requests import RANGE

AnyClient = ClassicClient | ConsumerClient
ROUND_MS = 2_000
ROUNDS = 80
"""Enough for sessions and rebalance timeouts of who is gone, and all that comes after."""


@dataclass
class Village:
    world: World = field(default_factory=world_of_either)
    clients: list[AnyClient] = field(default_factory=list)
    ids: int = 0
    commits: bool = True
    """Everybody commits at every moment, which shows that it lives."""

    def running(self) -> list[AnyClient]:
        return [client for client in self.clients if client.is_running]

    def pick(self, index: int) -> AnyClient:
        running = self.running()
        return running[index % len(running)]

    def classics(self) -> list[ClassicClient]:
        return [client for client in self.running() if isinstance(client, ClassicClient)]

    def consumers(self) -> list[ConsumerClient]:
        return [client for client in self.running() if isinstance(client, ConsumerClient)]

    # Who is there.

    def classic(
        self,
        *names: str,
        protocol: str = RANGE,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = 60_000,
    ) -> ClassicClient:
        client = ClassicClient(self.world, names, protocol, instance_id, rebalance_timeout_ms)
        self.clients.append(client)
        return client

    def new_id(self) -> str:
        self.ids += 1
        return f"m{self.ids}"

    def consumer(
        self,
        *names: str,
        regex: str = "",
        instance_id: str | None = None,
        rebalance_timeout_ms: int = 60_000,
    ) -> ConsumerClient:
        client = ConsumerClient(
            self.world, self.new_id(), names, regex, instance_id, rebalance_timeout_ms
        )
        self.clients.append(client)
        return client

    def step(self, client: AnyClient, *, adopts: bool = True) -> None:
        """One step of a client, as it does it when nothing fails."""
        if isinstance(client, ClassicClient):
            client.step()
        else:
            client.beat()
            if adopts and client.is_running:
                client.adopt()

    def go_on(self, client: AnyClient) -> None:
        self.step(client)
        self.check()

    def round(self) -> None:
        """Everybody goes on, after a while."""
        self.world.wait(ROUND_MS)
        self.check()
        for client in self.running():
            if client.is_running:
                self.go_on(client)

    def settle(self, rounds: int = ROUNDS) -> None:
        for _ in range(rounds):
            self.round()
        self.check_settled()

    # What must hold.

    def known(self, client: AnyClient) -> bool:
        """Does the group know the client, under this id?

        A classic client of another generation is fenced: its group may have gone on without it,
        if it is a static member that did not join again (KIP-345).
        """
        group = self.world.group
        if isinstance(group, ClassicGroup):
            return (
                isinstance(client, ClassicClient)
                and client.member_id in group.members
                and client.generation == group.generation
            )
        member = self.world.image.members.get(client.member_id)
        if member is None:
            return False
        if isinstance(client, ClassicClient):
            return member.classic is not None and client.generation == member.epoch
        return member.classic is None

    def held(self, client: AnyClient) -> list[tuple[TopicId, int]]:
        """What it believes to own; a classic one, of topics that there are."""
        if isinstance(client, ClassicClient):
            topics = [topic for topic in self.world.topics if topic.name in client.owned]
            owned = {topic.topic_id: client.owned[topic.name] for topic in topics}
        else:
            owned = client.owned
        return [(topic_id, part) for topic_id, parts in owned.items() for part in parts]

    def check(self) -> None:
        owners: dict[tuple[TopicId, int], AnyClient] = {}
        for client in self.running():
            if not self.known(client):
                continue
            for place in self.held(client):
                other = owners.setdefault(place, client)
                assert other is client, f"{place} is owned by {client} and {other}"
                if not isinstance(self.world.group, ClassicGroup):
                    owner = self.world.image.owners.of(*place)
                    # Who joins anew has not heard yet that it is fenced.
                    joins = isinstance(client, ConsumerClient) and client.epoch == 0
                    assert joins or owner == client.member_id, (place, client, owner)
        if self.commits:
            self._check_commits()

    def _check_commits(self) -> None:
        row = self.world.row
        for client in self.running():
            epoch = client.generation if isinstance(client, ClassicClient) else client.epoch
            if epoch < 0 or not client.member_id:
                continue
            code = self.world.check_commit(client.member_id, epoch, client.instance_id)
            if code is ErrorCode.NONE:
                assert row is not None
                assert row.members[client.member_id].epoch == epoch

    def check_settled(self) -> None:
        world, running = self.world, self.running()
        assert all(self.known(client) for client in running)
        wanted = set()
        for client in running:
            mine = {
                (topic.topic_id, part)
                for topic in world.topics
                if client.subscribes(topic.name)
                for part in range(topic.partition_count)
            }
            assert {*self.held(client)} <= mine
            wanted |= mine
        held = [place for client in running for place in self.held(client)]
        assert sorted(held) == sorted(wanted)
        if not running:
            assert not world.group.has_members()
            assert world.group.state() == "Empty"
            return
        assert world.group.state() == "Stable"
        kind = GroupKind.CONSUMER if self.consumers() else GroupKind.CLASSIC
        assert world.group.kind is kind
        assert world.row is not None
        assert len(world.row.members) == len(running)


def three_classic(protocol: str = RANGE, *, partitions: int = 7) -> Village:
    village = Village()
    village.world.create("t", partitions)
    for _ in range(3):
        village.classic("t", protocol=protocol)
    village.settle(10)
    return village


def leader_alone(
    world: World, *, assignment: bytes | None = None, data: bytes | None = None
) -> str:
    """A classic group of one member, with what it is assigned; its id."""
    metadata = requests.subscription("t") if data is None else data
    asked = world.ask("join", requests.join(GROUP, protocols=((RANGE, metadata),)), version=3)
    world.wait(0)
    member_id: str = asked.response.member_id
    if assignment is None:
        assignment = write_assignment({"t": [0, 1]})
    synced = world.sync(member_id, 1, assignments={member_id: assignment})
    assert synced.error_code == ErrorCode.NONE
    return member_id


def mixed(protocol: str = RANGE) -> Village:
    """Two classic members and one of KIP-848, settled."""
    village = three_classic(protocol, partitions=6)
    first = village.classics()[0]
    first.leave()
    village.clients.remove(first)
    village.consumer("t")
    village.settle(20)
    assert village.world.kinds == ["CONSUMER"]
    return village


def mixed_with_static(protocol: str = RANGE) -> tuple[Village, ConsumerClient]:
    """Two classic members and, of KIP-848, one that is static."""
    village = mixed(protocol)
    (other,) = village.consumers()
    static = village.consumer("t", instance_id="i")
    village.settle(10)
    other.leave(for_good=True)
    village.clients.remove(other)
    return village, static
