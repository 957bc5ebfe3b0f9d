"""The metadata log, readable."""

import json

import pytest

from broker.reports.log_lines import describe, lines
from coordinator.commands.entries import ChunkSpan, Command, CommitChunk, Entry
from coordinator.commands.group_commands import ChangeGroup, SetTopicConfigs
from coordinator.commands.job_commands import DoomObjects, JobKind, RecallPage, RequestJob
from protocol.types import Incarnation, TopicId, position
from storage.formats.spans import Item, ObjectId, ObjectKind
from tests.coordinator.golden.samples import COMMANDS, GROUP_COMMANDS, PLAIN_COMMANDS

AT = position(1, 42)
BY = Incarnation(position(1, 7))
TOPIC = TopicId(bytes(15) + b"\x01")

CHUNK = CommitChunk(
    1, 900, (ChunkSpan(TOPIC, 0, 0, (Item(0, 100, 2, 5), Item(8, 50, 1, 6, 7, 0, 3, 4))),)
)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{index}-{type(command).__name__}")
        for index, command in enumerate(COMMANDS)
    ],
)
def test_every_command_is_told_in_json_and_in_one_line(command: Command) -> None:
    described = describe(AT, 9, Entry(BY, 4, 1000, (command,)))
    head, line = lines(json.loads(json.dumps(described)))
    assert head == "1:42 by 1:7 n=4 clock_ms=1000"
    assert line.split()[0] == type(command).__name__


def test_items_of_a_chunk_are_summed_up_per_span() -> None:
    described = describe(AT, 9, Entry(BY, 4, 1000, (CHUNK,)))
    (span,) = described["commands"][0]["spans"]
    assert (span["items"], span["records"], span["length"]) == (2, 3, 158)
    assert span["transactional"] == 1


def test_what_only_a_coordinator_reads_is_told_by_its_length() -> None:
    (change,) = (
        command
        for command in GROUP_COMMANDS
        if isinstance(command, ChangeGroup) and command.group_id == "billing"
    )
    described = describe(AT, 9, Entry(BY, 4, 1000, (change,)))
    assert lines(described)[1].strip() == (
        "ChangeGroup group_id=billing kind=CONSUMER epoch_before=7 epoch=8 body_bytes=2"
        " put=[{member_id=m-1 epoch=8 body_bytes=4}, {member_id=m-2 epoch=-2 body_bytes=0}]"
        " removed=[m-0]"
    )


def test_a_config_that_is_removed_is_told_as_null() -> None:
    command = SetTopicConfigs(TOPIC, (("a", "1"), ("b", None), ("c", "")))
    described = describe(AT, 9, Entry(BY, 4, 1000, (command,)))
    assert lines(described)[1].endswith('configs=[[a, 1], [b, null], [c, ""]]')


def test_the_entry_that_opens_says_so() -> None:
    described = describe(AT, 9, Entry(Incarnation(0), 0, 1000, (PLAIN_COMMANDS[0],)))
    assert lines(described)[0] == "1:42 opens n=0 clock_ms=1000"


def test_objects_are_told_by_their_keys_and_jobs_by_their_names() -> None:
    doomed = ObjectId(Incarnation(9), 5, ObjectKind.SEGMENT)
    described = describe(AT, 9, Entry(BY, 4, 1000, (DoomObjects(7, (doomed,)),)))
    told = "DoomObjects grace_ms=7 objects=[segments/0000000000000009/00000005]"
    assert lines(described)[1].strip() == told
    described = describe(AT, 9, Entry(BY, 4, 1000, (RequestJob(JobKind.COMPACT),)))
    assert lines(described)[1].strip() == "RequestJob job=COMPACT"


def test_a_page_that_is_recalled_is_told_by_its_length() -> None:
    described = describe(AT, 9, Entry(BY, 4, 1000, (RecallPage(TOPIC, 1, 5, bytes(900)),)))
    assert lines(described)[1].endswith("partition=1 base_offset=5 body_bytes=900")
