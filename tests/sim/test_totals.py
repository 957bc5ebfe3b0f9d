"""What many seeds tell at their end."""

from collections import Counter

import pytest

from tests.sim.__main__ import totals
from tests.sim.seeds import observe


def test_transactions_and_late_calls_are_told_with_what_a_million_takes() -> None:
    told = {"begun": 40, "committed": 20, "aborted": 10, "never told": 7, "given up": 3}
    late = {"late put_new": 5, "late append": 4}
    counts = Counter({**told, "timed out": 2, **late})
    transactions = (
        "40 transactions begun: 20 were told to be committed, 10 aborted, "
        "7 asked to end and were told nothing, 3 were left; 2 ended by their timeout"
    )
    assert [*totals(counts, 72.0)] == [
        transactions,
        "carried out late, when their callers had given them up: 5 PUTs, 0 DELETEs, 4 appends",
        "72 s of CPU, 500.0 h for 10⁶ transactions",
    ]


@pytest.mark.sim
def test_every_transaction_that_is_begun_is_counted_by_what_its_client_heard() -> None:
    for seed in (2, 7, 12):
        counts = Counter(observe(seed).counts)
        heard = sum(counts[each] for each in ("committed", "aborted", "never told", "given up"))
        assert counts["begun"] == heard
