"""One step of a KIP-848 member towards its target (docs/design/groups.md §6, step 3)."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from broker.groups.consumer.members import (
    Member,
    MemberState,
    Owners,
    Partitions,
    share,
    union,
    within,
)
from broker.groups.consumer.reconciliation import reconcile
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId

STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS

A = TopicId(b"a" * 16)
B = TopicId(b"b" * 16)


def held(*numbers: int, topic: TopicId = A) -> Partitions:
    return {topic: frozenset(numbers)} if numbers else {}


def free(topic: TopicId, partition: int) -> bool:
    return True


def taken(topic: TopicId, partition: int) -> bool:
    return False


def test_a_member_of_the_targets_epoch_is_left_alone():
    member = Member("m", 5, 4, assigned=held(1), target=held(1))
    assert reconcile(member, epoch=5, owned={}, is_free=free) is member


def test_what_the_target_takes_is_to_be_revoked_first_and_the_epoch_stays():
    member = Member("m", 5, 4, assigned=held(1, 2), target=held(2, 3))
    after = reconcile(member, epoch=6, owned=None, is_free=free)
    assert after == member._replace(
        state=UNREVOKED, previous_epoch=5, assigned=held(2), revoking=held(1)
    )


@pytest.mark.parametrize("owned", [None, held(1), held(1, 2)])
def test_while_it_still_has_what_it_must_revoke_it_waits(owned: Partitions | None):
    member = Member("m", 5, 5, state=UNREVOKED, assigned=held(2), revoking=held(1), target=held(2))
    assert reconcile(member, epoch=6, owned=owned, is_free=free) is member


def test_when_it_has_revoked_it_goes_on_and_takes_what_is_free():
    member = Member(
        "m", 5, 5, state=UNREVOKED, assigned=held(2), revoking=held(1), target=held(2, 3)
    )
    after = reconcile(member, epoch=6, owned=held(2), is_free=free)
    assert after == member._replace(
        state=STABLE, epoch=6, previous_epoch=5, assigned=held(2, 3), revoking={}
    )


def test_what_it_does_not_have_any_more_need_not_be_revoked():
    member = Member("m", 5, 4, assigned=held(1, 2), target=held(2))
    after = reconcile(member, epoch=6, owned=held(2), is_free=free)
    assert (after.state, after.epoch, after.assigned) == (STABLE, 6, held(2))


def test_it_waits_for_what_is_not_free_in_the_new_epoch():
    member = Member("m", 5, 4, assigned=held(1), target=held(1, 2, 3))
    after = reconcile(member, epoch=6, owned=None, is_free=lambda topic, number: number == 2)
    assert (after.state, after.epoch, after.assigned) == (UNRELEASED, 6, held(1, 2))
    assert reconcile(after, epoch=6, owned=None, is_free=taken) is after
    done = reconcile(after, epoch=6, owned=None, is_free=free)
    assert (done.state, done.epoch, done.previous_epoch) == (STABLE, 6, 6)
    assert done.assigned == held(1, 2, 3)


def test_a_member_that_waits_goes_on_to_the_next_target():
    member = Member("m", 6, 5, state=UNRELEASED, assigned=held(1, 2), target=held(2, 4))
    after = reconcile(member, epoch=7, owned=None, is_free=free)
    assert (after.state, after.epoch, after.revoking) == (UNREVOKED, 6, held(1))


def test_what_it_unsubscribes_from_while_it_revokes_is_to_be_revoked_too():
    member = Member(
        "m", 5, 5, state=UNREVOKED, assigned={**held(2), **held(0, topic=B)}, revoking=held(1)
    )
    after = reconcile(member, epoch=7, owned=None, is_free=free, subscribed={B})
    assert after == member._replace(assigned=held(0, topic=B), revoking=held(1, 2))
    assert reconcile(member, epoch=7, owned=None, is_free=free, subscribed={A, B}) is member


def test_of_a_member_in_an_unknown_state_only_nothing_can_be_believed():
    member = Member("m", 5, 4, state=MemberState.UNKNOWN, assigned=held(1), target=held(1, 2))
    for owned in (None, held(1)):
        with pytest.raises(KafkaError) as error:
            reconcile(member, epoch=6, owned=owned, is_free=free)
        assert error.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    after = reconcile(member, epoch=6, owned={}, is_free=free)
    assert (after.state, after.epoch, after.assigned) == (STABLE, 6, held(1, 2))


partitions = st.dictionaries(
    st.sampled_from([A, B]), st.frozensets(st.integers(0, 4), min_size=1), max_size=2
)


@settings(deadline=None)
@given(
    state=st.sampled_from([STABLE, UNREVOKED, UNRELEASED]),
    assigned=partitions,
    revoking=partitions,
    target=partitions,
    others=partitions,
    owned=st.none() | partitions,
    epoch=st.integers(5, 6),
    subscribed=st.none() | st.sets(st.sampled_from([A, B])),
)
def test_a_step_takes_only_what_is_free_and_lets_go_only_what_is_given_up(
    state: MemberState,
    assigned: Partitions,
    revoking: Partitions,
    target: Partitions,
    others: Partitions,
    owned: Partitions | None,
    epoch: int,
    subscribed: set[TopicId] | None,
):
    assume(not share(assigned, revoking))
    assume(state is UNREVOKED or not revoking)
    mine = union(assigned, revoking)
    assume(not share(mine, others))
    before = Member("m", 5, 4, state=state, assigned=assigned, revoking=revoking, target=target)

    after = reconcile(
        before,
        epoch=epoch,
        owned=owned,
        is_free=lambda topic, number: number not in others.get(topic, frozenset()),
        subscribed=subscribed,
    )

    assert not share(after.assigned, others)
    assert not share(after.assigned, after.revoking)
    assert all(after.assigned.values())
    assert all(after.revoking.values())
    still_mine = union(after.assigned, after.revoking)
    for topic, numbers in mine.items():
        released = numbers - still_mine.get(topic, frozenset())
        if released:
            assert owned is not None
            assert not released & owned.get(topic, frozenset())
    if after is before:
        return
    assert after.previous_epoch == before.epoch
    if after.state is UNREVOKED:
        assert after.epoch == before.epoch
        assert after.revoking
        assert within(still_mine, mine)
    else:
        assert after.epoch == epoch
        assert within(after.assigned, target)
        assert (after.state is STABLE) == (after.assigned == target)


@settings(deadline=None)
@given(st.lists(st.tuples(partitions, partitions), max_size=4))
def test_owners_are_who_took_and_did_not_release(taken_by: list[tuple[Partitions, Partitions]]):
    owners = Owners()
    members: list[Member] = []
    expected: dict[tuple[TopicId, int], str] = {}
    for index, (assigned, revoking) in enumerate(taken_by):
        member = Member(f"m{index}", assigned=assigned, revoking=revoking)
        mine = union(assigned, revoking)
        if share(assigned, revoking) or any(share(mine, other.assigned) for other in members):
            continue
        if any(share(mine, other.revoking) for other in members):
            continue
        owners.take(member)
        members.append(member)
        for topic, numbers in mine.items():
            expected |= {(topic, number): member.member_id for number in numbers}
    for topic in (A, B):
        for number in range(5):
            assert owners.of(topic, number) == expected.get((topic, number))
    for member in members:
        owners.release(member)
    assert all(owners.of(topic, number) is None for topic in (A, B) for number in range(5))


def test_a_partition_of_two_members_is_a_bug_that_is_noticed():
    owners = Owners()
    owners.take(Member("m", assigned=held(1, 2)))
    with pytest.raises(AssertionError, match="two owners"):
        owners.take(Member("n", revoking=held(2)))
