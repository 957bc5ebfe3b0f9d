"""Values at the ends of Iceberg's types, and what Iceberg's Java library makes of each.

`CASES_FILE` has one line per case: type, transform, value and the result, between tabs. Values are
whole numbers (days, microseconds, nanoseconds; of decimals the unscaled number), the bits of floats
in hex, the bytes of everything else in hex, where `61*9` is nine times 61. Results are spelled alike;
of more than 64 bytes there is the length and the beginning of a SHA-256. `refused`: the transform does
not take the type. `cannot be written`: the result is none of its type. Beside the transforms there are
lower[n] and upper[n], the bounds that a file's metrics have of columns.

Java's words are obtained anew by `python -m tests.iceberg_export.files.transform_cases`, which writes the
file; a test with Java tells when it says something else.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.parts import install

HERE = Path(__file__).parent
CASES_FILE = HERE / "transform_cases.tsv"
JAVA = HERE / "java" / "Transforms.java"

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
TRANSFORMS = (
    *("identity", "void", "year", "month", "day", "hour"),
    *("bucket[1]", "bucket[16]", f"bucket[{INT_MAX}]"),
    *("truncate[1]", "truncate[7]", f"truncate[{INT_MAX}]"),
)
BOUNDS = ("lower[1]", "lower[16]", "upper[1]", "upper[16]")
DAY_S = 86_400
SECONDS = (
    *(0, 1, 3599, 3600, DAY_S - 1, DAY_S),
    # A second after a month and a year before 1970 began.
    *(2_678_399, 31_535_999),
    # 1900, no leap year, and 2000, a leap year: the ends of February.
    *(-2_203_891_201, -2_203_891_200, 951_782_400, 951_868_799, 951_868_800),
    # The years 1 and 9999, the ends of Python's calendar, and what lies behind them.
    *(-62_135_596_801, -62_135_596_800, 253_402_300_799, 253_402_300_800),
)
DATES = (0, 1, 30, 31, 364, 365, 11_016, 11_017, 2_932_896, 2_932_897, INT_MAX - 1, INT_MAX)
DATES_BEFORE = (1, 30, 31, 365, 366, 25_508, 25_509, 719_162, 719_163, INT_MAX, INT_MAX + 1)
SMALL = (0, 1, 6, 7, 8, 127, 128, 129, 255, 256, 1_000_001)
TEXTS = (
    *("", "00", "61", "61*7", "61*8", "61*16", "61*17", "61*100000", "7f*17", "c3a9*17"),
    # The ends of what code points there are, around the surrogates and at the very end.
    *("ed9fbf*17", "ee8080*17", "efbfbf*17", "f0908080*17", "f48fbfbf", "f48fbfbf*17"),
    *("61f48fbfbf*9", "f09f9880*8", "65cc81*9"),
)
BINARIES = ("", "00", "ff", "00*17", "ff*7", "ff*16", "ff*17", "61ff*9", "61*100000", "7fff*16")
FLOATS = ("00000000", "80000000", "00000001", "80000001", "3f800000", "bfc00000", "7f7fffff",
          "ff7fffff", "7f800000", "ff800000", "7fc00000", "ffc00001")  # fmt: skip
DOUBLES = ("0000000000000000", "8000000000000000", "0000000000000001", "3ff0000000000000",
           "bff8000000000000", "7fefffffffffffff", "ffefffffffffffff", "7ff0000000000000",
           "fff0000000000000", "7ff8000000000000", "fff8000000000001")  # fmt: skip


class Case(NamedTuple):
    type: str
    transform: str
    value: str
    result: str


def cases() -> list[Case]:
    """As they were written down."""
    lines = CASES_FILE.read_text(encoding="ascii").splitlines()
    return [Case(*line.split("\t")) for line in lines]


def _integers(greatest: int) -> tuple[int, ...]:
    ends = (greatest - 7, greatest - 1, greatest)
    both = {sign * one for one in (*SMALL, *ends) for sign in (1, -1)}
    return tuple(sorted(both | {-greatest - 1}))


def _decimals(precision: int) -> tuple[int, ...]:
    greatest = 10**precision - 1
    ends = {greatest, greatest - 1, greatest // 2, *(one for one in SMALL if one <= greatest)}
    return tuple(sorted(ends | {-one for one in ends}))


def _moments(per_second: int) -> tuple[int, ...]:
    around = {
        sign * one * per_second + more for one in SECONDS for sign in (1, -1) for more in (-1, 0, 1)
    }
    ends = {LONG_MAX, LONG_MAX - 1, -LONG_MAX, -LONG_MAX - 1}
    return tuple(sorted({one for one in around if abs(one) <= LONG_MAX} | ends))


def values() -> dict[str, tuple[str, ...]]:
    """The values that are tried, by type."""
    numbers: dict[str, tuple[int, ...]] = {
        "int": _integers(INT_MAX),
        "long": _integers(LONG_MAX),
        "date": tuple(sorted({*DATES, *(-one for one in DATES_BEFORE)})),
        "time": (0, 1, 999_999, DAY_S * 500_000, DAY_S * 1_000_000 - 1),
        "timestamp": _moments(1_000_000),
        "timestamptz": (-LONG_MAX - 1, -1, 0, LONG_MAX),
        "timestamp_ns": _moments(1_000_000_000),
        "timestamptz_ns": (-LONG_MAX - 1, -1, 0, LONG_MAX),
    }
    for precision, scale in ((1, 0), (9, 2), (18, 0), (19, 4), (38, 0), (38, 38)):
        numbers[f"decimal({precision},{scale})"] = _decimals(precision)
    return {
        **{kind: tuple(map(str, some)) for kind, some in numbers.items()},
        "boolean": ("true", "false"),
        "float": FLOATS,
        "double": DOUBLES,
        "string": TEXTS,
        "binary": BINARIES,
        "fixed[4]": ("00000000", "ffffffff", "61ff00ff"),
        "uuid": ("00*16", "ff*16", "f79c3e09677c4bbda47903f04a1f4d4b"),
    }


def _questions() -> Iterator[tuple[str, str, str]]:
    for kind, some in values().items():
        bounds = BOUNDS if kind in {"string", "binary"} else ()
        for transform in (*TRANSFORMS, *bounds):
            for value in some:
                yield kind, transform, value


def ask_java() -> list[Case]:
    """Each case as Iceberg's Java library answers it; one for all values that are refused."""
    questions = list(_questions())
    answers = subprocess.run(
        [
            *(*install.jvm("256m"), "-cp", f"{install.iceberg_spark()}/*", str(JAVA)),
        ],
        input="".join("\t".join(one) + "\n" for one in questions),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(answers) == len(questions)
    found: dict[object, Case] = {}
    for one, answer in zip(questions, answers, strict=True):
        found.setdefault(one[:2] if answer == "refused" else one, Case(*one, answer))
    return list(found.values())


if __name__ == "__main__":
    CASES_FILE.write_text("".join("\t".join(one) + "\n" for one in ask_java()), encoding="ascii")
