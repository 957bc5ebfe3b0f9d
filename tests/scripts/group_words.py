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
    GroupCommand,
    GroupKind,
    GroupMember,
    OffsetsCommitted,
    ReleaseShards,
    SetGroupConfigs,
    SetTopicConfigs,
)
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from coordinator.machine.machine import Machine
from coordinator.tables.groups import GroupRow, Groups, shard_of
from protocol.types import INCARNATION_NONE, Incarnation, TopicId

TopicIds = Mapping[str, TopicId]
Agents = Mapping[str, Incarnation]


def group_command(
    text: str, *, topics: TopicIds, agents: Agents
) -> GroupCommand | SetTopicConfigs | None:
    """None: the text is not about groups."""
    makers: dict[str, Callable[[list[str]], GroupCommand | SetTopicConfigs]] = {
        "claim": lambda words: ClaimShards(_shards(words)),
        "release": lambda words: _release(words, agents),
        "change": _change,
        "delete group": lambda words: DeleteGroup(words[0], words[1:] == ["without", "offsets"]),
        "commit": lambda words: _commit(words, topics),
        "delete offsets": lambda words: DeleteOffsets(words[0], _places(words[1:], topics)),
        "expire offsets": lambda words: ExpireOffsets(
            words[0], int(words[1]), _places(words[2:], topics)
        ),
        "set group": lambda words: SetGroupConfigs(words[0], _changes(words[1:])),
        "set topic": lambda words: SetTopicConfigs(topics[words[0]], _changes(words[1:])),
    }
    words = text.split()
    for length in (2, 1):
        if (make := makers.get(" ".join(words[:length]))) is not None:
            return make(words[length:])
    return None


def _shards(words: list[str]) -> tuple[int, ...]:
    if words == ["all"]:
        return tuple(range(GROUP_SHARDS))
    return tuple(sorted({int(word) if word.isdigit() else shard_of(word) for word in words}))


def _release(words: list[str], agents: Agents) -> ReleaseShards:
    if "to" not in words:
        return ReleaseShards(_shards(words), INCARNATION_NONE)
    *shards, _, successor = words
    return ReleaseShards(_shards(shards), agents[successor])


def _change(words: list[str]) -> ChangeGroup:
    group_id, *words = words
    kind = GroupKind.CLASSIC
    if words[0] in {"classic", "consumer"}:
        kind = GroupKind[words.pop(0).upper()]
    before, _, epoch = words.pop(0).partition(">")
    body, put, removed = b"", [], []
    for word in words:
        if word.startswith("body="):
            body = word.removeprefix("body=").encode()
        elif word.startswith("+"):
            member_id, _, rest = word[1:].rpartition("@")
            member_epoch, _, member_body = rest.partition("=")
            put.append(GroupMember(member_id, int(member_epoch), member_body.encode()))
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


def _commit(words: list[str], topics: TopicIds) -> CommitOffsets:
    group_id, *words = words
    member_id, epoch = "", EPOCH_NONE
    if words and "=" not in words[0]:
        member_id, _, text = words.pop(0).rpartition("@")
        epoch = int(text)
    offsets = []
    for word in words:
        place, _, rest = word.partition("=")
        offset, _, metadata = rest.partition(":")
        ((topic_id, partition),) = _places([place], topics)
        offsets.append(CommittedOffset(topic_id, partition, int(offset), -1, metadata))
    return CommitOffsets(group_id, member_id, epoch, tuple(offsets))


def _places(words: list[str], topics: TopicIds) -> tuple[tuple[TopicId, int], ...]:
    places = [word.rpartition("/") for word in words]
    return tuple((topics[name], int(partition)) for name, _, partition in places)


def _changes(words: list[str]) -> tuple[tuple[str, str | None], ...]:
    return tuple(
        (word[:-1], None) if word.endswith("-") else (word.split("=")[0], word.split("=")[1])
        for word in words
    )


# What is told.


def told_commit(
    command: CommitOffsets | CommitTransactionOffsets, outcome: OffsetsCommitted, topics: TopicIds
) -> str:
    names = {topic_id: name for name, topic_id in topics.items()}
    return ", ".join(
        f"{names[committed.topic_id]}/{committed.partition} {error.name}"
        for committed, error in zip(command.offsets, outcome.errors, strict=True)
    )


def told_shards(shards: tuple[int, ...]) -> str:
    """Ascending numbers, those in a row as first-last."""
    runs: list[list[int]] = []
    for shard in shards:
        if runs and shard == runs[-1][-1] + 1:
            runs[-1].append(shard)
        else:
            runs.append([shard])
    told = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return " ".join(told) or "none"


def show_groups(
    what: str, machine: Machine, *, topics: TopicIds, agents: Agents
) -> Iterator[str] | None:
    """None: there is no such table about groups."""
    groups = machine.groups
    match what.split():
        case ["groups"]:
            return _show_groups(groups)
        case ["claims"]:
            return _show_claims(groups, agents)
        case ["offsets", group_id]:
            return _show_offsets(groups.get(group_id), topics)
        case ["configs"]:
            return _show_configs(machine)
        case _:
            return None


def _show_groups(groups: Groups) -> Iterator[str]:
    rows = [row for shard in range(GROUP_SHARDS) for row in groups.of_shard(shard)]
    assert len(rows) == len(groups)
    for row in sorted(rows, key=lambda row: row.group_id):
        body = f", body {row.body.decode()}" if row.body else ""
        offsets = f", {len(row.offsets)} offsets" if len(row.offsets) else ""
        offsets += f", {row.offsets.pending_count} waiting" if row.offsets.pending_count else ""
        if row.members:
            members = " ".join(
                f"{member_id}@{member.epoch}" + (f"={member.body.decode()}" if member.body else "")
                for member_id, member in row.members.items()
            )
        else:
            members = f"empty since {row.empty_since_ms}"
        kind = row.kind.name.lower()
        yield f"{row.group_id}: {kind}, epoch {row.epoch}{body}, {members}{offsets}"


def _show_claims(groups: Groups, agents: Agents) -> Iterator[str]:
    for name, incarnation in agents.items():
        if shards := groups.held_by(incarnation):
            yield f"{name}: {told_shards(shards)}"
    free = [shard for shard in range(GROUP_SHARDS) if groups.holder(shard) is None]
    yield f"free: {told_shards(tuple(free))}"


def _show_offsets(row: GroupRow | None, topics: TopicIds) -> Iterator[str]:
    names = {topic_id: name for name, topic_id in topics.items()}
    if row is None:
        yield "no such group"
        return
    for topic_id in row.offsets.topics():
        for partition, committed in row.offsets.of_topic(topic_id):
            metadata = f" {committed.metadata}" if committed.metadata else ""
            place = f"{names.get(topic_id, '(deleted)')}/{partition}"
            yield f"{place}: {committed.offset}{metadata}, at {committed.committed_ms}"
    for producer_id, (_, waiting) in row.offsets.pending():
        assert row.offsets.has_pending(waiting.topic_id, waiting.partition)
        place = f"{names.get(waiting.topic_id, '(deleted)')}/{waiting.partition}"
        yield f"{place}: {waiting.offset} waits for {producer_id}"


def _show_configs(machine: Machine) -> Iterator[str]:
    for group_id in machine.groups.groups_with_configs():
        yield f"group {group_id}: {_told_configs(machine.groups.configs(group_id))}"
    for topic in machine.topics:
        if topic.configs:
            yield f"topic {topic.name}: {_told_configs(topic.configs)}"


def _told_configs(configs: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in configs.items())
