"""Who gets which file of tests next."""

import pytest

from tests.parts.dealing import folder_of, next_file

LEFT = ["tests/a/test_long.py", "tests/b/c/test_shorter.py", "tests/d/test_short.py"]


@pytest.mark.parametrize(
    ("own", "taken", "expected"),
    [
        (set(), set(), "tests/a/test_long.py"),
        (set(), {"tests/a"}, "tests/b/c/test_shorter.py"),
        ({"tests/d"}, {"tests/a", "tests/d"}, "tests/d/test_short.py"),
        ({"tests/e"}, {"tests/a", "tests/b", "tests/e"}, "tests/d/test_short.py"),
        ({"tests/e"}, {"tests/a", "tests/b", "tests/d", "tests/e"}, "tests/a/test_long.py"),
    ],
    ids=[
        "the first process begins with the longest",
        "the next one goes where nobody is",
        "then each stays in its folder",
        "until that is done, and goes where nobody was",
        "and helps with the longest in the end",
    ],
)
def test_a_process_goes_on_in_its_folder(own: set[str], taken: set[str], expected: str) -> None:
    assert next_file(LEFT, own=own, taken=taken) == expected


def test_a_folder_is_what_shares_servers() -> None:
    assert folder_of("tests/iceberg_export/runs/test_s3.py") == "tests/iceberg_export"
    assert folder_of("tests/test_demo.py") == "tests/test_demo.py"
