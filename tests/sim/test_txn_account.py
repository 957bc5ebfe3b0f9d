"""The account of transactions sees what must not be: each kind in a log of a few lines."""

import pytest

from coordinator.commands.transaction_commands import (
    EndTransaction,
    GiveUpTransaction,
    Marked,
    TransactionEnded,
)
from protocol.records import Record, build_batch
from protocol.types import TopicId
from tests.kit.agents import World
from tests.kit.requests import Partition
from tests.sim.txn_account import ANOTHER_HAS_BEGUN, Ending, Line, Told, TxnAccount
from tests.sim.txn_readers import Pass, committed_values
from txn.transactions import State

A, B = ("a", 0), ("b", 0)


def begun(account: TxnAccount, **values: Partition) -> Told:
    """A transaction with records "number.index" in these partitions, all of them acknowledged."""
    told = account.begin("tx", "writer", account.process(), 0.0)
    for index, partition in enumerate(values.values()):
        told.sent[f"{told.number}.{index}".encode()] = partition
    return told


def records(
    told: Told, partition: Partition, first_offset: int, producer_id: int = 7
) -> list[Line]:
    values = [value for value, place in told.sent.items() if place == partition]
    for offset, value in enumerate(values, start=first_offset):
        told.acked[value] = offset
    return [
        Line(offset, producer_id, 0, value) for offset, value in enumerate(values, first_offset)
    ]


def marker(
    account: TxnAccount,
    partition: Partition,
    offset: int,
    *,
    commit: bool,
    cause: str,
    at: int = 1,
    epoch_stays: bool = False,
) -> Line:
    account.endings[(*partition, offset)] = Ending(at, 0, cause, "tx", epoch_stays)
    return Line(offset, 7, 0, None, commit)


def ended(account: TxnAccount, told: Told, *, commit: bool) -> None:
    told.commit_asked, told.abort_asked = commit, not commit
    account.ended(told, commit=commit, group_id=None)


def read_all(account: TxnAccount, logs: dict[Partition, list[Line]]) -> None:
    """A read_committed reader saw what it should; histories want one."""
    process = account.process()
    polled = {
        ("a", "b").index(partition[0]) * 2: [
            [offset, int(value.split(b".")[0]) * 1000 + int(value.split(b".")[1])]
            for offset, value in committed_values(lines)
        ]
        for partition, lines in logs.items()
    }
    account.recorder.invoke(process, "poll", [["poll"]])
    account.recorder.complete(process, "ok", "poll", [["poll", polled]])


def verdict(account: TxnAccount, logs: dict[Partition, list[Line]]) -> str:
    read_all(account, logs)
    return "\n".join(account.verdict(logs))


def two_partitions(
    *, commit: bool, marks: tuple[bool, bool], cause: str = "commit", at: tuple[int, int] = (1, 1)
) -> str:
    account = TxnAccount()
    told = begun(account, a=A, b=B)
    logs = {A: records(told, A, 0), B: records(told, B, 0)}
    for partition, mark, position in zip((A, B), marks, at, strict=True):
        logs[partition].append(marker(account, partition, 1, commit=mark, cause=cause, at=position))
    ended(account, told, commit=commit)
    return verdict(account, logs)


def test_a_transaction_that_is_committed_everywhere_is_well() -> None:
    assert two_partitions(commit=True, marks=(True, True)) == ""


def test_a_transaction_that_is_aborted_everywhere_is_well() -> None:
    assert two_partitions(commit=False, marks=(False, False), cause="abort") == ""


def test_a_transaction_is_not_committed_here_and_aborted_there() -> None:
    assert "is torn" in two_partitions(commit=True, marks=(True, False))


def test_a_transaction_does_not_end_at_two_positions() -> None:
    found = two_partitions(commit=True, marks=(True, True), at=(1, 2))
    assert "ended more than once" in found


@pytest.mark.parametrize(
    ("stays", "found"),
    [((True, False), ""), ((False, False), "ended more than once"), ((True, True), "ended more")],
)
def test_what_comes_late_may_begin_an_aborted_transaction_anew_only_in_an_epoch_that_ends_with_it(
    stays: tuple[bool, bool], found: str
) -> None:
    account = TxnAccount()
    told = begun(account, a=A, b=B)
    logs = {A: records(told, A, 0), B: records(told, B, 0)}
    for partition, cause, at, stay in zip(
        (A, B), ("abort", "takeover"), (1, 2), stays, strict=True
    ):
        line = marker(account, partition, 1, commit=False, cause=cause, at=at, epoch_stays=stay)
        logs[partition].append(line)
    ended(account, told, commit=False)
    assert found in verdict(account, logs)
    assert bool(found) == bool(verdict(account, logs))


def test_an_acknowledged_commit_is_not_aborted() -> None:
    found = two_partitions(commit=True, marks=(False, False), cause="timeout")
    assert "acknowledged as committed, and is aborted" in found


def test_a_commit_that_was_never_asked_for_is_seen() -> None:
    found = two_partitions(commit=False, marks=(True, True))
    assert "which was never asked for" in found


def test_an_abort_that_was_never_asked_for_is_seen() -> None:
    account = TxnAccount()
    told = begun(account, a=A)
    logs = {A: [*records(told, A, 0), marker(account, A, 1, commit=False, cause="abort")]}
    assert "which was never asked for" in verdict(account, logs)


def test_a_record_that_slid_into_the_next_transaction_is_seen() -> None:
    account = TxnAccount()
    first, second = begun(account, a=A), begun(account, a=A)
    ended(account, first, commit=True)
    ended(account, second, commit=True)
    both = [*records(first, A, 0), *records(second, A, 1)]
    logs = {A: [*both, marker(account, A, 2, commit=True, cause="commit")]}
    assert "ends the transactions [1, 2]" in verdict(account, logs)


def test_an_acknowledged_record_that_is_gone_is_seen() -> None:
    account = TxnAccount()
    told = begun(account, a=A, b=B)
    logs = {A: [*records(told, A, 0), marker(account, A, 1, commit=True, cause="commit")], B: []}
    records(told, B, 0)
    ended(account, told, commit=True)
    assert "has lost [b'1.1']" in verdict(account, logs)


def test_a_transaction_that_stays_open_is_seen() -> None:
    account = TxnAccount()
    told = begun(account, a=A)
    assert "are still open" in verdict(account, {A: records(told, A, 0)})


def test_a_reader_that_was_shown_something_else_is_seen() -> None:
    committed = [(0, b"1.0"), (2, b"1.1"), (3, b"1.2")]
    assert Pass("reader", 1, 3, [(2, b"1.1")]).check(committed) == []
    assert Pass("reader", 1, 4, [(2, b"1.1")]).check(committed)
    assert Pass("reader", 0, 3, [(2, b"1.1"), (0, b"1.0")]).check(committed)


def test_a_record_shown_before_its_commit_was_asked_for_is_seen() -> None:
    account = TxnAccount()
    told = begun(account, a=A)
    account.shown("reader", b"1.0")
    assert account.violations
    told.commit_asked = True
    account.violations.clear()
    account.shown("reader", b"1.0")
    assert not account.violations


def test_an_offset_that_goes_back_is_seen() -> None:
    account = TxnAccount()
    told = begun(account, a=A)
    told.offsets_acked = told.commit_asked = True
    account.ended(told, commit=True, group_id="g")
    account.offset_shown("g", 1, account.offsets_least["g"])
    assert not account.violations
    account.offset_shown("g", -1, account.offsets_least["g"])
    assert account.violations


def refused(*, late: bool, committed: bool) -> str:
    """A client is refused the commit that it asks for again, maybe behind a late abort of nothing."""
    account = TxnAccount()
    told = begun(account, a=A)
    told.commit_asked, told.abort_asked = True, not committed
    cause = "commit" if committed else "abort"
    logs = {A: [*records(told, A, 0), marker(account, A, 1, commit=committed, cause=cause)]}
    if late:
        account.keep_emptied(EndTransaction("tx", 7, 0, commit=False, proof=None), ())
    if not account.is_known_refusal(told, 7, 0):
        return "a surprise"
    return verdict(account, logs)


def test_a_commit_refused_behind_a_late_abort_of_nothing_is_well_when_it_is_there() -> None:
    assert refused(late=True, committed=True) == ""


def test_a_commit_refused_behind_a_late_abort_of_nothing_that_is_not_there_is_seen() -> None:
    assert "is not committed" in refused(late=True, committed=False)


def test_a_commit_that_is_known_refusal_otherwise_is_a_surprise() -> None:
    assert refused(late=False, committed=True) == "a surprise"


def test_an_abort_of_something_excuses_no_refusal() -> None:
    account = TxnAccount()
    end = EndTransaction("tx", 7, 0, commit=False, proof=None)
    account.keep_emptied(end, ())
    account.keep_emptied(end, (Marked(TopicId(bytes(16)), 0, 1),))
    assert not account.is_known_refusal(begun(account, a=A), 7, 0)


def test_words_about_another_transaction_are_seen_where_there_was_none() -> None:
    account = TxnAccount()
    account.begun["tx", 1] = 0.0, 1000
    account.begun["other", 2] = 0.0, 1000
    account.refused("writer", "tx", "an earlier batch of the producer failed")
    assert not account.violations
    account.refused("writer", "tx", ANOTHER_HAS_BEGUN)
    (told,) = account.violations
    assert told.startswith("writer was told that another transaction of the producer has begun")
    account.begun["tx", 2] = 1.0, 1000
    account.violations.clear()
    account.refused("writer", "tx", ANOTHER_HAS_BEGUN)
    assert not account.violations


async def test_a_partition_that_goes_on_in_the_epoch_before_is_seen() -> None:
    account = TxnAccount()
    async with World().agents("one") as (agent,):
        topic = await agent.create_topic("t")
        batch = build_batch([Record(value=b"1")], producer_id=7, producer_epoch=3, base_sequence=0)
        await agent.produce("t", batch)
        command = GiveUpTransaction("tx", 7, 3, 1, timed_out=True)
        marked = (Marked(topic.topic_id, 0, 1),)
        for epoch in (3, 4):
            ended = TransactionEnded(7, epoch, State.COMPLETE_ABORT, marked)
            account._look_at_fences(agent.machine, command, ended)
    assert account.violations == [
        "tx has epoch 4, and partition 0 takes batches of epoch 3 behind its marker (P11)"
    ]
