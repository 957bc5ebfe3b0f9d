"""Levels of loggers while the process runs (KIP-412), with Kafka's refusals."""

import logging
from collections.abc import Iterator

import pytest

from broker.config.changes import AlterConfigOp, OpType
from broker.dynamic import logger_levels
from protocol.errors import KafkaError

NAME = "broker.dynamic.of_a_test"


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    before = logging.root.level
    logging.getLogger(NAME)
    yield
    logging.root.setLevel(before)
    for name in (NAME, NAME.rpartition(".")[0]):
        logging.getLogger(name).setLevel(logging.NOTSET)


def operation(name: str, op: int, value: str | None = None) -> AlterConfigOp:
    return AlterConfigOp(name, op, value)


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
def test_a_level_that_is_set_is_told_and_holds(level) -> None:
    logger_levels.apply([operation(NAME, OpType.SET, level)])
    assert logger_levels.levels()[NAME] == level
    assert logging.getLogger(NAME).isEnabledFor(logger_levels.LEVELS[level])
    assert not logging.getLogger(NAME).isEnabledFor(logger_levels.LEVELS[level] - 1)


def test_a_place_in_the_tree_is_a_logger_and_what_is_below_follows_it() -> None:
    parent = NAME.rpartition(".")[0]
    logger_levels.validate([operation(parent, OpType.SET, "DEBUG")])
    logger_levels.apply([operation(parent, OpType.SET, "DEBUG")])
    assert logger_levels.levels()[NAME] == "DEBUG"
    logger_levels.apply([operation(parent, OpType.DELETE)])
    assert logger_levels.levels()[NAME] == logger_levels.levels()[logger_levels.ROOT]


def test_a_place_in_the_tree_where_nobody_logs_has_the_level_of_the_logger_above() -> None:
    top = "of_a_test_with_a_tree"
    logging.getLogger(f"{top}.nobody.somebody")
    logger_levels.apply([operation(top, OpType.SET, "FATAL")])
    assert logger_levels.levels()[f"{top}.nobody"] == "FATAL"


def test_the_root_is_that_of_python() -> None:
    logger_levels.apply([operation("root", OpType.SET, "ERROR")])
    assert logging.root.level == logging.ERROR
    assert logger_levels.levels()["root"] == "ERROR"
    logging.root.setLevel(100)
    assert logger_levels.levels()["root"] == "OFF"


@pytest.mark.parametrize(
    ("operations", "code", "sentence"),
    [
        (
            [operation("root", OpType.SET, "LOUD")],
            40,
            (
                "Cannot set the log level of root to LOUD as it is not a supported log level."
                " Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
            ),
        ),
        ([operation("no.such", OpType.SET, "INFO")], 40, "Logger no.such does not exist!"),
        ([operation("no.such", OpType.DELETE)], 40, "Logger no.such does not exist!"),
        (
            [operation("root", OpType.DELETE)],
            42,
            "Removing the log level of the root logger is not allowed",
        ),
        (
            [operation("root", OpType.APPEND, "INFO")],
            42,
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            [operation("root", OpType.SUBTRACT, "INFO")],
            42,
            "SUBTRACT operation is not allowed for the BROKER_LOGGER resource",
        ),
        (
            [operation("root", 9, "INFO")],
            42,
            "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource",
        ),
        ([operation("root", OpType.SET, None)], 42, "Null value not supported for : root"),
        (
            [operation("root", OpType.SET, "INFO"), operation("root", OpType.SET, "WARN")],
            42,
            "Error due to duplicate config keys",
        ),
    ],
)
def test_what_is_no_level_of_a_logger_is_refused_as_kafka_does(operations, code, sentence) -> None:
    with pytest.raises(KafkaError) as refused:
        logger_levels.validate(operations)
    assert (refused.value.code, refused.value.message) == (code, sentence)
