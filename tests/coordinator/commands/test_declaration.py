"""What is declared of commands and outcomes besides their fields."""

from dataclasses import dataclass
from typing import Any, get_args

import pytest

from coordinator.commands.declaration import DECLARATIONS, DIGESTED, READERS, command, outcome
from coordinator.commands.entries import Command, Outcome


def names(**wanted: object) -> set[str]:
    return {
        kind.__name__
        for kind, declared in DECLARATIONS.items()
        if all(getattr(declared, name) == value for name, value in wanted.items())
    }


def test_every_command_is_declared_and_nothing_else():
    assert DECLARATIONS.keys() == {*get_args(Command)}
    assert len(READERS) == len(DECLARATIONS)


def test_every_outcome_is_declared_and_nothing_else():
    assert DIGESTED.keys() == {*get_args(Outcome)}


def test_commands_that_bound_the_log_are_appended_over_its_budget():
    assert names(bounds_log=True) >= {
        "Close",
        "Tick",
        "PurgePartitions",
        "ExpireHeldRecords",
        "ClaimJobs",
        "ReleaseJobs",
        "ReportJob",
        "RequestJob",
        "BeginSnapshot",
        "PublishSnapshot",
        "ExpireRecords",
        "DropRows",
        "ReplaceRows",
        "SpillRows",
        "RecallPage",
        "DoomObjects",
        "ForgetObjects",
    }
    assert names(bounds_log=False) >= {"CommitChunk", "CommitOffsets", "TrimLogs", "RegisterSchema"}


def test_commands_of_an_idle_cluster_are_no_reason_for_a_snapshot():
    assert names(changes_state=False) >= {
        "Open",
        "Close",
        "Tick",
        "ClaimJobs",
        "ReleaseJobs",
        "ReportJob",
        "RequestJob",
        "BeginSnapshot",
        "PublishSnapshot",
        "DoomObjects",
        "ForgetObjects",
    }
    assert names(changes_state=True) >= {"CommitChunk", "CreateTopic", "PurgePartitions", "Unpin"}


@pytest.mark.parametrize("declared", [command(3), outcome(2)], ids=["a number", "a tag"])
def test_what_is_in_logs_already_is_given_to_nothing_else(declared: Any):
    @dataclass(frozen=True, slots=True)
    class Another:
        pass

    with pytest.raises(AssertionError, match="is taken"):
        declared(Another)
    assert Another not in DECLARATIONS
    assert Another not in DIGESTED


def test_a_field_of_an_outcome_that_the_digest_forgets_is_refused():
    @dataclass(frozen=True, slots=True)
    class Counted:
        first: int
        count: int

    with pytest.raises(AssertionError, match="Counted has"):
        outcome(200, "q")(Counted)
    assert Counted not in DIGESTED
