"""Consumers of the classic protocol, as clients have them: eager ones and cooperative ones.

An eager one gives up everything before it joins. A cooperative one says what it has, gives up what
it is not assigned any more, and joins again (KIP-429). Whoever is told to lead assigns: eager ones
by range, cooperative ones evenly, but nothing that somebody still has. `owned` changes when an
answer is heard, which is at once: how long answers travel is not looked at here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.groups.consumer.assignors import Member, assign
from protocol.consumer_protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from protocol.errors import ErrorCode
from protocol.messages import JoinGroupResponse, JoinGroupResponseMember, SyncGroupResponse
from tests.broker.groups import requests
from tests.broker.groups.pure import GROUP, World
from tests.broker.groups.requests import COOPERATIVE, RANGE

Held = dict[str, set[int]]
"""Partitions by topic name."""

TRY_AGAIN = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


@dataclass
class ClassicClient:
    world: World
    names: tuple[str, ...]
    protocol: str = RANGE
    instance_id: str | None = None
    rebalance_timeout_ms: int = 60_000
    member_id: str = ""
    generation: int = -1
    owned: Held = field(default_factory=dict)
    must_join: bool = True
    is_waiting: bool = False
    is_running: bool = True
    joins: int = 0

    @property
    def is_cooperative(self) -> bool:
        return self.protocol == COOPERATIVE

    def subscribes(self, topic_name: str) -> bool:
        return topic_name in self.names

    def step(self) -> None:
        """Whatever it has to do next: join, or a heartbeat."""
        assert self.is_running
        if self.is_waiting:
            return
        if self.must_join:
            self.join()
            return
        code = self.world.heartbeat(self.member_id, self.generation, self.instance_id)
        if code is not ErrorCode.NONE:
            self.fails(code)

    def fails(self, code: int) -> None:
        """What an error of any answer makes of it."""
        if code in TRY_AGAIN:
            self.must_join = True
            if not self.is_cooperative:
                self.owned = {}
        elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self.owned = {}
            self.generation = -1
            self.must_join = True
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        else:
            assert code == ErrorCode.FENCED_INSTANCE_ID, code
            self.crash()

    # JoinGroup.

    def join(self) -> None:
        if not self.is_cooperative:
            self.owned = {}
        self.joins += 1
        subscription = Subscription(
            topics=[*self.names],
            user_data=None,
            owned={name: sorted(numbers) for name, numbers in self.owned.items()},
            generation_id=self.generation,
        )
        request = requests.join(
            GROUP,
            self.member_id,
            instance_id=self.instance_id,
            rebalance_ms=self.rebalance_timeout_ms,
            protocols=((self.protocol, write_subscription(subscription)),),
        )
        self.is_waiting = True
        self.world.ask("join", request, version=9, hear=self._joined)

    def _joined(self, response: JoinGroupResponse) -> None:
        self.is_waiting = False
        if not self.is_running:
            return
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif response.error_code != ErrorCode.NONE:
            self.fails(response.error_code)
        else:
            assert response.protocol_type == "consumer"
            assert response.protocol_name == self.protocol
            self.member_id = response.member_id
            self.generation = response.generation_id
            self.must_join = False
            leads = response.leader == self.member_id and not response.skip_assignment
            self.is_waiting = True
            self._sync(self._assigned(response.members) if leads else {})

    # SyncGroup.

    def _sync(self, assignments: Mapping[str, bytes]) -> None:
        request = requests.sync(
            GROUP,
            self.member_id,
            self.generation,
            instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=assignments,
        )
        self.world.ask("sync", request, version=5, hear=self._synced)

    def _synced(self, response: SyncGroupResponse) -> None:
        self.is_waiting = False
        if not self.is_running:
            return
        if response.error_code != ErrorCode.NONE:
            self.fails(response.error_code)
            return
        assert response.protocol_name == self.protocol
        before = self.owned
        assigned = read_assignment(response.assignment) if response.assignment else {}
        self.owned = {name: {*numbers} for name, numbers in assigned.items() if numbers}
        if self.is_cooperative:
            self.must_join = any(
                numbers - self.owned.get(name, set()) for name, numbers in before.items()
            )

    def _assigned(self, members: list[JoinGroupResponseMember]) -> dict[str, bytes]:
        """What it assigns as the leader."""
        topics = self.world.topics
        ids = {topic.name: topic.topic_id for topic in topics}
        names = {topic.topic_id: topic.name for topic in topics}
        subscriptions = {each.member_id: read_subscription(each.metadata) for each in members}
        owner: dict[tuple[str, int], str] = {}
        for member_id in sorted(subscriptions, key=lambda id: -subscriptions[id].generation_id):
            for name, numbers in subscriptions[member_id].owned.items():
                for number in numbers:
                    owner.setdefault((name, number), member_id)
        found = assign(
            "uniform" if self.is_cooperative else "range",
            [
                Member(
                    member_id,
                    None,
                    frozenset(ids[name] for name in subscription.topics if name in ids),
                    {
                        ids[name]: frozenset(numbers)
                        for name, numbers in subscription.owned.items()
                        if name in ids
                    },
                )
                for member_id, subscription in subscriptions.items()
            ],
            {topic.topic_id: topic.partition_count for topic in topics},
        )
        return {
            member_id: write_assignment(
                {
                    names[topic]: [
                        number
                        for number in sorted(numbers)
                        if owner.get((names[topic], number), member_id) == member_id
                    ]
                    for topic, numbers in assignment.items()
                }
            )
            for member_id, assignment in found.items()
        }

    # The end.

    def leave(self) -> None:
        """Static members do not say that they go."""
        self.owned = {}
        if self.instance_id is None and self.member_id:
            self.world.leave(self.member_id)
        self.crash()

    def crash(self) -> None:
        self.is_running = False
        self.owned = {}
