"""Clients of KIP-848 as they should be: they report, revoke, adopt, repeat, give up, come back.

What a client was told and has not adopted yet when it says what it has, it forgets unless the
answer tells it again. The coordinator takes what is not reported for revoked (as Kafka's does), so
a client that reported, lost the answer, and then adopted what it had been told before would read
what is another's by now, until its next heartbeat fences it. No coordinator can see that coming.
"""

from dataclasses import dataclass, field
from typing import Any

from broker.groups.consumer.subscriptions import resolve
from protocol.errors import ErrorCode
from protocol.messages import ConsumerGroupHeartbeatResponse
from protocol.types import TopicId
from tests.broker.groups.pure import World, partitions_of

Held = dict[TopicId, set[int]]

START_AGAIN = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
}
END = {ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID}
"""Its instance id is another's: a consumer ends with that."""


@dataclass
class Client:
    """One process; `owned` is what it believes that it may read."""

    world: World
    member_id: str
    names: tuple[str, ...]
    regex: str = ""
    instance_id: str | None = None
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    owned: Held = field(default_factory=dict)
    assigned: Held = field(default_factory=dict)
    """What the last answer with an assignment gave it."""
    reported: Held | None = None
    """What it last said that it has; None: it must say everything."""
    is_running: bool = True

    def subscribes(self, topic_name: str) -> bool:
        by_regex = self.regex and resolve(self.regex, [topic_name])
        return topic_name in self.names or bool(by_regex)

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if self.reported is None or self.epoch == 0:
            fields |= {
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "subscribed_topic_names": [*self.names],
                "subscribed_topic_regex": self.regex,
                "owned": self.owned,
            }
        elif self.owned != self.reported:
            fields["owned"] = self.owned
        return fields

    def beat(self, *, loses_answer: bool = False) -> None:
        assert self.is_running
        if self.epoch == 0:
            self.owned = {}
        says = {topic: {*numbers} for topic, numbers in self.owned.items()}
        response = self.world.beat(self.member_id, self.epoch, **self.fields())
        if self.reported is None or says != self.reported:
            self.assigned = {topic: {*numbers} for topic, numbers in says.items()}
        if loses_answer or response.error_code == ErrorCode.REQUEST_TIMED_OUT:
            self.reported = None
        elif response.error_code == ErrorCode.NONE:
            self.reported = says
            self.learn(response)
        elif response.error_code in START_AGAIN:
            self.start_again()
        else:
            assert response.error_code in END, response
            self.crash()

    def learn(self, response: ConsumerGroupHeartbeatResponse) -> None:
        assert response.member_id == self.member_id
        assert response.member_epoch >= max(self.epoch, 1), "a member's epoch goes back"
        told = partitions_of(response)
        if self.epoch == 0:
            assert told is not None, "who joins is told what it has"
        self.epoch = response.member_epoch
        if told is not None:
            self.assigned = told

    def revoke(self) -> None:
        """Give up what it is not assigned any more."""
        kept = {
            topic: numbers & self.assigned.get(topic, set())
            for topic, numbers in self.owned.items()
        }
        self.owned = {topic: numbers for topic, numbers in kept.items() if numbers}

    def adopt(self) -> None:
        """Give up, then take, whatever it is assigned; before it is in the group that is nothing."""
        if self.epoch > 0:
            self.owned = {topic: {*numbers} for topic, numbers in self.assigned.items()}

    def start_again(self) -> None:
        self.epoch = 0
        self.owned = {}
        self.assigned = {}
        self.reported = None

    def subscribe(self, names: tuple[str, ...], regex: str) -> None:
        self.names, self.regex = names, regex
        self.reported = None

    def leave(self, *, for_good: bool) -> None:
        """It gives everything up, then tells; it does not care about the answer."""
        self.owned = {}
        away = self.instance_id is not None and not for_good
        self.world.beat(self.member_id, -2 if away else -1, instance_id=self.instance_id)
        self.crash()

    def crash(self) -> None:
        self.is_running = False
        self.start_again()
