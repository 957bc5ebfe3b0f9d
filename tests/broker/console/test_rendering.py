"""Numbers, sizes and times as people read them."""

import pytest

from broker.console.rendering import count_text, duration_text, size_text


@pytest.mark.parametrize(("number", "text"), [(None, "-"), (0, "0"), (1234567, "1,234,567")])
def test_counts(number: int | None, text: str) -> None:
    assert count_text(number) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1023 * 1024, "0.999 MiB"),
        (5 << 30, "5 GiB"),
        (1 << 70, "1.05e+06 PiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (-5, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (119_999, "119 s"),
        (120_000, "2 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
    ],
)
def test_durations(time_ms: int, text: str) -> None:
    assert duration_text(time_ms) == text
