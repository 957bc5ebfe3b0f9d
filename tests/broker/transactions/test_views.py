"""How transactions are shown: where Kafka would keep a group's offsets; states; filters."""

import pytest

from broker.transactions.views import OFFSETS_PARTITIONS, Filter, offsets_partition, unknown_states
from coordinator.tables.transactions import TransactionRow
from txn.transactions import State, TransactionMetadata


@pytest.mark.parametrize(
    ("group_id", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("ab", 97 * 31 + 98),
        ("readers", 1_080_410_128),
        # Its hash is the least int, whose absolute value is none.
        ("polygenelubricants", 0),
        # Two UTF-16 units.
        ("\N{GRINNING FACE}", 0xD83D * 31 + 0xDE00),
    ],
)
def test_a_group_is_where_kafka_would_keep_its_offsets(group_id: str, hashed: int) -> None:
    assert offsets_partition(group_id) == hashed % OFFSETS_PARTITIONS


def test_kafkas_names_of_states_are_known_and_others_told_once() -> None:
    known = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
    ]
    assert unknown_states([*known, "PrepareEpochFence"]) == []
    assert unknown_states(["ongoing", "Empty", "Fine", "Fine", ""]) == ["ongoing", "Fine", ""]


def row(transactional_id: str, *, producer_id: int, started_ms: int) -> TransactionRow:
    made = TransactionRow(
        transactional_id, TransactionMetadata(producer_id, 0, state=State.ONGOING)
    )
    made.started_ms = started_ms
    return made


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({}, True),
        ({"states": ["Empty"]}, False),
        ({"states": ["Empty", "Ongoing"]}, True),
        ({"states": ["Fine"]}, False),
        ({"producer_ids": [8]}, False),
        ({"producer_ids": [8, 7]}, True),
        ({"longer_than_ms": 0}, True),
        ({"longer_than_ms": 99}, True),
        ({"longer_than_ms": 100}, False),
        ({"regex": "p.y"}, True),
        ({"regex": "p"}, False),
        ({"states": ["Ongoing"], "producer_ids": [8]}, False),
    ],
)
def test_all_filters_must_fit(wanted: dict, fits: bool) -> None:
    given = {"states": [], "producer_ids": [], "longer_than_ms": -1, "regex": "", **wanted}
    made = row("pay", producer_id=7, started_ms=1_000)
    assert Filter.of(**given).fits(made, now_ms=1_100) is fits
