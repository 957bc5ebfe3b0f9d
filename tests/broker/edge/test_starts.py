"""Whose request begins next: no more than a turn's worth at once, round robin by address."""

import pytest

from broker.calls.shares import Owner
from broker.edge.starts import TASKS_PER_TURN, TURN_MS, Starts
from broker.node import EdgeStats
from protocol import apis


class Client:
    """A connection with so many requests of one API that each take so many ms to begin."""

    def __init__(
        self, stage: "Stage", owner: str, number: int, *, api_key: int, requests: int, takes_ms: int
    ) -> None:
        self.owner = Owner(owner)
        self.number = number
        self.queued = False
        self._stage = stage
        self._api_key = api_key
        self._left = requests
        self._takes_ms = takes_ms

    def start_in_turn(self) -> None:
        stage = self._stage
        while self._left and not self.queued:
            if self._api_key == apis.PRODUCE and stage.room <= 0:
                stage.starts.block(self)
                return
            if not stage.starts.admits(self, self._api_key):
                return
            self._left -= 1
            stage.now_ms += self._takes_ms
            if self._api_key == apis.PRODUCE:
                stage.room -= 1
            stage.begun.append((str(self.owner), self.number))


class Stage:
    """A loop whose turns are begun by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.room = 1_000_000
        self.begun: list[tuple[str, int]] = []
        self.scheduled = False
        self.stats = EdgeStats()
        self.starts = Starts(
            self.stats,
            boot_ms=lambda: self.now_ms,
            is_full=lambda: self.room <= 0,
            schedule=self._schedule,
        )
        self.starts.begin_turn(self.now_ms)

    def _schedule(self) -> None:
        self.scheduled = True

    def client(
        self,
        owner: str,
        number: int,
        *,
        api_key: int = apis.FETCH,
        requests: int = 1,
        takes_ms: int = 1,
    ) -> Client:
        """A new one, whose requests were just read."""
        client = Client(self, owner, number, api_key=api_key, requests=requests, takes_ms=takes_ms)
        client.start_in_turn()
        return client

    def turn(self) -> list[tuple[str, int]]:
        """What begins in the next turn."""
        self.begun.clear()
        self.scheduled = False
        self.starts.begin_turn(self.now_ms)
        self.starts.serve()
        return list(self.begun)


@pytest.fixture
def stage():
    return Stage()


@pytest.mark.promise("P15")
def test_a_turn_of_the_loop_begins_no_more_requests_than_it_has_time_for(stage):
    for number in range(50):
        stage.client("many", number)
    assert len(stage.begun) == 2 * TURN_MS, (
        "behind a turn that wrote those that are read have as much"
    )
    assert stage.scheduled
    assert len(stage.turn()) == TURN_MS


@pytest.mark.promise("P15")
def test_requests_that_work_as_tasks_are_counted_since_their_work_comes_behind(stage):
    for number in range(50):
        stage.client("many", number, api_key=apis.CREATE_TOPICS, takes_ms=0)
    assert len(stage.begun) == TASKS_PER_TURN
    assert len(stage.turn()) == TASKS_PER_TURN


@pytest.mark.promise("P15")
def test_who_comes_from_another_address_waits_for_one_request_of_each_address(stage):
    for number in range(50):
        stage.client("many", number, requests=10)
    stage.client("one", 99, requests=3)
    turns = [each for _ in range(3) for each in stage.turn()]
    places = [place for place, (owner, _) in enumerate(turns) if owner == "one"]
    assert places == [1, 3, 5]


def test_connections_of_an_address_begin_in_turn(stage):
    stage.client("busy", 0, requests=100)
    for number in range(6):
        stage.client("many", number, requests=4)
    begun = [each for _ in range(50) for each in stage.turn()]
    assert [each for each in begun if each[0] == "many"] == [
        ("many", number) for number in range(6)
    ] * 4


def test_a_request_that_comes_while_others_wait_waits_behind_them(stage):
    for number in range(20):
        stage.client("early", number)
    stage.client("late", 99)
    assert ("late", 99) not in stage.begun
    assert stage.turn() == [("early", 2 * TURN_MS), ("late", 99)]


def test_each_line_has_one_turn_even_when_the_time_is_up(stage):
    stage.client("reads", 1, requests=20)
    stage.client("writes", 2, requests=20, api_key=apis.PRODUCE)
    stage.starts.begin_turn(stage.now_ms)
    stage.now_ms += 100
    stage.begun.clear()
    stage.starts.serve()
    assert stage.begun == [("reads", 1), ("writes", 2)]


@pytest.mark.promise("P15")
def test_who_finds_no_room_waits_for_it_in_a_line_of_its_own(stage):
    stage.room = 0
    for number in range(3):
        stage.client("many", number, api_key=apis.PRODUCE, requests=5)
    stage.client("one", 99, api_key=apis.PRODUCE)
    assert not stage.starts.waiting
    assert stage.turn() == []
    stage.room = 2
    assert stage.starts.waiting
    assert stage.turn() == [("many", 0), ("one", 99)]


def test_who_waits_for_room_keeps_nobody_else_waiting(stage):
    stage.room = 0
    stage.client("many", 1, api_key=apis.PRODUCE)
    stage.client("one", 2)
    assert stage.begun == [("one", 2)]


@pytest.mark.parametrize("api_key", [apis.FETCH, apis.PRODUCE])
def test_a_closed_connection_waits_no_more(stage, api_key):
    stage.room = 0
    waiting = [stage.client("many", number, api_key=api_key, takes_ms=4) for number in range(3)]
    for client in waiting:
        stage.starts.forget(client)
    stage.room = 10
    assert not stage.starts.waiting
    assert not any(client.queued for client in waiting)


def test_it_is_told_how_many_wait_and_since_when(stage):
    stage.client("many", 0, requests=2 * TURN_MS + 3)
    began_ms = stage.now_ms
    stage.client("many", 1)
    assert (stage.stats.queued, stage.stats.queued_since_ms) == (2, began_ms)
    while stage.starts.waiting:
        stage.turn()
    assert stage.stats.queued == 0
