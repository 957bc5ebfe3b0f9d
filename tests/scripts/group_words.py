"""The words of the scripts about groups: commands in text, tables in text.

    claim SHARDS · release SHARDS [to AGENT]
    change GROUP [KIND] BEFORE>EPOCH [body=TEXT] [+MEMBER@EPOCH[=TEXT] ...] [-MEMBER ...]
    delete group GROUP [without offsets]
    commit GROUP [MEMBER@EPOCH] PLACE=OFFSET[:METADATA] ...
    delete offsets GROUP PLACE ... · expire offsets GROUP RETENTION_MS PLACE ...
    set group GROUP CONFIG=VALUE ... · set topic TOPIC CONFIG=VALUE ...    (CONFIG- removes one)
    show groups | claims | offsets GROUP | configs

SHARDS: "all", or what they hold: numbers and ids of groups. KIND: "classic" (if left out) or
"consumer". BEFORE: "new" or an epoch. PLACE: TOPIC/PARTITION. Metadata are one word.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from coordinator.commands.entries import Command, Outcome
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupKind,
    GroupMember,
    OffsetsCommitted,
    ReleaseShards,
    SetGroupConfigs,
    SetTopicConfigs,
    ShardsClaimed,
)
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from coordinator.machine.machine import Machine
from coordinator.tables.groups import shard_of
from protocol.types import INCARNATION_NONE
from tests.kit.script import runs
from tests.scripts.names import Names, Place


@dataclass
class GroupWords:
    machine: Machine
    names: Names

    def commands(self) -> Mapping[str, Callable[..., Command]]:
        topics = self.names.topics
        return {
            "claim": lambda *words: ClaimShards(_shards(words)),
            "release": self._release,
            "change": _change,
            "delete group": lambda name, *rest: DeleteGroup(name, rest == ("without", "offsets")),
            "commit": self._commit,
            "delete offsets": lambda name, *places: DeleteOffsets(name, self._places(places)),
            "expire offsets": lambda name, retention_ms, *places: ExpireOffsets(
                name, int(retention_ms), self._places(places)
            ),
            "set group": lambda name, *words: SetGroupConfigs(name, _changes(words)),
            "set topic": lambda name, *words: SetTopicConfigs(topics[name], _changes(words)),
        }

    def tables(self) -> Mapping[str, Callable[..., Iterator[str]]]:
        return {
            "show groups": self._show_groups,
            "show claims": self._show_claims,
            "show offsets": self._show_offsets,
            "show configs": self._show_configs,
        }

    def told(self, command: Command, outcome: Outcome) -> str | None:
        """None: the outcome is not one of groups."""
        match outcome:
            case ShardsClaimed(shards):
                return f"holds: {_told_shards(shards)}"
            case OffsetsCommitted(errors):
                assert isinstance(command, CommitOffsets | CommitTransactionOffsets)
                return "committed: " + ", ".join(
                    f"{self.names.of_place(row.topic_id, row.partition)} {error.name}"
                    for row, error in zip(command.offsets, errors, strict=True)
                )
        return None

    def _release(self, *words: str) -> ReleaseShards:
        if "to" not in words:
            return ReleaseShards(_shards(words), INCARNATION_NONE)
        *shards, _, successor = words
        return ReleaseShards(_shards(shards), self.names.agents[successor])

    def _commit(self, group_id: str, *words: str) -> CommitOffsets:
        member_id, epoch = "", EPOCH_NONE
        if words and "=" not in words[0]:
            member_id, epoch = member(words[0])
            words = words[1:]
        return CommitOffsets(group_id, member_id, epoch, committed(words, self.names))

    def _places(self, words: tuple[str, ...]) -> tuple[Place, ...]:
        return tuple(map(self.names.place, words))

    def _show_groups(self) -> Iterator[str]:
        groups = self.machine.groups
        rows = [row for shard in range(GROUP_SHARDS) for row in groups.of_shard(shard)]
        assert len(rows) == len(groups)
        for row in sorted(rows, key=lambda row: row.group_id):
            body = f", body {row.body.decode()}" if row.body else ""
            offsets = f", {len(row.offsets)} offsets" if len(row.offsets) else ""
            offsets += f", {row.offsets.pending_count} waiting" if row.offsets.pending_count else ""
            members = f"empty since {row.empty_since_ms}"
            if row.members:
                members = " ".join(
                    f"{member_id}@{member.epoch}"
                    + (f"={member.body.decode()}" if member.body else "")
                    for member_id, member in row.members.items()
                )
            kind = row.kind.name.lower()
            yield f"{row.group_id}: {kind}, epoch {row.epoch}{body}, {members}{offsets}"

    def _show_claims(self) -> Iterator[str]:
        groups = self.machine.groups
        for name, incarnation in self.names.agents.items():
            if shards := groups.held_by(incarnation):
                yield f"{name}: {_told_shards(shards)}"
        free = [shard for shard in range(GROUP_SHARDS) if groups.holder(shard) is None]
        yield f"free: {_told_shards(tuple(free))}"

    def _show_offsets(self, group_id: str) -> Iterator[str]:
        row = self.machine.groups.get(group_id)
        if row is None:
            yield "no such group"
            return
        for topic_id in row.offsets.topics():
            for partition, committed in row.offsets.of_topic(topic_id):
                metadata = f" {committed.metadata}" if committed.metadata else ""
                place = self.names.of_place(topic_id, partition)
                yield f"{place}: {committed.offset}{metadata}, at {committed.committed_ms}"
        for producer_id, (_, waiting) in row.offsets.pending():
            assert row.offsets.has_pending(waiting.topic_id, waiting.partition)
            place = self.names.of_place(waiting.topic_id, waiting.partition)
            yield f"{place}: {waiting.offset} waits for {producer_id}"

    def _show_configs(self) -> Iterator[str]:
        groups = self.machine.groups
        for group_id in groups.groups_with_configs():
            yield f"group {group_id}: {_told_configs(groups.configs(group_id))}"
        for topic in self.machine.topics:
            if topic.configs:
                yield f"topic {topic.name}: {_told_configs(topic.configs)}"


def member(word: str) -> tuple[str, int]:
    """Of MEMBER@EPOCH."""
    member_id, _, epoch = word.rpartition("@")
    return member_id, int(epoch)


def committed(words: tuple[str, ...], names: Names) -> tuple[CommittedOffset, ...]:
    """Of PLACE=OFFSET[:METADATA] ..."""
    offsets = []
    for word in words:
        place, _, rest = word.partition("=")
        offset, _, metadata = rest.partition(":")
        offsets.append(CommittedOffset(*names.place(place), int(offset), -1, metadata))
    return tuple(offsets)


def _shards(words: tuple[str, ...] | list[str]) -> tuple[int, ...]:
    if [*words] == ["all"]:
        return tuple(range(GROUP_SHARDS))
    return tuple(sorted({int(word) if word.isdigit() else shard_of(word) for word in words}))


def _change(group_id: str, *rest: str) -> ChangeGroup:
    words = [*rest]
    kind = GroupKind.CLASSIC
    if words[0] in {"classic", "consumer"}:
        kind = GroupKind[words.pop(0).upper()]
    before, _, epoch = words.pop(0).partition(">")
    body, put, removed = b"", [], []
    for word in words:
        if word.startswith("body="):
            body = word.removeprefix("body=").encode()
        elif word.startswith("+"):
            who, _, member_body = word[1:].partition("=")
            put.append(GroupMember(*member(who), member_body.encode()))
        else:
            assert word.startswith("-"), word
            removed.append(word[1:])
    return ChangeGroup(
        group_id=group_id,
        kind=kind,
        epoch_before=GROUP_NEW if before == "new" else int(before),
        epoch=int(epoch),
        body=body,
        put=tuple(put),
        removed=tuple(removed),
    )


def _changes(words: tuple[str, ...]) -> tuple[tuple[str, str | None], ...]:
    return tuple(
        (word[:-1], None) if word.endswith("-") else (word.split("=")[0], word.split("=")[1])
        for word in words
    )


def _told_shards(shards: tuple[int, ...]) -> str:
    return " ".join(runs(shards)) or "none"


def _told_configs(configs: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in configs.items())
