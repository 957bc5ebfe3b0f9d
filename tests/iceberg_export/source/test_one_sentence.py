"""What Spark prints of errors: Spark formats them as `traceback` does."""

import traceback
from collections.abc import Callable, Iterator

import pytest

from iceberg_export.errors import AgentError, ExportError, SettingsError
from iceberg_export.source.data_source import FrazilDataSource
from iceberg_export.source.one_sentence import each_in_one_sentence, one_sentence


def printed(call: Callable[[], object]) -> list[str]:
    """The lines that Spark prints."""
    try:
        call()
    except Exception:  # noqa: BLE001 - Whatever it is.
        return traceback.format_exc().splitlines()
    raise AssertionError("nothing was raised")


def fail() -> None:
    try:
        raise OSError("connection refused")
    except OSError as error:
        raise AgentError("no agent answers; set agent to a live one") from error


def test_an_error_of_ours_is_its_sentence_and_not_the_way_to_it() -> None:
    lines = printed(one_sentence(fail))
    assert (
        lines[-1] == "iceberg_export.errors.AgentError: no agent answers; set agent to a live one"
    )
    assert "connection refused" not in "\n".join(lines)
    assert len(lines) < len(printed(fail))
    assert not any("in fail" in line for line in lines)


def test_what_spark_names_is_handed_on() -> None:
    @one_sentence
    def reader(*, schema: str) -> str:
        return schema

    assert reader(schema="s") == "s"


def test_an_error_that_nobody_foresaw_keeps_its_way() -> None:
    def bug() -> None:
        raise KeyError("x")

    assert any("in bug" in line for line in printed(one_sentence(bug)))


def test_rows_come_until_the_error_which_is_its_sentence() -> None:
    def rows() -> Iterator[int]:
        yield 1
        yield 2
        raise ExportError("a chunk is gone")

    found: list[int] = []
    with pytest.raises(ExportError, match="a chunk is gone") as raised:
        found.extend(each_in_one_sentence(rows()))
    assert raised.value.__cause__ is None
    assert list(each_in_one_sentence(iter([1, 2]))) == [1, 2]


def test_what_spark_calls_says_its_errors_so() -> None:
    source = FrazilDataSource({"topic": "orders", "agent": "nowhere"})
    lines = printed(source.schema)
    assert "is not an address like http://host:9094" in lines[-1]
    assert not any("agent_client" in line for line in lines)
    with pytest.raises(SettingsError):
        FrazilDataSource({}).schema()
