"""A classic group over a machine: what it writes goes into a log and is applied, as in an agent.

Commands pass through the log's codec. Every token is answered exactly once, by a response of its
request. The log may fail: a Write is then lost, cut, or applied without anybody hearing of it,
and the group is made anew from its row.
"""

from dataclasses import dataclass, field
from typing import Any

from broker.config.group_settings import GroupSettings
from broker.groups.classic.group import ClassicGroup
from broker.groups.group.effects import Answer, Caller, Effects, Write
from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import DONE, Entry
from coordinator.commands.group_commands import ChangeGroup, ClaimShards
from coordinator.tables.groups import GROUP_SHARDS, GroupRow
from protocol.errors import ErrorCode
from protocol.messages import JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from tests.coordinator.machine.story import Story

GROUP = "g"
RESPONSES = {
    "join": JoinGroupResponse,
    "sync": SyncGroupResponse,
    "leave": LeaveGroupResponse,
}


@dataclass
class World:
    settings: GroupSettings = field(default_factory=GroupSettings)
    now_ms: int = 0
    story: Story = field(default_factory=Story)
    open: dict[int, str] = field(default_factory=dict)
    """Tokens that wait for an answer, and what for."""
    writing: Write | None = None
    token: int = 0
    fresh_ids: int = 0

    def __post_init__(self) -> None:
        self.agent = self.story.open()
        self.story.do(self.agent, ClaimShards((*range(GROUP_SHARDS),)))
        self.group = ClassicGroup.new(GROUP, self.settings)

    @property
    def row(self) -> GroupRow | None:
        return self.story.machine.groups.get(GROUP)

    # Requests.

    def ask(
        self,
        what: str,
        request: Any,
        *,
        version: int,
        client_id: str = "c",
        host: str = "/10.0.0.1",
    ) -> tuple[int, list[Answer]]:
        """The token of a request, and what is answered in the same call, to whomever."""
        assert self.writing is None
        self.token += 1
        self.fresh_ids += 1
        self.open[self.token] = what
        caller = Caller(self.token, version, client_id, host, self.now_ms, str(self.fresh_ids))
        token = self.token
        return token, self.take(getattr(self.group, what)(caller, request))

    def take(self, effects: Effects) -> list[Answer]:
        """Answers, checked. A Write waits for `write` or `fail`."""
        assert self.writing is None
        answers = []
        for index, effect in enumerate(effects):
            if isinstance(effect, Write):
                assert index == len(effects) - 1, "a Write comes last"
                self.writing = effect
            else:
                what = self.open.pop(effect.token)
                assert type(effect.response) is RESPONSES[what]
                answers.append(effect)
        return answers

    # The clock.

    def tick(self) -> list[Answer]:
        return self.take(self.group.tick(self.now_ms))

    def next_tick_ms(self, until_ms: int) -> int | None:
        """When the shell would call `tick` next, not after `until_ms`."""
        deadline_ms = self.group.deadline_ms()
        if self.writing is not None or deadline_ms is None or deadline_ms > until_ms:
            return None
        return max(deadline_ms, self.now_ms)

    # The log.

    def apply(self, commands: tuple[ChangeGroup, ...]) -> None:
        for command in commands:
            # As it would stand in an entry of its own.
            entry = Entry(self.agent, 1, self.now_ms, (command,))
            (read,) = decode_entry(encode_entry(entry)).commands
            assert self.story.do(self.agent, read, clock_ms=self.now_ms) == DONE

    def write(self) -> list[Answer]:
        """The log takes the Write."""
        assert self.writing is not None
        commands, self.writing = self.writing.commands, None
        self.apply(commands)
        return self.take(self.group.written(self.now_ms))

    def fail(self, code: ErrorCode, *, applied: int = 0) -> list[Answer]:
        """The log takes `applied` commands of the Write, and the agent hears of none."""
        if self.writing is not None:
            commands, self.writing = self.writing.commands, None
            self.apply(commands[:applied])
        answers = self.take(list(self.group.abandon(code)))
        assert not self.open, "abandoned, and somebody still waits"
        self.group = self.loaded()
        return answers

    def loaded(self) -> ClassicGroup:
        """What another agent has in place of this one."""
        if self.row is None:
            return ClassicGroup.new(GROUP, self.settings)
        return ClassicGroup.loaded(self.row, self.settings, self.now_ms)
