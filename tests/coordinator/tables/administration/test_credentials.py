"""Users of SCRAM in the log: made, changed, deleted, refused; and what snapshots keep of them."""

from dataclasses import replace

import pytest

from coordinator.commands.credential_commands import (
    CREDENTIALS_MAX,
    DeleteScramCredential,
    ScramMechanism,
    UpsertScramCredential,
)
from coordinator.commands.entries import DONE, Rejected
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import dump, restore
from coordinator.tables.administration import credentials as table_module
from coordinator.tables.administration.credentials import ScramCredential
from protocol.errors import ErrorCode
from tests.coordinator.machine.story import with_agents
from tests.coordinator.snapshot.compare import differences

SHA_256, SHA_512 = ScramMechanism
KEYS = {SHA_256: 32, SHA_512: 64}


def upsert(user="alice", mechanism=SHA_512, iterations=4096, *, salt=b"salt", fill=1):
    keys = [bytes([fill + index]) * KEYS[mechanism] for index in range(2)]
    return UpsertScramCredential(user, mechanism, iterations, salt, *keys)


def error(outcome) -> ErrorCode:
    return outcome.error if isinstance(outcome, Rejected) else ErrorCode.NONE


def test_a_user_has_a_credential_for_each_mechanism():
    story, agent = with_agents()
    assert story.do(agent, upsert()) == DONE
    assert story.do(agent, upsert(mechanism=SHA_256)) == DONE
    found = story.machine.credentials
    assert [*found.users()] == ["alice"]
    assert [*found.of_user("alice")] == [SHA_512, SHA_256]
    assert found.get("alice", SHA_512) == ScramCredential(4096, b"salt", b"\1" * 64, b"\2" * 64)
    assert len(found) == 2


def test_a_credential_takes_the_place_of_the_one_before():
    story, agent = with_agents()
    story.do(agent, upsert())
    story.do(agent, upsert(iterations=8192, fill=7))
    found = story.machine.credentials.get("alice", SHA_512)
    assert found == ScramCredential(8192, b"salt", b"\7" * 64, b"\x08" * 64)
    assert len(story.machine.credentials) == 1


def test_a_user_goes_with_its_last_credential():
    story, agent = with_agents()
    story.do(agent, upsert())
    story.do(agent, upsert(mechanism=SHA_256))
    assert story.do(agent, DeleteScramCredential("alice", SHA_512)) == DONE
    assert [*story.machine.credentials.users()] == ["alice"]
    assert story.do(agent, DeleteScramCredential("alice", SHA_256)) == DONE
    assert [*story.machine.credentials.users()] == []
    assert len(story.machine.credentials) == 0


@pytest.mark.parametrize(("user", "mechanism"), [("bob", SHA_512), ("alice", SHA_256)])
def test_what_is_not_there_cannot_be_deleted(user, mechanism):
    story, agent = with_agents()
    story.do(agent, upsert())
    outcome = story.do(agent, DeleteScramCredential(user, mechanism))
    assert error(outcome) is ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    "command",
    [
        upsert(""),
        upsert("a" * 256),
        upsert(iterations=4095),
        upsert(iterations=16385),
        upsert(salt=b""),
        upsert(salt=bytes(1025)),
        replace(upsert(), stored_key=bytes(32)),
        replace(upsert(), server_key=bytes(65)),
        replace(upsert(mechanism=SHA_256), stored_key=bytes(64), server_key=bytes(64)),
    ],
)
def test_what_cannot_be_a_credential_is_refused_and_changes_nothing(command):
    story, agent = with_agents()
    assert error(story.do(agent, command)) is ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert story.machine.credentials.is_untouched


def test_there_are_so_many_credentials_and_no_more(monkeypatch):
    assert CREDENTIALS_MAX == 100_000
    monkeypatch.setattr(table_module, "CREDENTIALS_MAX", 2)
    story, agent = with_agents()
    story.do(agent, upsert("a"))
    story.do(agent, upsert("b"))
    assert error(story.do(agent, upsert("c"))) is ErrorCode.POLICY_VIOLATION
    assert error(story.do(agent, upsert("b", iterations=5000))) is ErrorCode.NONE


def test_the_seed_of_what_is_made_up_never_changes():
    story, agent = with_agents()
    assert story.machine.credentials.first is None
    story.do(agent, upsert(salt=b"first", iterations=5000))
    first = story.machine.credentials.first
    assert first is not None
    assert (first.iterations, first.salt, len(first.seed)) == (5000, b"first", 32)
    story.do(agent, DeleteScramCredential("alice", SHA_512))
    story.do(agent, upsert("bob", fill=9))
    assert story.machine.credentials.first == first


# Snapshots.


def snapshot(machine: Machine) -> bytes:
    return b"".join(dump(machine))


def test_users_are_in_the_snapshot_and_come_back_in_their_order():
    story, agent = with_agents()
    for user in ("zoe", "alice", "bob"):
        story.do(agent, upsert(user))
        story.do(agent, upsert(user, SHA_256))
    restored = Machine()
    restore(restored, [snapshot(story.machine)])
    assert differences(restored, story.machine) == []
    assert [*restored.credentials.users()] == ["zoe", "alice", "bob"]


def test_the_snapshot_of_a_cluster_that_never_had_users_is_one_of_the_release_before():
    story, agent = with_agents()
    story.topic(agent)
    empty = snapshot(story.machine)
    story.do(agent, upsert())
    with_users = snapshot(story.machine)
    assert len(with_users) > len(empty)
    assert b"alice" not in empty


def test_users_of_a_machine_before_do_not_outlive_a_restore():
    story, agent = with_agents()
    empty = snapshot(story.machine)
    story.do(agent, upsert())
    restore(story.machine, [empty])
    assert story.machine.credentials.is_untouched
    assert len(story.machine.credentials) == 0


def test_the_part_of_the_snapshot_that_has_users_is_written_as_ever():
    """The release that first had them wrote these bytes, behind everything else."""
    story, agent = with_agents()
    story.do(agent, upsert(mechanism=SHA_256))
    assert story.machine.credentials.first is not None
    seed = story.machine.credentials.first.seed
    first = b"\1" + b"\x80\x20" + b"\x04salt" + b"\x20" + seed
    row = b"\x05alice" + b"\1" + b"\1" + b"\x80\x20" + b"\x04salt"
    row += b"\x20" + b"\1" * 32 + b"\x20" + b"\2" * 32
    rows = b"\1" + row
    written = bytes([len(first)]) + first + bytes([len(rows)]) + rows
    assert snapshot(story.machine).endswith(written)
