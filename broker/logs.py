"""Structured log lines on standard error: `key=value` text, or a JSON object per line.

Modules log through `logging.getLogger(__name__)` with plain messages; `extra={...}` adds keys. The key
`code` says what somebody must mend (`protocol.fault_codes`): in text it ends the message, in brackets.
Every line has one shape, also those of libraries, and never a line break or another control
character within it, so that a collector can split at line ends and a terminal obeys nobody. Nor is
one longer than about `VALUE_CHARACTERS_MAX` and a traceback: names of groups, topics and subjects
come from whoever connects.

Left out: files, rotation, shipping; whoever runs the process does that.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from typing_extensions import override

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

VALUE_CHARACTERS_MAX: Final = 4_000
"""Of a message, and of each key's value."""
EXCEPTION_CHARACTERS_MAX: Final = 20_000
"""Its end is kept, which says what went wrong."""

_QUIET = ("aiobotocore", "aiohttp", "asyncio", "botocore", "grpc", "urllib3")
"""Libraries that tell each request; their warnings are enough."""


class TextFormatter(logging.Formatter):
    """`2026-11-21T10:00:00.123Z INFO broker.agent: the agent is ready node_id=3`."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {record.name}: {_cut(record.getMessage())}"
        extras = _extras(record)
        if (code := extras.pop("code", None)) is not None:
            line += f" [{code}]"
        for key, value in extras.items():
            line += f" {key}={_quoted(_cut(str(value)))}"
        if record.exc_info:
            line += f" exception={_quoted(_end_of(self.formatException(record.exc_info)))}"
        return printable(line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the extra keys."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
        }
        line |= {
            key: _cut(value) if isinstance(value, str) else value
            for key, value in _extras(record).items()
        }
        if record.exc_info:
            line["exception"] = _end_of(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def printable(line: str) -> str:
    """The line with everything escaped that a terminal or a collector might obey: names of clients,
    topics and paths come from whoever connects. JSON needs none of it: its writer leaves ASCII."""
    if line.isprintable():
        return line
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in line
    )


class _WorkerField(logging.Filter):
    """Says on each line whose it is."""

    def __init__(self, worker: str | int) -> None:
        super().__init__()
        self._worker = worker

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        record.worker = self._worker
        return True


def set_up(
    *, level: str, form: str, stream: TextIO | None = None, worker: str | int | None = None
) -> None:
    """Send all log lines of the process to `stream` (standard error); replaces what was set up.

    `worker`: of several processes that write to the same place, this one."""
    handler = logging.StreamHandler(stream or sys.stderr)
    if worker is not None:
        handler.addFilter(_WorkerField(worker))
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    # A reader that went away (`2>&1 | head`) is no reason to print tracebacks.
    logging.raiseExceptions = False


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _cut(text: str) -> str:
    more = len(text) - VALUE_CHARACTERS_MAX
    return text if more <= 0 else f"{text[:VALUE_CHARACTERS_MAX]}... ({more} more)"


def _end_of(text: str) -> str:
    more = len(text) - EXCEPTION_CHARACTERS_MAX
    return text if more <= 0 else f"({more} more) ...{text[more:]}"


def _quoted(text: str) -> str:
    """The text itself when it is one word, else as a JSON string."""
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain else json.dumps(text)
