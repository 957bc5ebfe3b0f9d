"""The assignors: everything to exactly one, even, sticky, the same whatever the order."""

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.groups.consumer.assignors import Member, assign
from broker.groups.consumer.uniform import Assignment
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId

NAMES = ["uniform", "range"]
A, B, C, D = (TopicId(bytes([number]) * 16) for number in range(1, 5))
TOPICS = [A, B, C, D]

Owned = tuple[TopicId, int]
Group = tuple[list[Member], dict[TopicId, int]]
"""Members, and how many partitions topics have."""


def member(
    name: str,
    *topics: TopicId,
    assigned: Mapping[TopicId, frozenset[int]] | None = None,
    instance: str | None = None,
) -> Member:
    return Member(name, instance, frozenset(topics), assigned or {})


def partitions_of(assignment: Mapping[TopicId, frozenset[int]]) -> set[Owned]:
    return {(topic, number) for topic, numbers in assignment.items() for number in numbers}


def owners(found: Mapping[str, Assignment]) -> dict[Owned, str]:
    owner: dict[Owned, str] = {}
    for name, assignment in found.items():
        for partition in partitions_of(assignment):
            assert partition not in owner, f"{partition} belongs to {name} and {owner[partition]}"
            owner[partition] = name
    return owner


def sizes(found: Mapping[str, Assignment]) -> dict[str, int]:
    return {name: len(partitions_of(assignment)) for name, assignment in found.items()}


def again(members: Sequence[Member], found: Mapping[str, Assignment]) -> list[Member]:
    return [one._replace(assigned=found[one.member_id]) for one in members]


@st.composite
def groups(
    draw: st.DrawFn, *, alike: bool = False, members_max: int = 7, size_max: int = 9
) -> Group:
    """Members that had anything: also what is gone, or what they no longer subscribe to."""
    partitions = {topic: draw(st.integers(1, size_max)) for topic in draw(st.permutations(TOPICS))}
    del partitions[draw(st.sampled_from(TOPICS))]
    count = draw(st.integers(1, members_max))
    all_of = draw(st.frozensets(st.sampled_from(TOPICS)))
    had: list[dict[TopicId, set[int]]] = [{} for _ in range(count)]
    for topic in TOPICS:
        for number in range(draw(st.integers(0, size_max + 1))):
            place = draw(st.one_of(st.none(), st.integers(0, count - 1)))
            if place is not None:
                had[place].setdefault(topic, set()).add(number)
    members = [
        Member(
            member_id=f"m{place}",
            instance_id=draw(st.one_of(st.none(), st.just(f"i{count - place}"))),
            subscribed=all_of if alike else draw(st.frozensets(st.sampled_from(TOPICS))),
            assigned={topic: frozenset(numbers) for topic, numbers in had[place].items()},
        )
        for place in range(count)
    ]
    return members, partitions


@pytest.mark.parametrize("name", NAMES)
@given(group=groups())
def test_every_partition_of_a_subscribed_topic_goes_to_exactly_one_of_its_subscribers(
    name: str, group: Group
) -> None:
    members, partitions = group
    found = assign(name, members, partitions)
    subscribed = {one.member_id: one.subscribed for one in members}
    owner = owners(found)
    assert found.keys() == subscribed.keys()
    assert owner.keys() == {
        (topic, number)
        for topic in set().union(*subscribed.values()) & partitions.keys()
        for number in range(partitions[topic])
    }
    assert all(topic in subscribed[name] for (topic, _), name in owner.items())
    assert all(numbers for assignment in found.values() for numbers in assignment.values())


@pytest.mark.parametrize("name", NAMES)
@given(group=groups())
def test_assigning_again_from_the_result_changes_nothing(name: str, group: Group) -> None:
    members, partitions = group
    found = assign(name, members, partitions)
    assert assign(name, again(members, found), partitions) == found


@pytest.mark.parametrize("name", NAMES)
@given(group=groups(), seed=st.integers())
def test_the_order_in_which_members_and_topics_are_given_does_not_matter(
    name: str, group: Group, seed: int
) -> None:
    members, partitions = group
    lots = random.Random(seed)
    shuffled = [
        one._replace(assigned=dict(lots.sample(list(one.assigned.items()), len(one.assigned))))
        for one in lots.sample(members, len(members))
    ]
    sizes = dict(lots.sample(list(partitions.items()), len(partitions)))
    assert assign(name, shuffled, sizes) == assign(name, members, partitions)


HASHING = """
from broker.groups.consumer.assignors import Member, assign
topics = [bytes([number]) * 16 for number in range(30)]
members = [
    Member(f"m{n}", None, frozenset(topics[n % 5 :: 1 + n % 3]), {topics[n]: frozenset({0, 1})})
    for n in range(20)
]
sizes = {topic: 1 + topic[0] % 7 for topic in topics}
for name in ("uniform", "range"):
    for member_id, found in sorted(assign(name, members, sizes).items()):
        print(name, member_id, sorted((topic.hex(), sorted(ps)) for topic, ps in found.items()))
"""


def test_another_hash_seed_gives_the_same() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", HASHING],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == 40


def test_there_is_no_other_assignor() -> None:
    with pytest.raises(KafkaError) as caught:
        assign("sticky", [member("m", A)], {A: 1})
    assert caught.value.code == ErrorCode.UNSUPPORTED_ASSIGNOR


# Uniform.


@given(group=groups(alike=True))
def test_uniform_with_equal_subscriptions_keeps_sizes_within_one(group: Group) -> None:
    found = sizes(assign("uniform", *group)).values()
    assert max(found) - min(found) <= 1


@given(group=groups(alike=True))
def test_uniform_with_equal_subscriptions_moves_as_few_partitions_as_sizes_allow(
    group: Group,
) -> None:
    members, partitions = group
    found = assign("uniform", members, partitions)
    had = [
        len(
            {
                (topic, number)
                for topic, number in partitions_of(one.assigned)
                if topic in one.subscribed and number < partitions.get(topic, 0)
            }
        )
        for one in members
    ]
    total = len(owners(found))
    each, extra = divmod(total, len(members))
    most = sum(min(count, each) for count in had) + min(extra, sum(count > each for count in had))
    kept = sum(
        len(partitions_of(one.assigned) & partitions_of(found[one.member_id])) for one in members
    )
    assert kept == most


@given(group=groups(members_max=3, size_max=2))
def test_uniform_with_any_subscriptions_is_as_even_as_any_assignment_can_be(group: Group) -> None:
    members, partitions = group
    found = sorted(sizes(assign("uniform", members, partitions)).values(), reverse=True)
    choices = []
    for topic, size in partitions.items():
        can = [place for place, one in enumerate(members) if topic in one.subscribed]
        choices += [can] * (size if can else 0)
    best = min(
        sorted((picks.count(place) for place in range(len(members))), reverse=True)
        for picks in itertools.product(*choices)
    )
    assert found == best


@given(group=groups(members_max=9))
def test_uniform_with_any_subscriptions_leaves_no_chain_that_would_make_it_more_even(
    group: Group,
) -> None:
    members, partitions = group
    found = assign("uniform", members, partitions)
    size = sizes(found)
    takers = {
        one.member_id: {
            other.member_id
            for topic in found[one.member_id]
            for other in members
            if topic in other.subscribed
        }
        for one in members
    }
    for start in takers:
        reached = {start}
        while more := set().union(*(takers[name] for name in reached)) - reached:
            reached |= more
        assert min(size[name] for name in reached) >= size[start] - 1


HAD_ITS_EXTRA = (
    [
        member("m0", A, B, assigned={A: frozenset({0}), B: frozenset({0, 2})}),
        member("m1", A, B, assigned={B: frozenset({1})}),
        member("m2", A),
    ],
    {A: 1, B: 3},
)
"""The one partition too many has to stay with m0, who had it."""
BACK_AFTER_A_CHAIN = (
    [
        member("m0", A, C, assigned={A: frozenset({0, 1})}),
        member("m1", A, B, assigned={B: frozenset({0})}),
        member("m2", A, B, C, assigned={C: frozenset({0})}),
        member("m3", C),
    ],
    {A: 3, B: 1, C: 1},
)
"""Only after the chains is it seen that m0 can keep both."""


@given(group=groups())
@example(group=HAD_ITS_EXTRA)
@example(group=BACK_AFTER_A_CHAIN)
def test_uniform_moves_no_partition_that_could_go_back_without_making_sizes_less_even(
    group: Group,
) -> None:
    members, partitions = group
    found = assign("uniform", members, partitions)
    size = sizes(found)
    owner = owners(found)
    for one in members:
        for topic, number in partitions_of(one.assigned):
            now = owner.get((topic, number))
            if topic in one.subscribed and now not in {None, one.member_id}:
                assert size[one.member_id] + 1 > size[now], f"{one.member_id} lost {topic} {number}"


def test_uniform_gives_newcomers_some_of_every_topic() -> None:
    sizes_of = {A: 8, B: 8}
    old = [member("m0", A, B), member("m1", A, B)]
    old = again(old, assign("uniform", old, sizes_of))
    found = assign("uniform", [*old, member("m2", A, B), member("m3", A, B)], sizes_of)
    for name in found:
        assert {topic: len(numbers) for topic, numbers in found[name].items()} == {A: 2, B: 2}


def test_uniform_gives_a_newcomer_its_share_and_moves_nothing_else() -> None:
    before = assign("uniform", [member("m0", A, B), member("m1", A, B)], {A: 6, B: 6})
    found = assign(
        "uniform",
        [
            member("m0", A, B, assigned=before["m0"]),
            member("m1", A, B, assigned=before["m1"]),
            member("m2", A, B),
        ],
        {A: 6, B: 6},
    )
    assert sizes(found) == {"m0": 4, "m1": 4, "m2": 4}
    for name in ("m0", "m1"):
        assert partitions_of(found[name]) < partitions_of(before[name])


def test_uniform_passes_partitions_on_where_no_single_move_helps() -> None:
    # m0 has two more than m2 but shares no topic with it; m1 passes one on.
    found = assign(
        "uniform",
        [
            member("m0", A, assigned={A: frozenset({0, 1, 2})}),
            member("m1", A, B, assigned={B: frozenset({0, 1})}),
            member("m2", B, assigned={B: frozenset({2})}),
        ],
        {A: 3, B: 3},
    )
    assert sizes(found) == {"m0": 2, "m1": 2, "m2": 2}


def test_uniform_takes_nothing_from_the_only_subscriber() -> None:
    found = assign("uniform", [member("m0", A, B), member("m1", B)], {A: 8, B: 2})
    assert found == {"m0": {A: frozenset(range(8))}, "m1": {B: frozenset({0, 1})}}


def test_uniform_gives_what_two_claim_to_one_of_them() -> None:
    both = {A: frozenset({0, 1})}
    found = assign(
        "uniform", [member("m0", A, assigned=both), member("m1", A, assigned=both)], {A: 2}
    )
    assert sizes(found) == {"m0": 1, "m1": 1}


# Range.


def test_range_gives_the_same_numbers_of_co_partitioned_topics_to_the_same_member() -> None:
    found = assign("range", [member("m1", A, B), member("m0", A, B)], {A: 3, B: 3})
    assert found == {
        "m0": {A: frozenset({0, 1}), B: frozenset({0, 1})},
        "m1": {A: frozenset({2}), B: frozenset({2})},
    }


def test_range_with_more_members_than_partitions_leaves_the_last_ones_without() -> None:
    found = assign("range", [member(f"m{n}", A) for n in range(4)], {A: 2})
    assert found == {"m0": {A: frozenset({0})}, "m1": {A: frozenset({1})}, "m2": {}, "m3": {}}


def test_range_counts_only_the_subscribers_of_a_topic() -> None:
    found = assign("range", [member("m0", A), member("m1", A, B), member("m2", B)], {A: 3, B: 3})
    assert found == {
        "m0": {A: frozenset({0, 1})},
        "m1": {A: frozenset({2}), B: frozenset({0, 1})},
        "m2": {B: frozenset({2})},
    }


def test_range_gives_a_static_member_the_same_under_a_new_member_id() -> None:
    others = [member("a", A), member("z", A, instance="i2")]
    before = assign("range", [*others, member("b", A, instance="i1")], {A: 5})
    after = assign("range", [*others, member("y", A, instance="i1")], {A: 5})
    assert before["b"] == after["y"] == {A: frozenset({0, 1})}
    assert before["z"] == {A: frozenset({2, 3})}
    assert before["a"] == {A: frozenset({4})}


@given(group=groups())
def test_range_gives_adjacent_partitions_of_sizes_within_one(group: Group) -> None:
    members, partitions = group
    found = assign("range", members, partitions)
    for topic, size in partitions.items():
        counts = []
        for one in members:
            if topic in one.subscribed:
                numbers = sorted(found[one.member_id].get(topic, ()))
                counts.append(len(numbers))
                assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True
        if counts:
            assert sum(counts) == size
            assert max(counts) - min(counts) <= 1
