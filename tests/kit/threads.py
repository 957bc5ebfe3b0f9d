"""What stands for threads on virtual time: it says what ran there, and can be held."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol import record_scan
from tests.kit.loop import SimLoop


class Threads:
    """Stands for the threads: says what ran there, and holds it while `gate` is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slices = 0
        self.inside = False
        self.gate = asyncio.Event()
        self.gate.set()
        monkeypatch.setattr(SimLoop, "run_in_executor", self._start)
        heads = record_scan.heads

        def watched(*arguments: Any, **named: Any) -> Iterator[Any]:
            found = heads(*arguments, **named)
            while True:
                self.scanned.append(self.inside)
                try:
                    yield next(found)
                except StopIteration:
                    return

        self.scanned: list[bool] = []
        """Of each slice of records that was looked at: whether that was in a thread."""
        monkeypatch.setattr(record_scan, "heads", watched)

    def _start(self, *work: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_task(self._run(*work))

    async def _run(self, _executor: object, work: Callable[..., Any], *arguments: Any) -> Any:
        self.slices += 1
        await self.gate.wait()
        self.inside = True
        try:
            return work(*arguments)
        finally:
            self.inside = False
