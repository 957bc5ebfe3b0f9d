"""Levels of loggers are a process's: an agent's administrator sets those of the tests, too (KIP-412)."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Afterwards all levels are as they were before."""
    before = {logger: logger.level for logger in _loggers()}
    try:
        yield
    finally:
        for logger in _loggers():
            logger.setLevel(before.get(logger, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    known = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(each for each in known if isinstance(each, logging.Logger))]
