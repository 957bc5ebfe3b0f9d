"""Levels of this process's loggers, as resources of type BROKER_LOGGER (KIP-412).

Names are those of Python's logging, whose tree is that of the modules: "broker.edge" is all of its
modules that have no level of their own. Kafka's name for the top is "root". A level holds in
this process, not in the worker of the jobs, until the process ends.
"""

import logging
from collections.abc import Sequence
from typing import Final

from broker.config.changes import AlterConfigOp, OpType, refuse_doubtful
from protocol.errors import ErrorCode, KafkaError

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's, ascending, and their numbers in Python. What is above them is told as OFF, and cannot be set."""


def levels() -> dict[str, str]:
    """Of every logger, by name, sorted: the level that holds."""
    names = sorted([*logging.root.manager.loggerDict])
    return {ROOT: _level(ROOT)} | {name: _level(name) for name in names}


def _level(name: str) -> str:
    number = _effective(name)
    return next((level for level, most in LEVELS.items() if number <= most), "OFF")


def _effective(name: str) -> int:
    """Of a logger, or of a place in the tree where there is none."""
    while name != ROOT:
        logger = logging.root.manager.loggerDict.get(name)
        if isinstance(logger, logging.Logger):
            return logger.getEffectiveLevel()
        name = name.rpartition(".")[0] or ROOT
    return logging.root.level


def validate(operations: Sequence[AlterConfigOp]) -> None:
    """Raises KafkaError, as Kafka's RuntimeLoggerManager."""
    refuse_doubtful(operations)
    for name, operation, value in operations:
        if operation not in (OpType.SET, OpType.DELETE):
            what = f"Unknown operation type {operation}"
            if operation in [*OpType]:
                what = f"{OpType(operation).name} operation"
            reason = f"{what} is not allowed for the BROKER_LOGGER resource"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        if name != ROOT and name not in logging.root.manager.loggerDict:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == OpType.SET and value not in LEVELS:
            reason = (
                f"Cannot set the log level of {name} to {value} as it is not a supported log level."
                f" Valid log levels are {', '.join(sorted(LEVELS))}"
            )
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        if operation == OpType.DELETE and name == ROOT:
            reason = f"Removing the log level of the {ROOT} logger is not allowed"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def apply(operations: Sequence[AlterConfigOp]) -> None:
    """Validated before. What is deleted has the level of the logger above it."""
    for name, operation, value in operations:
        logger = logging.root if name == ROOT else logging.getLogger(name)
        level = logging.NOTSET
        if operation == OpType.SET:
            assert value is not None
            level = LEVELS[value]
        logger.setLevel(level)
