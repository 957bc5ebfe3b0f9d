"""Sizes and lengths of time, as people write and read them."""

import argparse

import pytest

from iceberg_export.units import parse_bytes, parse_duration_ms, show_bytes, show_duration

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90", 90_000), ("300s", 300_000), ("5m", 300_000), ("1H", HOUR_MS), ("250ms", 250)],
)
def test_lengths_of_time_are_read(text, milliseconds):
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "count"), [("1000", 1000), ("64g", 64 << 30), ("512 MiB", 512 << 20), ("1kb", 1024)]
)
def test_sizes_are_read(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "0", "-1", "5 parsecs", "1.5g"])
def test_what_is_no_size_and_no_time_is_refused(text):
    for read in (parse_bytes, parse_duration_ms):
        with pytest.raises(argparse.ArgumentTypeError):
            read(text)


def test_sizes_are_shown_with_three_digits():
    shown = [show_bytes(count) for count in (0, 999, 1000, 1 << 20, 150 << 20, 3 << 40)]
    assert shown == ["0 B", "999 B", "1.0 KiB", "1.0 MiB", "150 MiB", "3.0 TiB"]


def test_lengths_of_time_are_shown_with_two_digits_or_in_hours():
    shown = [show_duration(ms) for ms in (999, 99_999, 100_000, 5_999_999, 6_000_000, 864_000_000)]
    assert shown == ["0 s", "99 s", "1 min", "99 min", "1 h", "240 h"]
