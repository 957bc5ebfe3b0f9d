"""What `frazil group` prints, and what it plans."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.groups.group_reset import (
    OffsetReset,
    PartitionOffsets,
    ResetError,
    ResetRule,
    ResetTarget,
    duration_ms,
    plan,
    topics,
)
from broker.reports import group_report
from broker.reports.group_report import (
    compact,
    describe_json,
    describe_lines,
    group_lines,
    member_lines,
)
from protocol import messages
from protocol.consumer_protocol import write_assignment

COORDINATOR = group_report.CoordinatorView(1, "here", 9092)


def classic_group(*assignments: dict[str, list[int]]) -> group_report.GroupView:
    members = [
        messages.DescribedGroupMember(
            member_id=f"m{number}",
            client_id=f"c{number}",
            client_host="/10.0.0.1",
            member_assignment=write_assignment(assigned),
        )
        for number, assigned in enumerate(assignments)
    ]
    return group_report.of_classic(
        messages.DescribedGroup(
            group_id="g",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=members,
        ),
        COORDINATOR,
    )


def consumer_group(*, epoch: int, assigned_epoch: int) -> group_report.GroupView:
    def parts(*numbers: int) -> messages.ConsumerGroupAssignment:
        return messages.ConsumerGroupAssignment(
            topic_partitions=[
                messages.NamedTopicPartitions(topic_name="orders", partitions=list(numbers))
            ]
        )

    member = messages.ConsumerGroupMember(
        member_id="m0",
        instance_id="i0",
        member_epoch=assigned_epoch,
        client_id="c0",
        client_host="/10.0.0.1",
        assignment=parts(0, 1),
        target_assignment=parts(0, 1, 2),
    )
    return group_report.of_consumer(
        messages.DescribedConsumerGroup(
            group_id="g",
            group_state="Reconciling",
            group_epoch=epoch,
            assignment_epoch=assigned_epoch,
            assignor_name="uniform",
            members=[member],
        ),
        COORDINATOR,
    )


def test_a_description_is_a_headline_a_table_and_the_whole_lag() -> None:
    group = classic_group({"orders": [0, 1]}, {})
    member = group.members[0]
    partitions = [
        group_report.PartitionView("orders", 0, 7, 10, "", member),
        group_report.PartitionView("orders", 1, None, 10, "", member),
        group_report.PartitionView("orders", 2, 4, 10, "", None),
        group_report.PartitionView("users", 0, 4, None, "", None),
    ]
    assert describe_lines(group, partitions) == [
        (
            "g: Stable, classic protocol, 2 members (1 without partitions), assignor range,"
            " coordinator 1 at here:9092"
        ),
        "",
        "TOPIC   PARTITION  COMMITTED  END  LAG  MEMBER  HOST       CLIENT",
        "orders          0          7   10    3  m0      /10.0.0.1  c0",
        "orders          1          -   10    -  m0      /10.0.0.1  c0",
        "orders          2          4   10    6  -       -          -",
        "users           0          4    -    -  -       -          -",
        "",
        "lag 9 in 2 partitions, not counting 2 partitions without one",
    ]


def test_members_of_kip_848_are_shown_with_epoch_and_target() -> None:
    assert member_lines(consumer_group(epoch=5, assigned_epoch=4)) == [
        (
            "g: Reconciling, consumer protocol, 1 member, epoch 5 (assigned: 4), assignor uniform,"
            " coordinator 1 at here:9092"
        ),
        "",
        "MEMBER  INSTANCE  HOST       CLIENT  EPOCH  PARTITIONS  ASSIGNED     TARGET",
        "m0      i0        /10.0.0.1  c0          4           2  orders(0-1)  orders(0-2)",
    ]


def test_members_of_the_classic_protocol_are_shown_by_client() -> None:
    assert member_lines(classic_group({"orders": [0, 2], "users": [1]}, {"orders": [1]}))[2:] == [
        "MEMBER  INSTANCE  HOST       CLIENT  PARTITIONS  ASSIGNED",
        "m0      -         /10.0.0.1  c0               3  orders(0,2) users(1)",
        "m1      -         /10.0.0.1  c1               1  orders(1)",
    ]


def test_the_json_has_everything_and_can_be_written() -> None:
    group = consumer_group(epoch=5, assigned_epoch=5)
    row = group_report.PartitionView("orders", 0, 7, 10, "note", group.members[0])
    described = json.loads(json.dumps(describe_json(group, [row])))
    assert described["type"] == "consumer"
    assert described["coordinator"] == {"node_id": 1, "host": "here", "port": 9092}
    assert described["members"][0]["target"] == {"orders": [0, 1, 2]}
    assert described["partitions"] == [
        {
            "topic": "orders",
            "partition": 0,
            "committed": 7,
            "end": 10,
            "metadata": "note",
            "member": "m0",
            "lag": 3,
        }
    ]


@pytest.mark.parametrize(
    ("protocol_type", "data"),
    [("consumer", b"\0\1\0\0\0\7?"), ("connect", write_assignment({"orders": [0]}))],
)
def test_an_assignment_that_is_no_consumers_is_none(protocol_type: str, data: bytes) -> None:
    member = messages.DescribedGroupMember(member_id="m", member_assignment=data)
    group = messages.DescribedGroup(protocol_type=protocol_type, members=[member])
    assert group_report.of_classic(group, COORDINATOR).members[0].assigned == {}


def listed(name: str) -> messages.ListedGroup:
    return messages.ListedGroup(
        group_id=name, protocol_type="consumer", group_state="Stable", group_type="Classic"
    )


def test_groups_are_listed_by_name() -> None:
    assert group_lines([listed("b"), listed("a")]) == [
        "GROUP  TYPE     STATE   PROTOCOL",
        "a      classic  Stable  consumer",
        "b      classic  Stable  consumer",
    ]
    assert group_lines([]) == ["there are no groups"]


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.lists(st.integers(0, 12), unique=True)))
def test_a_compact_assignment_names_every_partition_once(assigned: dict[str, list[int]]) -> None:
    read: dict[str, list[int]] = {}
    for part in (compact(assigned) or "").split():
        topic, _, ranges = part.removesuffix(")").partition("(")
        for run in ranges.split(","):
            first, _, last = run.partition("-")
            read.setdefault(topic, []).extend(range(int(first), int(last or first) + 1))
    assert read == {topic: sorted(numbers) for topic, numbers in assigned.items() if numbers}


# What is planned.

PLACE = PartitionOffsets(start=5, end=20, committed=10, at_time=15)


@pytest.mark.parametrize(
    ("target", "place", "after", "warned"),
    [
        (ResetTarget(ResetRule.EARLIEST), PLACE, 5, False),
        (ResetTarget(ResetRule.LATEST), PLACE, 20, False),
        (ResetTarget(ResetRule.CURRENT), PLACE, 10, False),
        (ResetTarget(ResetRule.CURRENT), PLACE._replace(committed=None), 20, True),
        (ResetTarget(ResetRule.OFFSET, 7), PLACE, 7, False),
        (ResetTarget(ResetRule.OFFSET, 20), PLACE, 20, False),
        (ResetTarget(ResetRule.OFFSET, 21), PLACE, 20, True),
        (ResetTarget(ResetRule.OFFSET, 4), PLACE, 5, True),
        (ResetTarget(ResetRule.SHIFT, 3), PLACE, 13, False),
        (ResetTarget(ResetRule.SHIFT, 30), PLACE, 20, True),
        (ResetTarget(ResetRule.SHIFT, -30), PLACE, 5, True),
        (ResetTarget(ResetRule.TIME, 1), PLACE, 15, False),
        (ResetTarget(ResetRule.TIME, 1), PLACE._replace(at_time=None), 20, True),
    ],
)
def test_a_plan_says_where_to_go_and_warns_when_it_cannot(
    target: ResetTarget, place: PartitionOffsets, after: int, warned: bool
) -> None:
    changes, warnings = plan(target, {("t", 0): place})
    assert changes == [OffsetReset("t", 0, place.committed, after)]
    assert bool(warnings) is warned


@given(
    st.sampled_from([ResetRule.OFFSET, ResetRule.SHIFT]),
    st.integers(-(1 << 63), 1 << 63),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 100),
)
def test_no_plan_leaves_the_log(
    rule: ResetRule, value: int, start: int, count: int, committed: int
) -> None:
    place = PartitionOffsets(start, start + count, committed, None)
    ((change,), _) = plan(ResetTarget(rule, value), {("t", 0): place})
    assert start <= change.after <= start + count


def test_what_was_never_committed_cannot_be_shifted() -> None:
    places = {("t", 1): PLACE, ("t", 0): PLACE._replace(committed=None)}
    with pytest.raises(ResetError, match=r"^t:0: nothing is committed there"):
        plan(ResetTarget(ResetRule.SHIFT, 1), places)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P7D", 7 * 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt0s", 0),
        ("90min", 5_400_000),
        ("250", 250),
    ],
)
def test_durations_are_iso_8601_or_ours(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "P",
        "PT",
        "P1H",
        "P1DT",
        "7 days",
        "",
        "-PT1S",
        "PT1M1H",
        "P1" + "0" * 12 + "D",
        "9" * 20,
        "9" * 5000,
        f"PT{'9' * 400}S",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_ms(text)


def test_topics_are_named_whole_or_by_partitions() -> None:
    assert topics(["a:0,3", "b", "a:1"]) == {"a": {0, 1, 3}, "b": None}
    assert topics(["a", "a:1"]) == topics(["a:1", "a"]) == {"a": None}


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:1,", "a:-1"])
def test_what_is_no_topic_with_partitions_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a topic with partitions"):
        topics([text])
