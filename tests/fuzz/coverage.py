"""Which lines of the product an input reaches, seen on a sample of the inputs."""

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

from tests.fuzz.verdict import ROOT

T = TypeVar("T")
PACKAGES = tuple(
    f"{ROOT}/{name}/"
    for name in ("protocol", "storage", "txn", "coordinator", "broker", "iceberg_export")
)


class Lines:
    """The lines that any traced run has reached."""

    def __init__(self) -> None:
        self.reached: set[tuple[CodeType, int]] = set()
        self._ours: dict[CodeType, bool] = {}

    def tracing(self, run: Callable[[], T]) -> tuple[T, bool]:
        """What `run` returns, and whether it reached a line that none before reached."""
        before = len(self.reached)
        sys.settrace(self._called)
        try:
            result = run()
        finally:
            sys.settrace(None)
        return result, len(self.reached) > before

    def _called(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            ours = self._ours[code] = code.co_filename.startswith(PACKAGES)
        return self._line if ours else None

    def _line(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        self.reached.add((frame.f_code, frame.f_lineno))
        return self._line
