"""Lengths of time and of data as people write them: `300s`, `5m`, `64g`. Pure."""

import argparse
import re

_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_duration_ms(text: str) -> int:
    """`90`, `90s`, `5m`, `1h`, `250ms`: milliseconds, more than none; plain numbers are seconds.

    Raises ArgumentTypeError, which argparse prints.
    """
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)?", text.strip().lower())
    if not found or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time like 300s, 5m or 1h")
    return int(found[1]) * _MILLISECONDS[found[2] or "s"]


def parse_bytes(text: str) -> int:
    """`1000`, `512m`, `64g`, `1GiB`: bytes, more than none; units are powers of 1024."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if not found or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size like 1000, 512m or 64g")
    return int(found[1]) * _BYTES[found[2]]


def show_bytes(count: int) -> str:
    """For people: three digits at most and a unit."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


def show_duration(milliseconds: int) -> str:
    """For people: one number of at most two digits, or of hours, and a unit."""
    seconds = milliseconds // 1000
    if seconds < 100:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 6000 else f"{seconds // 3600} h"
