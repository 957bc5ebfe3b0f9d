"""Every promise has tests that break when it does, and `docs/promises-and-tests.md` names them.

That the tests do break, `make mutants` shows.
"""

import pytest

from tests import promises

PROMISES = tuple(f"P{number}" for number in range(1, 18))


def test_the_promises_are_p1_to_p17() -> None:
    assert tuple(promises.summaries()) == PROMISES


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_has_at_least_two_tests(promise: str) -> None:
    assert len(promises.marked().get(promise, [])) >= 2


def test_marks_name_promises_that_there_are() -> None:
    assert set(promises.marked()) <= set(PROMISES)


def test_the_page_is_what_the_marks_say() -> None:
    assert promises.PAGE.read_text() == promises.page(), "run python -m tests.promises"


def test_a_mark_is_read_with_the_test_that_it_decorates() -> None:
    source = '@pytest.mark.promise("P4", "P5")\n@given(x)\nasync def test_it(): ...\n'
    assert promises.marks(source, "test_some.py") == [("test_it", ["P4", "P5"])]


@pytest.mark.parametrize(
    "source",
    [
        'pytestmark = pytest.mark.promise("P4")\n',
        '@pytest.mark.promise("P4")\ndef helps(): ...\n',
        'class TestIt:\n    @pytest.mark.promise("P4")\n    def test_it(self): ...\n',
        "@pytest.mark.promise(NAME)\ndef test_it(): ...\n",
        "@pytest.mark.promise()\ndef test_it(): ...\n",
        "@pytest.mark.promise\ndef test_it(): ...\n",
    ],
)
def test_a_mark_that_would_be_missed_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=r"test_some\.py marks a promise"):
        promises.marks(source, "test_some.py")
