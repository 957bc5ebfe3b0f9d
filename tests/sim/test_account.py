"""The account of records sees what must not be: each kind in a log of a few lines."""

from collections.abc import Callable

import pytest

from tests.kit.requests import Partition
from tests.sim.account import Line, RecordAccount, Shown

P: Partition = ("t", 0)
A, B, C = (Line(ident, b"k", ident, 1000) for ident in (b"a", b"b", b"c"))
TOMBSTONE = Line(b"d", b"k", None, 1000)


def shown(*lines: Line, start: int = 0) -> Shown:
    return Shown(start, start + len(lines), dict(enumerate(lines, start)))


def judged(
    befalls: Callable[[RecordAccount], None], *final: Shown, compacted: bool = False
) -> list[str]:
    """What the account says when records A to C were sent, then this, and agents end up with that."""
    account = RecordAccount(dense=set() if compacted else {"t"}, compacted={"t"})
    account.compacted = {"t"} if compacted else set()
    account.retention_ms["t"] = -1
    account.sent[P] = {line.ident: line for line in (A, B, C, TOMBSTONE)}
    befalls(account)
    agents = {f"agent{index}": {P: each} for index, each in enumerate(final)}
    return [*account.violations, *account.verdict(agents)]


def acknowledged(*lines: Line, at: int = 0) -> Callable[[RecordAccount], None]:
    return lambda account: account.acknowledge(P, at, [*lines])


def refused_and_seen(account: RecordAccount) -> None:
    account.refused[P].add(b"a")
    account.saw("reader", P, 0, A)


def acknowledged_twice(account: RecordAccount) -> None:
    account.acknowledge(P, 0, [A])
    account.acknowledge(P, 5, [A])


def two_at_one_place(account: RecordAccount) -> None:
    account.saw("reader", P, 0, A)
    account.saw("another", P, 0, B)


def starts(*offsets: int, now_ms: int = 0, **limits: int) -> Callable[[RecordAccount], None]:
    def befalls(account: RecordAccount) -> None:
        account.acknowledge(P, 0, [A, B])
        account.retention_ms.update(limits)
        for offset in offsets:
            account.starts_at("asker", P, offset, least=account.starts[P], now_ms=now_ms)

    return befalls


@pytest.mark.parametrize(
    ("befalls", "final", "told"),
    [
        (acknowledged(A, B), [shown(A)], "1 was acknowledged"),
        (acknowledged(A, B), [shown(A, C)], "is not at 1"),
        (acknowledged(A), [shown(A), shown(A, B)], "ends at [1, 2]"),
        (acknowledged(A), [Shown(0, 2, {0: A})], "nothing at 1"),
        (acknowledged(A, at=-1), [shown()], "were acknowledged at -1"),
        (acknowledged_twice, [shown(A)], "before at"),
        (two_at_one_place, [shown(A)], "before Line"),
        (refused_and_seen, [shown(A)], "which was refused (P4)"),
        (lambda account: account.saw("r", P, 0, A._replace(key=b"x")), [], "never sent"),
        (lambda account: account.ends_at("asker", P, 1, least=2), [], "before at 2 (P8)"),
        (starts(2, 1, t=10), [], "starts at 1, before at 2 (P8)"),
        (starts(1), [], "is gone"),
        (starts(1, t=500, now_ms=1400), [], "is gone"),
    ],
)
def test_what_must_not_be_with_dense_records_is_seen(
    befalls: Callable[[RecordAccount], None], final: list[Shown], told: str
) -> None:
    assert told in "\n".join(judged(befalls, *final))


@pytest.mark.parametrize(
    ("befalls", "final"),
    [
        (acknowledged(A, B), [shown(A, B), shown(A, B)]),
        (starts(1, t=500, now_ms=1600), [shown(B, start=1)]),
        (lambda account: account.ends_at("asker", P, 2, least=2), []),
    ],
)
def test_what_may_be_with_dense_records_is_well(
    befalls: Callable[[RecordAccount], None], final: list[Shown]
) -> None:
    assert judged(befalls, *final) == []


def test_a_wish_to_delete_moves_the_log_start() -> None:
    def befalls(account: RecordAccount) -> None:
        account.wished[P] = 1
        starts(1)(account)

    assert judged(befalls, shown(B, start=1)) == []


@pytest.mark.parametrize(
    ("last", "there", "is_well"),
    [
        (B, {1: B}, True),
        (B, {0: A}, False),
        (B, {}, False),
        (TOMBSTONE, {}, True),
        (TOMBSTONE, {0: A}, False),
    ],
)
def test_a_compacted_topic_keeps_the_newest_record_of_a_key(
    last: Line, there: dict[int, Line], is_well: bool
) -> None:
    def befalls(account: RecordAccount) -> None:
        # A tombstone of unknown fate may take all along: there is none.
        if last != TOMBSTONE:
            del account.sent[P][TOMBSTONE.ident]
        account.acknowledge(P, 0, [A, last])

    found = judged(befalls, Shown(0, 2, there), compacted=True)
    assert (found == []) is is_well


def test_a_tombstone_stays_where_none_is_old_enough_to_go() -> None:
    def befalls(account: RecordAccount) -> None:
        account.keeps_tombstones = True
        account.acknowledge(P, 0, [A, TOMBSTONE])

    assert judged(befalls, Shown(0, 2, {1: TOMBSTONE}), compacted=True) == []
    assert judged(befalls, Shown(0, 2, {}), compacted=True) != []
