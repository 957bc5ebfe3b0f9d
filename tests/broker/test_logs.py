"""Log lines: one shape, one line each."""

import json
import logging

import pytest

from broker.logs import (
    EXCEPTION_CHARACTERS_MAX,
    VALUE_CHARACTERS_MAX,
    JsonFormatter,
    TextFormatter,
)


def record(message: str, **extra: object) -> logging.LogRecord:
    values = {"name": "broker.agent", "levelname": "INFO", "msg": message, "created": 0.5}
    return logging.makeLogRecord(values | {"msecs": 500.0} | extra)


def test_text_line_has_time_level_logger_message_and_keys() -> None:
    line = TextFormatter().format(record("ready", node_id=3, zone="eu 1"))
    assert line == '1970-01-01T00:00:00.500Z INFO broker.agent: ready node_id=3 zone="eu 1"'


def test_a_code_ends_the_message_of_a_text_line_and_is_a_field_in_json() -> None:
    coded = record("the disk is full", code="disk-full", node_id=3)
    assert TextFormatter().format(coded).endswith("agent: the disk is full [disk-full] node_id=3")
    line = json.loads(JsonFormatter().format(coded))
    assert (line["message"], line["code"]) == ("the disk is full", "disk-full")


def test_json_line_is_an_object() -> None:
    line = json.loads(JsonFormatter().format(record("ready", node_id=3)))
    assert line["message"] == "ready"
    assert line["node_id"] == 3
    assert line["time"] == "1970-01-01T00:00:00.500Z"


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_message_with_line_breaks_stays_on_one_line(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    line = formatter.format(record("one\r\ntwo", exc_info=info))
    assert "\n" not in line
    assert "\r" not in line


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_control_characters_of_whoever_connects_are_escaped(formatter: logging.Formatter) -> None:
    evil = "a\x1b[2Jb\x00\x9b\u2028\u202e\x7f"
    line = formatter.format(record(f"client {evil} left", client=evil))
    assert line.isprintable()
    assert "client a" in line


def test_letters_of_any_language_stay_as_they_are() -> None:
    assert "Größe 日本" in TextFormatter().format(record("Größe 日本"))


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_line_is_bounded_whatever_is_told(formatter: logging.Formatter) -> None:
    long = "x" * 1_000_000
    try:
        raise ValueError(f"{long}, that is why")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    line = formatter.format(record(f"client {long} left", client=long, exc_info=info))
    assert len(line) < 2 * VALUE_CHARACTERS_MAX + EXCEPTION_CHARACTERS_MAX + 1_000
    assert "client x" in line
    assert "that is why" in line


def test_lists_stay_lists_in_json() -> None:
    assert json.loads(JsonFormatter().format(record("bound", ports=[1, 2])))["ports"] == [1, 2]
