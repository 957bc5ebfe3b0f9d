"""The rule of shares, and ledgers of what clients have made."""

import pytest

from broker.calls.shares import (
    LOOKS_BEFORE_REFUSAL,
    OWNERS_MAX,
    Flow,
    Ledger,
    Owner,
    is_nearly_full,
    may_take,
    owner_of,
)
from protocol.errors import ErrorCode, KafkaError

ONE, TWO = Owner("10.0.0.1"), Owner("10.0.0.2")


def _fill(most: int, owners: int) -> list[int]:
    """What each of so many owners has when all have taken by turns what they may."""
    held = [0] * owners
    refused = 0
    while refused < owners:
        refused = 0
        for at in range(owners):
            if may_take(held[at], used=sum(held), most=most):
                held[at] += 1
            else:
                refused += 1
    return held


@pytest.mark.promise("P15")
def test_one_alone_gets_nine_tenths() -> None:
    assert _fill(1_000, 1) == [900]


def test_two_that_want_all_get_as_much_each_and_leave_something() -> None:
    one, two = _fill(1_900, 2)
    assert abs(one - two) <= 1
    assert 1_790 <= one + two < 1_900


@pytest.mark.parametrize("owners", [5, 50, 500])
def test_many_that_want_all_leave_something_for_one_more(owners: int) -> None:
    held = _fill(10_000, owners)
    assert max(held) - min(held) <= 1
    assert may_take(0, used=sum(held), most=10_000)


@pytest.mark.parametrize("most", [1, 2, 5, 9])
def test_a_bound_of_less_than_ten_is_anybodys(most: int) -> None:
    assert _fill(most, 1) == [most]


def test_nobody_is_refused_before_nine_tenths_are_taken() -> None:
    for most in (10, 99, 1_000):
        for used in range(most):
            if not is_nearly_full(used, most):
                assert used < 0.9 * most
                assert may_take(used, used=used, most=most)


def test_nothing_is_given_that_is_not_there() -> None:
    assert not may_take(0, used=10, most=10)
    assert not may_take(0, 11, used=0, most=10)


def test_many_at_once_are_judged_as_if_taken_one_by_one() -> None:
    for held in range(0, 100, 7):
        for wanted in range(1, 100 - held):
            one_by_one = all(
                may_take(held + more, used=held + more, most=100) for more in range(wanted)
            )
            assert may_take(held, wanted, used=held, most=100) == one_by_one


@pytest.mark.parametrize(
    ("peer", "owner"),
    [
        ("10.1.2.3:40000", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6:40000", "2001:db8:1:2::/64"),
        ("fe80::1%eth0:40000", "fe80::/64"),
        ("/run/socket", ""),
        ("", ""),
    ],
)
def test_an_owner_is_an_address_or_a_network_of_ipv6(peer: str, owner: str) -> None:
    assert owner_of(peer) == owner


class _World:
    """Things with their sizes, as the machine has them."""

    def __init__(self, most: int) -> None:
        self.sizes: dict[str, int] = {}
        self.ledger: Ledger[str] = Ledger(
            most,
            "things",
            size_of=lambda thing: self.sizes.get(thing, 0),
            used=lambda: sum(self.sizes.values()),
        )

    def make(self, owner: Owner, thing: str, size: int = 1) -> bool:
        if not self.ledger.admits(owner, size):
            return False
        self.sizes[thing] = size
        self.ledger.note(owner, thing)
        return True


def test_one_who_made_nearly_all_gets_no_more_and_another_does() -> None:
    world = _World(100)
    made = [world.make(ONE, f"one-{at}") for at in range(100)]
    assert made == [True] * 90 + [False] * 10
    assert world.make(TWO, "two")


def test_what_is_gone_counts_no_more() -> None:
    world = _World(100)
    for at in range(90):
        assert world.make(ONE, f"one-{at}")
    world.sizes = {f"others-{at}": 1 for at in range(95)}
    assert world.make(ONE, "another")
    assert world.ledger.held_by(ONE) == 1


def test_what_has_grown_counts_as_what_it_is() -> None:
    world = _World(100)
    assert world.make(ONE, "one", 10)
    world.sizes["one"] = 92
    assert not world.make(ONE, "more")
    assert world.make(TWO, "two")


def test_what_is_on_its_way_counts_until_it_has_come_or_not() -> None:
    world = _World(100)
    for _ in range(90):
        assert world.ledger.admits(ONE)
        world.ledger.begin(ONE)
    assert not world.ledger.admits(ONE)
    for at in range(90):
        world.ledger.settle(ONE, f"refused-{at}", made=False)
    assert world.ledger.held_by(ONE) == 0
    assert len(world.ledger) == 0
    assert world.ledger.admits(ONE)


def test_a_ledger_forgets_what_is_gone_also_of_owners_that_never_come_again() -> None:
    world = _World(1_000_000)
    for at in range(5_000):
        assert world.make(ONE, f"one-{at}")
    world.sizes.clear()
    for _ in range(5_000):
        assert world.make(TWO, "same")
    assert world.ledger.held_by(ONE) == 0
    assert len(world.ledger) == 1


def test_a_refusal_looks_at_a_bounded_number_of_things() -> None:
    world = _World(4 * LOOKS_BEFORE_REFUSAL)
    for at in range(3 * LOOKS_BEFORE_REFUSAL):
        assert world.make(ONE, f"one-{at}")
    looked: list[str] = []
    world.ledger._size_of = lambda thing: looked.append(thing) or 1
    world.ledger._used = lambda: 4 * LOOKS_BEFORE_REFUSAL
    assert not world.ledger.admits(ONE)
    assert len(looked) == LOOKS_BEFORE_REFUSAL


def test_without_others_the_whole_is_what_the_ledger_has() -> None:
    ledger: Ledger[str] = Ledger(10, "letters", size_of=len)
    ledger.note(ONE, "123456789")
    assert not ledger.admits(ONE)
    assert ledger.admits(TWO)


def test_a_refusal_says_who_has_how_much_of_what() -> None:
    world = _World(20)
    for at in range(18):
        assert world.make(ONE, f"one-{at}")
    with pytest.raises(KafkaError, match="has 18 things of at most 20") as refused:
        world.ledger.require(ONE)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


class _Log:
    """Something that is filled, and cut."""

    def __init__(self) -> None:
        self.used = 0
        self.flow = Flow(1_000, used=lambda: self.used)

    def write(self, owner: Owner, byte_count: int = 10) -> bool:
        if not self.flow.put(owner, byte_count):
            return False
        self.used += byte_count
        return True


def test_who_filled_the_log_waits_and_another_writes_on() -> None:
    log = _Log()
    written = [log.write(ONE) for _ in range(100)]
    assert written == [True] * 90 + [False] * 10
    assert log.write(TWO)


def test_who_waits_for_the_log_goes_on_when_it_was_cut() -> None:
    log = _Log()
    for _ in range(91):
        log.write(ONE)
    assert log.used == 900
    log.used = 890
    assert log.write(ONE)


def test_a_log_that_others_filled_takes_what_there_is_room_for() -> None:
    log = _Log()
    log.used = 990
    assert log.write(ONE)


@pytest.mark.promise("P15")
def test_a_flow_knows_a_bounded_number_of_owners() -> None:
    log = _Log()
    for at in range(3 * OWNERS_MAX):
        log.flow.put(Owner(str(at)), 1)
    assert len(log.flow) <= OWNERS_MAX
