"""A live KIP-848 group, where stories in text do not reach (tests/broker/groups/consumer/scripts)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.consumer import steps as consumer_steps
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.image import GroupImage
from broker.groups.consumer.members import ClassicMember, Member, MemberState, Subscription
from broker.groups.group.deadlines import Deadlines
from broker.groups.group.effects import Answer, Caller, Write
from broker.groups.group.live import LiveGroup
from coordinator.commands.group_commands import ChangeGroup, GroupKind
from coordinator.tables.groups import MEMBERS_MAX
from protocol.errors import ErrorCode
from protocol.messages import ConsumerGroupHeartbeatResponse
from protocol.types import TopicId
from tests.broker.groups import requests
from tests.broker.groups.pure import GROUP, Asked, World, consumer_world, partitions_of

JOINS = {"rebalance_timeout_ms": 60_000, "owned": {}, "subscribed_topic_names": []}


def classic(member_id: str, **fields: object) -> Member:
    return Member(member_id, 3, 3, classic=ClassicMember(10_000, (("range", b""),)), **fields)  # type: ignore[arg-type]


def image(*members: Member, epoch: int = 3) -> GroupImage:
    """One that was converted: of a row of another kind, at `epoch`."""
    made = GroupImage(epoch)
    for member in members:
        made._add(member)
    return made


def converted(*members: Member) -> World:
    """A world whose log has a group of another kind, which is this one from now on."""
    world = consumer_world()
    world.holds = True
    world.apply((ChangeGroup(GROUP, GroupKind.CLASSIC, -1, 3, b"", (), ()),))
    world.group = ConsumerGroup(GROUP, world.settings, image(*members), world.now_ms)
    return world


def joining(world: World, member_id: str, **fields: object) -> Asked:
    request = requests.consumer_heartbeat(GROUP, member_id, 0, **{**JOINS, **fields})
    return world.ask("consumer_heartbeat", request, version=1)


def test_it_is_what_the_shell_takes_for_a_live_group():
    group: LiveGroup = consumer_world().group
    assert (group.group_id, group.kind, group.protocol_type) == (
        "g",
        GroupKind.CONSUMER,
        "consumer",
    )


def test_an_answer_waits_for_the_log_and_the_group_is_as_before_until_then():
    world = consumer_world()
    world.holds = True
    world.create("orders", 2)
    asked = joining(world, "m", subscribed_topic_names=["orders"])
    assert asked.response is None
    assert world.writing is not None
    assert world.group.state() == "Empty"
    assert world.group.has_members(), "somebody is joining"
    world.write()
    assert asked.response.error_code == ErrorCode.NONE
    assert world.group.state() == "Stable"


def test_who_waits_when_the_group_is_abandoned_is_told_why():
    world = consumer_world()
    world.holds = True
    asked, group = joining(world, "m"), world.group
    world.fail(ErrorCode.NOT_COORDINATOR)
    refusal = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert asked.response == refusal
    assert group.state() == "Dead"
    assert consumer_world().group.abandon(ErrorCode.NOT_COORDINATOR) == []


def test_a_group_that_was_of_another_kind_goes_on_from_its_epoch():
    world = consumer_world()
    world.holds = True
    world.group = ConsumerGroup(GROUP, world.settings, GroupImage(7))
    joining(world, "m")
    assert world.writing is not None
    (command,) = world.writing.commands
    assert isinstance(command, ChangeGroup)
    assert (command.epoch_before, command.epoch, command.kind) == (7, 8, GroupKind.CONSUMER)


def test_the_first_change_of_a_group_that_was_converted_writes_all_members():
    world = converted(classic("a"), classic("b"))
    joining(world, "m")
    assert world.writing is not None
    (command,) = world.writing.commands
    assert isinstance(command, ChangeGroup)
    assert [row.member_id for row in command.put] == ["a", "b", "m"]
    world.write()
    assert joining(world, "m").response is not None, "and the next one only what differs"


def test_classic_members_keep_their_own_session_timeout_and_do_not_revoke_in_time():
    member = classic("a", state=MemberState.UNREVOKED_PARTITIONS, rebalance_timeout_ms=1_000)
    world = converted(member)
    began_ms = world.now_ms
    assert world.group.deadline_ms() == began_ms + 10_000
    assert world.group.tick(began_ms + 9_999) == []
    (write,) = world.group.tick(began_ms + 10_000)
    assert isinstance(write, Write)


def test_offsets_of_classic_members_are_fenced_by_generation():
    world = converted(classic("a"))
    assert world.check_commit("a", 3, version=2) is ErrorCode.NONE
    assert world.check_commit("a", 2, version=2) is ErrorCode.ILLEGAL_GENERATION
    assert world.group.check_fetch("a", 2, now_ms=0) is ErrorCode.ILLEGAL_GENERATION
    described = world.group.describe_consumer(world.topics)
    assert [member.member_type for member in described.members] == [0]


def test_a_member_that_speaks_kip_848_from_now_on_is_not_classic_any_more():
    world = converted(classic("a"))
    joining(world, "a")
    world.write()
    assert world.image.members["a"].classic is None


def test_a_static_member_of_either_protocol_may_take_the_place_of_a_classic_one():
    world = converted(classic("a", instance_id="i"))
    joining(world, "b", instance_id="i")
    world.write()
    assert [*world.image.members] == ["b"]


def test_a_dynamic_member_that_takes_the_place_of_a_static_one_gives_up_its_own():
    world = consumer_world()
    orders, bills = world.create("orders", 1), world.create("bills", 1)
    world.subscribe("m1", "orders", instance_id="i")
    world.subscribe("m2", "bills")
    world.beat("m1", -2, instance_id="i")
    response = world.subscribe("m2", "bills", instance_id="i")
    assert response.error_code == ErrorCode.NONE
    (member,) = world.image.members.values()
    assert (member.member_id, member.instance_id) == ("m2", "i")
    assert member.assigned == {bills: frozenset({0})}
    assert world.image.owners.of(orders, 0) is None


def test_a_change_that_cannot_be_written_is_refused_and_topics_are_looked_at_again():
    world = consumer_world()
    world.create("orders", 1)
    world.subscribe("m", "orders")
    later = world.create("orders-2", 1)
    world.wait(10_000)
    names = [f"{n * 2654435761 % (1 << 61):016x}" * 2 for n in range(6_000)]
    before = world.image.members["m"]

    response = world.beat("m", 1, subscribed_topic_names=[*names, "orders-2"])
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert world.image.members["m"] is before
    assert world.row is not None

    world.beat("m", 1, subscribed_topic_names=["orders", "orders-2"])
    assert later in world.image.members["m"].target


def test_a_lost_look_at_topics_is_repeated():
    """A heartbeat that sees other topics, and fails for its own reasons, leaves them unseen."""
    world = consumer_world()
    world.create("orders", 1)
    world.subscribe("m", "orders", "later")
    later = world.create("later", 1)
    world.wait(10_000)
    response = world.beat("m", 1, client_id="x" * 40_000)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    response = world.beat("m", 1)
    assert later in world.image.members["m"].target
    assert response.member_epoch == 2


def test_no_group_has_more_members_than_the_table_takes():
    world = consumer_world()
    for index in range(3):
        world.subscribe(f"m{index}")
    world.configure(consumer_max_size=3)
    assert world.subscribe("m3").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.configure(consumer_max_size=1 << 30)
    members = world.image.members
    members.update({f"x{index}": Member(f"x{index}") for index in range(MEMBERS_MAX - 3)})
    request = requests.consumer_heartbeat(GROUP, "m3", 0, **JOINS)
    caller = Caller(77, 1, "c", "/10.0.0.1", world.now_ms, "fresh")
    (answer,) = world.group.consumer_heartbeat(caller, request, world.topics)
    assert isinstance(answer, Answer)
    assert answer.response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    ("fields", "what", "value"),
    [
        ({"subscribed_topic_names": ["b"]}, "subscription", Subscription(frozenset({"b"}))),
        ({"subscribed_topic_regex": "b"}, "subscription", Subscription(frozenset({"a"}), "b")),
        ({"rebalance_timeout_ms": 7}, "rebalance_timeout_ms", 7),
        ({"server_assignor": "range"}, "server_assignor", "range"),
        ({"rack_id": "zone"}, "rack_id", "zone"),
        ({"client_id": "other"}, "client_id", "other"),
        ({"host": "/10.0.0.2"}, "client_host", "/10.0.0.2"),
    ],
)
def test_a_heartbeat_that_brings_one_thing_alone_is_not_taken_for_one_without_news(
    fields: dict[str, object], what: str, value: object
):
    world = consumer_world()
    world.subscribe("m", "a")
    writes = world.writes
    assert world.beat("m", 1, **fields).error_code == ErrorCode.NONE
    assert world.writes == writes + 1
    assert getattr(world.image.members["m"], what) == value


def test_a_heartbeat_under_a_strange_instance_id_is_refused():
    world = consumer_world()
    world.subscribe("m", "a", instance_id="i")
    assert world.beat("m", 1, instance_id="i").error_code == ErrorCode.NONE
    assert world.beat("m", 1, instance_id="j").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    world.subscribe("n", "a")
    assert world.beat("n", 2, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_after_a_takeover_topics_are_looked_at_once():
    world = consumer_world()
    world.create("a", 1)
    world.subscribe("m", "a")
    world.take_over()
    assert world.group.subscribed.is_due(world.topics, world.now_ms)
    world.beat("m", 1)
    assert not world.group.subscribed.is_due(world.topics, world.now_ms)


def test_a_big_group_rests_between_its_targets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(consumer_steps, "EAGER_MEMBERS_MAX", 3)
    monkeypatch.setattr(consumer_steps, "REST_MS_PER_MEMBER", 100)
    world = consumer_world()
    orders = world.create("orders", 8)
    for index in range(4):
        assert world.subscribe(f"m{index}", "orders").member_epoch == index + 1
    world.now_ms += 399

    response = world.subscribe("m4", "orders")
    assert (response.member_epoch, partitions_of(response)) == (4, {})
    assert world.group.state() == "Assigning"
    assert world.beat("m0", 1, owned={orders: {*range(8)}}).member_epoch == 1
    response = world.beat("m4", 4, subscribed_topic_names=["orders", "bills"])
    assert (response.member_epoch, world.image.epoch) == (4, 6)

    world.now_ms += 101
    assert world.beat("m4", 4).member_epoch == 6
    assert world.group.state() == "Reconciling"
    targets = [member.target[orders] for member in world.image.members.values()]
    assert frozenset().union(*targets) == frozenset(range(8))
    assert sum(map(len, targets)) == 8


def test_who_unsubscribes_while_the_group_rests_gets_nothing_of_it_any_more(
    monkeypatch: pytest.MonkeyPatch,
):
    world = consumer_world()
    orders, bills = world.create("orders", 2), world.create("bills", 2)
    world.subscribe("a", "orders", "bills")
    world.subscribe("b", "orders", "bills")
    assert world.image.members["b"].target.keys() == {orders, bills}
    monkeypatch.setattr(consumer_steps, "EAGER_MEMBERS_MAX", 1)
    world.beat("b", 2, subscribed_topic_names=["bills"])
    assert world.group.state() == "Assigning"
    world.beat("a", 1)
    world.beat("a", 1, owned={})
    response = world.beat("b", 2, subscribed_topic_names=["bills"])
    assert partitions_of(response) == {bills: {*world.image.members["b"].target[bills]}}


def test_a_classic_member_does_not_wait_until_a_big_group_has_rested(
    monkeypatch: pytest.MonkeyPatch,
):
    """It would be told to join again and again."""
    monkeypatch.setattr(consumer_steps, "EAGER_MEMBERS_MAX", 1)
    world = consumer_world()
    for member_id in ("a", "b", "c"):
        world.subscribe(member_id)
    subscribed = world.group.subscribed
    for kind, epoch in ((None, 1), (ClassicMember(10_000, (("range", b""),)), 2)):
        before = Member("d")
        after = before._replace(subscription=Subscription(frozenset({"x"})), classic=kind)
        settled, _ = consumer_steps.advance(
            world.image,
            subscribed,
            before=before,
            after=after,
            replaced=None,
            owned={},
            topics=world.topics,
            assignors_served=world.settings.consumer_assignors,
            now_ms=world.now_ms,
        )
        assert settled.epoch == epoch


def test_a_heartbeat_interval_is_told_in_every_answer():
    world = consumer_world(consumer_heartbeat_interval_ms=1_234)
    assert world.subscribe("m").heartbeat_interval_ms == 1_234
    assert world.beat("m", 1).heartbeat_interval_ms == 1_234
    assert world.beat("m", 1, owned={}).heartbeat_interval_ms == 1_234


def test_a_group_asks_which_topics_it_subscribes_to():
    world = consumer_world()
    assert not world.group.subscribes("orders")
    world.subscribe("m", "orders", subscribed_topic_regex="bills-.*")
    assert world.group.subscribes("orders")
    assert world.group.subscribes("bills-eu")
    assert not world.group.subscribes("bills")
    world.take_over()
    assert world.group.subscribes("bills-eu")
    world.beat("m", -1)
    assert not world.group.subscribes("orders")


def test_a_row_of_another_version_is_not_read():
    world = consumer_world()
    world.subscribe("m")
    assert world.row is not None
    world.row.body = b"\x01" + world.row.body[1:]
    with pytest.raises(ValueError, match="format version"):
        world.loaded()


def test_descriptions_leave_out_topics_that_are_gone():
    world = consumer_world()
    orders = world.create("orders", 2)
    world.subscribe("m", "orders")
    world.delete("orders")
    (member,) = world.group.describe_consumer(world.topics).members
    assert member.assignment.topic_partitions == []
    assert orders in world.image.members["m"].assigned


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 50)),
            st.tuples(st.just("drop"), st.sampled_from("abc"), st.just(0)),
            st.tuples(st.just("due"), st.just(""), st.integers(0, 60)),
        )
    )
)
def test_a_deadline_comes_when_it_was_last_set(steps: list[tuple[str, str, int]]):
    deadlines, model = Deadlines(), dict[str, int]()
    for what, key, at_ms in steps:
        match what:
            case "set":
                deadlines.set(key, at_ms)
                model[key] = at_ms
            case "drop":
                deadlines.drop(key)
                model.pop(key, None)
            case _:
                due = deadlines.take_due(at_ms)
                assert sorted(due) == sorted(key for key, ms in model.items() if ms <= at_ms)
                model = {key: ms for key, ms in model.items() if ms > at_ms}
        if model:
            assert deadlines.next_ms is not None
            assert deadlines.next_ms <= min(model.values())
        else:
            assert deadlines.next_ms is None


def test_subscriptions_are_counted():
    one, other = Subscription(frozenset({"a"})), Subscription(regex="b")
    made = image(Member("m", subscription=one), Member("n", subscription=one))
    assert made.subscriptions == {one: 2}
    gone = made.members["m"]
    assert made.subscriptions_with([gone], gone._replace(subscription=other)) == [one, other]
    assert made.subscriptions_with(made.members.values(), Member("x", subscription=other)) == [
        other
    ]
    assert made.owners.of(TopicId(bytes(16)), 0) is None
