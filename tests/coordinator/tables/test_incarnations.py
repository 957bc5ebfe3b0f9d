"""Who may write: opening, replacing, closing, node ids, ranks, and the machine's time."""

import pytest

from coordinator.commands.entries import Close, CreateTopic, Done, Entry, Opened, Rejected, Tick
from coordinator.tables.incarnations import NODE_NAMES_MAX
from protocol.errors import ErrorCode
from protocol.types import INCARNATION_NONE, Incarnation
from tests.coordinator.machine.story import LISTENERS, Story, opening, with_agents


def opened(story: Story, node_name: str, *, node_id: int = -1, zone: str = "zone-a") -> Opened:
    outcome = story.try_open(opening(node_name, node_id=node_id, zone=zone))
    assert isinstance(outcome, Opened)
    return outcome


def test_an_incarnation_is_the_position_of_its_open():
    story = Story()
    outcome = opened(story, "a")
    assert outcome == Opened(Incarnation(story.machine.position), 0, 0)


def test_a_row_tells_how_clients_reach_the_agent():
    story = Story()
    incarnation = story.open("a", zone="eu-1")
    row = story.machine.incarnations.get(incarnation)
    assert row is not None
    assert (row.node_name, row.zone, row.session, row.listeners) == ("a", "eu-1", 77, LISTENERS)
    assert story.machine.incarnations.by_node_id(0) is row
    assert story.machine.incarnations.by_node_name("a") is row
    assert story.machine.incarnations.by_node_id(1) is None


def test_live_incarnations_are_in_order_of_opening():
    story = Story()
    for name in ("c", "a", "b"):
        story.open(name)
    assert [row.node_name for row in story.machine.incarnations] == ["c", "a", "b"]


def test_node_ids_are_the_smallest_that_no_name_has():
    story = Story()
    assert [opened(story, name).node_id for name in ("a", "b", "c")] == [0, 1, 2]


def test_a_node_name_keeps_its_id_over_incarnations():
    story, first, second = with_agents("a", "b")
    story.do(second, Close(first, 0))
    assert opened(story, "c").node_id == 2
    assert opened(story, "a").node_id == 0


def test_a_node_id_is_known_for_as_long_as_a_name_has_it():
    story, first, second = with_agents("a", "b")
    incarnations = story.machine.incarnations
    story.do(second, Close(first, 0))
    assert [incarnations.knows_node_id(each) for each in (0, 1, 2)] == [True, True, False]
    opened(story, "a", node_id=7)
    assert not incarnations.knows_node_id(0)


def test_a_wanted_node_id_is_given():
    assert opened(Story(), "a", node_id=7).node_id == 7


def test_a_node_id_that_a_live_agent_of_another_name_holds_is_refused():
    story = Story()
    story.open("a", node_id=7)
    outcome = story.try_open(opening("b", node_id=7))
    assert isinstance(outcome, Rejected)
    assert outcome.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert [row.node_name for row in story.machine.incarnations] == ["a"]


def test_a_wanted_node_id_of_a_name_that_is_not_live_changes_hands():
    story = Story()
    first = story.open("a", node_id=7)
    second = story.open("b")
    story.do(second, Close(first, 0))
    assert opened(story, "c", node_id=7).node_id == 7
    assert opened(story, "a").node_id != 7


def test_an_agent_may_change_its_node_id():
    story = Story()
    story.open("a", node_id=7)
    assert opened(story, "a", node_id=8).node_id == 8
    assert opened(story, "b", node_id=7).node_id == 7


def test_names_that_are_not_live_are_forgotten_in_the_end():
    story, keeper = with_agents("keeper")
    for index in range(NODE_NAMES_MAX + 10):
        short = story.open(f"pod-{index}")
        story.do(keeper, Close(short, 0))
    assert opened(story, "pod-0").node_id < NODE_NAMES_MAX
    assert opened(story, "keeper").node_id == 0


def test_ranks_are_the_smallest_free_in_the_zone():
    story = Story()
    first = story.open("a", zone="x")
    assert opened(story, "b", zone="y").rank == 0
    assert opened(story, "c", zone="x").rank == 1
    assert opened(story, "d", zone="x").rank == 2
    story.do(story.open("e", zone="y"), Close(first, 0))
    assert opened(story, "f", zone="x").rank == 0


def test_an_open_of_the_same_name_closes_the_one_before_and_takes_its_rank():
    story, before = with_agents("a")
    story.open("b")
    outcome = opened(story, "a")
    assert (outcome.node_id, outcome.rank) == (0, 0)
    assert story.machine.incarnations.get(before) is None
    assert len(story.machine.incarnations) == 2


def test_every_command_of_a_closed_incarnation_is_refused_and_changes_nothing():
    story, before, after = with_agents("a", "a")
    outcomes = story.do_all(before, CreateTopic("t", 1, ()), Tick(), Close(after, 0))
    assert [outcome.error for outcome in outcomes if isinstance(outcome, Rejected)] == [
        ErrorCode.STALE_BROKER_EPOCH
    ] * 3
    assert len(story.machine.topics) == 0
    assert [row.incarnation for row in story.machine.incarnations] == [after]


def test_an_entry_of_an_incarnation_that_never_was_is_refused():
    story = Story()
    story.open("a")
    (outcome,) = story.append(Entry(Incarnation(12345), 1, 0, (Tick(),)))
    assert isinstance(outcome, Rejected)


def test_an_agent_closes_itself_and_what_follows_in_the_entry_is_refused():
    story, incarnation = with_agents("a")
    done, refused = story.do_all(incarnation, Close(incarnation, 0), CreateTopic("t", 1, ()))
    assert done == Done()
    assert isinstance(refused, Rejected)
    assert len(story.machine.incarnations) == 0


def test_closing_twice_is_done_already():
    story, first, second = with_agents("a", "b")
    assert story.do(second, Close(first, 0)) == Done()
    assert story.do(second, Close(first, 0)) == Done()


@pytest.mark.promise("P6")
def test_a_close_that_names_another_last_entry_is_refused():
    story, first, second = with_agents("a", "b")
    story.do(first, Tick())
    outcome = story.do(second, Close(first, 0))
    assert isinstance(outcome, Rejected)
    assert story.do(second, Close(first, 1)) == Done()


@pytest.mark.parametrize("commands", [(), (Tick(),), (opening(), opening())])
def test_an_incarnation_begins_with_one_open_alone(commands: tuple):
    story = Story()
    outcomes = story.append(Entry(INCARNATION_NONE, 0, 0, commands))
    assert len(outcomes) == len(commands)
    assert all(isinstance(outcome, Rejected) for outcome in outcomes)
    assert len(story.machine.incarnations) == 0


def test_an_open_within_an_incarnation_is_refused():
    story, incarnation = with_agents("a")
    assert isinstance(story.do(incarnation, opening("b")), Rejected)


def test_a_hole_in_the_numbers_of_an_incarnation_stops_the_replica():
    story, incarnation = with_agents("a")
    with pytest.raises(AssertionError):
        story.append(Entry(incarnation, 2, 0, (Tick(),)))


def test_positions_only_grow():
    story = Story()
    story.open("a")
    place, entry = story.log[-1]
    with pytest.raises(AssertionError):
        story.machine.apply(place, entry)


def test_time_is_the_least_of_the_newest_clocks():
    story = Story()
    first = story.open("a", clock_ms=1_000)
    second = story.open("b", clock_ms=1_500)
    assert story.machine.time_ms == 1_000
    story.do(first, Tick(), clock_ms=9_000)
    assert story.machine.time_ms == 1_500
    story.do(second, Tick(), clock_ms=2_000)
    assert story.machine.time_ms == 2_000


def test_time_does_not_go_back_when_a_clock_does():
    story = Story()
    first = story.open("a", clock_ms=5_000)
    story.do(first, Tick(), clock_ms=1_000)
    assert story.machine.time_ms == 5_000


def test_time_does_not_go_back_when_an_agent_comes_with_an_older_clock():
    story = Story()
    first = story.open("a", clock_ms=5_000)
    second = story.open("b", clock_ms=10)
    story.do(first, Tick(), clock_ms=6_000)
    assert story.machine.time_ms == 5_000
    story.do(second, Tick(), clock_ms=7_000)
    assert story.machine.time_ms == 6_000


def test_time_goes_on_when_the_slowest_is_closed():
    story = Story()
    slow = story.open("a", clock_ms=1_000)
    fast = story.open("b", clock_ms=8_000)
    story.do(fast, Close(slow, 0), clock_ms=9_000)
    assert story.machine.time_ms == 9_000


@pytest.mark.promise("P6")
def test_one_wild_clock_moves_no_time():
    story = Story()
    steady = story.open("a", clock_ms=1_000)
    wild = story.open("b", clock_ms=1_000)
    story.do(wild, Tick(), clock_ms=10**15)
    assert story.machine.time_ms == 1_000
    story.do(steady, Tick(), clock_ms=1_010)
    assert story.machine.time_ms == 1_010
