"""Lines about refusals and changes: what they say, and how many there are."""

import json

from broker.calls.requester import Requester
from broker.rights.audit import LINES_AT_ONCE, LINES_PER_SECOND, NAMES_MAX, TEXT_MAX, told_names
from broker.rights.authorizer import Authorizer
from broker.rights.rights import Rights
from coordinator.tables.administration.acls import Acls
from protocol.acls import Operation, ResourceType

BOB = Requester("User:bob", "10.0.0.7")
NOW_MS = 1_700_000_000_000


class Told:
    """Rights without any ACL, and the lines that came of them."""

    def __init__(self) -> None:
        self.lines: list[dict] = []
        self.boot_ms = 5_000
        self.rights = Rights(
            Authorizer(Acls()),
            write=lambda line: self.lines.append(json.loads(line)),
            now_ms=lambda: NOW_MS,
            boot_ms=lambda: self.boot_ms,
        )

    def ask(self, name: str = "orders", who: Requester = BOB) -> bool:
        return self.rights.permits(who, "Produce", Operation.WRITE, ResourceType.TOPIC, name)


def test_a_refusal_says_who_from_where_and_what():
    told = Told()
    assert not told.ask()
    assert told.lines == [
        {
            "time_ms": NOW_MS,
            "event": "refused",
            "principal": "User:bob",
            "host": "10.0.0.7",
            "api": "Produce",
            "operation": "WRITE",
            "resource": "TOPIC",
            "name": "orders",
        }
    ]


def test_what_is_only_left_out_of_an_answer_is_not_told():
    told = Told()
    assert not told.rights.allows(BOB, Operation.DESCRIBE, ResourceType.TOPIC, "orders")
    assert told.lines == []


def test_refusals_that_come_too_fast_are_counted_and_told_of_later():
    told = Told()
    for _ in range(LINES_AT_ONCE + 30):
        told.ask()
    assert len(told.lines) == LINES_AT_ONCE
    told.boot_ms += 1000
    told.ask()
    assert told.lines[LINES_AT_ONCE] == {
        "time_ms": NOW_MS,
        "event": "left out",
        "of": "refused",
        "count": 30,
    }
    for _ in range(2 * LINES_PER_SECOND):
        told.ask()
    assert len(told.lines) == LINES_AT_ONCE + 1 + LINES_PER_SECOND


def test_refusals_take_no_room_from_changes():
    told = Told()
    for _ in range(LINES_AT_ONCE + 30):
        told.ask()
    told.rights.changed(BOB, "CreateTopics", {"errors": []})
    assert told.lines[-1]["event"] == "change"


def test_a_name_is_cut_and_cannot_break_its_line():
    told = Told()
    told.ask('a"\n\x1b' + "b" * 1000)
    assert len(told.lines[0]["name"]) == TEXT_MAX + 1
    assert len(told_names([f"t{number}" for number in range(1000)])) == NAMES_MAX


def test_who_came_by_a_token_is_said_to():
    told = Told()
    told.ask(who=Requester("User:bob", "10.0.0.7", by_token=True))
    assert told.lines[0]["by"] == "delegation token"
