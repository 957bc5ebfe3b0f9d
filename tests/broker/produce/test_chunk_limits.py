"""When chunks are closed, by what an agent is told, and by what its store costs."""

import pytest

from broker.produce.chunk_limits import (
    FREE_PUTS_PER_SECOND,
    PAID_PUTS_PER_SECOND,
    chunk_limits,
)
from tests.kit.agents import settings


@pytest.mark.parametrize(
    ("store", "told", "puts_per_second"),
    [
        ("s3://bucket/prefix", "auto", PAID_PUTS_PER_SECOND),
        ("file:///folder", "auto", FREE_PUTS_PER_SECOND),
        ("s3://bucket/prefix", "70", 70),
        ("file:///folder", "3", 3),
    ],
)
def test_budget_of_puts_is_what_is_set_or_what_they_cost(
    store: str, told: str, puts_per_second: int
) -> None:
    made = chunk_limits(settings(**{"store": store, "puts.per.second": told}))
    assert made.puts_per_second == made.puts_burst == puts_per_second
