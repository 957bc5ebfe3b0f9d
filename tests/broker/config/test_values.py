"""Which name was meant, and that asking costs little."""

import sys
from typing import Any

import pytest

from broker.config.topic_configs import TABLE_OF_TOPICS
from broker.config.values import nearest


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("retention.m", "retention.ms"),
        ("retentoin.ms", "retention.ms"),
        ("etention.ms", "retention.ms"),
        ("max.messages.bytes", "max.message.bytes"),
        ("nothing.like.it", None),
        ("", None),
        ("x" * 30_000, None),
    ],
)
def test_a_name_with_a_slip_in_one_place_is_known(name: str, meant: str | None) -> None:
    assert nearest(name, TABLE_OF_TOPICS) == meant


def test_an_unknown_name_is_compared_with_few_steps() -> None:
    """A request may have thousands; difflib made two thousand calls for each."""
    calls = 0

    def called(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event.endswith("call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        nearest("retention.millis", TABLE_OF_TOPICS)
    finally:
        sys.setprofile(before)
    assert calls < 10 * len(TABLE_OF_TOPICS)
