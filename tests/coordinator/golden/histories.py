"""The history whose entries, digests and snapshot are kept: a drawn one, and what is rarely drawn.

It is drawn once: what is kept is held against the code, and not against this module.
"""

from coordinator.commands.entries import Close, Command, DeleteTopic, Rejected
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    GroupKind,
)
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    ForgetObjects,
    JobKind,
    PublishSnapshot,
    RequestJob,
    Trim,
    TrimLogs,
)
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    CommitTransactionOffsets,
    GiveUpTransaction,
    InitProducer,
)
from protocol.types import Incarnation
from tests.coordinator.histories import history
from tests.coordinator.machine.story import Story, batch, plain, span
from txn.transactions import OF_EPOCH


def everything() -> Story:
    """Fills every table."""
    story = history(8, steps=1500)
    for row in list(story.machine.incarnations):
        story.do(story.open("golden-closer"), Close(row.incarnation, row.last_n))
    agent = story.open("golden-agent")
    _leave_a_transaction_open(story, agent)
    _delete_a_topic(story, agent)
    _free_a_writers_slot(story, agent)
    return story


def _free_a_writers_slot(story: Story, agent: Incarnation) -> None:
    """Objects of an agent that is gone are doomed and forgotten to the last."""
    gone = story.open("golden-gone")
    topic_id = story.topic(gone, "golden-gone")
    story.commit(gone, span(topic_id, plain()))
    row = story.machine.incarnations.get(gone)
    assert row is not None
    _must(story, agent, Close(gone, row.last_n))
    _must(story, agent, ClaimJobs(tuple(JobKind)))
    _must(story, agent, TrimLogs((Trim(topic_id, 0, -1),)))
    for _ in range(3):
        _must(story, agent, BeginSnapshot())
        begun = story.machine.snapshots.begun
        assert begun is not None
        key = f"snapshots/{begun.position:016x}"
        _must(story, agent, PublishSnapshot(begun.position, begun.digest, key))
    unused = [each.object_id for each in story.machine.objects.unreferenced()]
    objects = tuple(each for each in unused if each.incarnation == gone)
    assert objects
    _must(story, agent, DoomObjects(0, objects))
    _must(story, agent, ForgetObjects(objects))
    _must(story, agent, BeginSnapshot())
    _must(story, agent, RequestJob(JobKind.COMPACT))


def _leave_a_transaction_open(story: Story, agent: Incarnation) -> None:
    """One that has offsets of a group; another is given up; a group comes and goes."""
    _must(story, agent, ClaimShards(tuple(range(GROUP_SHARDS))))
    topic_id = story.topic(agent, "golden", partitions=2)
    _must(story, agent, ChangeGroup("golden", GroupKind.CLASSIC, GROUP_NEW, 0, b"", (), ()))
    _must(story, agent, DeleteGroup("golden", only_without_offsets=False))
    offsets = (CommittedOffset(topic_id, 1, 7, 0, "tag"),)
    _must(story, agent, CommitOffsets("golden", "", EPOCH_NONE, offsets))
    for name in ("golden-given-up", "golden-open"):
        _must(story, agent, InitProducer(name, 60_000, -1, -1))
        row = story.machine.transactions.get(name)
        assert row is not None
        producer = (row.txn_metadata.producer_id, row.txn_metadata.epoch)
        places = ((topic_id, 0), (topic_id, 1))
        _must(story, agent, AddToTransaction(name, *producer, 1, 7, places, ("golden",)))
        story.commit(agent, span(topic_id, batch(producer[0], 0, epoch=producer[1], instance=1)))
        commit = CommitTransactionOffsets("golden", "", EPOCH_NONE, *producer, OF_EPOCH, offsets)
        _must(story, agent, commit)
        if name == "golden-given-up":
            _must(story, agent, GiveUpTransaction(name, *producer, 1, timed_out=True))
    refused = story.do(agent, InitProducer("golden-open", 60_000, producer[0] + 1, 0))
    assert isinstance(refused, Rejected)


def _delete_a_topic(story: Story, agent: Incarnation) -> None:
    topic_id = story.topic(agent, "golden-deleted", partitions=3)
    story.commit(agent, span(topic_id, plain()))
    _must(story, agent, DeleteTopic(topic_id))
    while (purge := story.machine.next_purge()) is not None:
        _must(story, agent, purge)
    late = story.topic(agent, "golden-not-purged", partitions=2)
    story.commit(agent, span(late, plain()))
    _must(story, agent, DeleteTopic(late))


def _must(story: Story, agent: Incarnation, command: Command) -> None:
    outcome = story.do(agent, command)
    assert not isinstance(outcome, Rejected), f"{command}: {outcome}"
