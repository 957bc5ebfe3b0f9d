"""A coroutine whose steps are counted for the request that it works on. Pure: it only passes on."""

from collections.abc import Coroutine, Generator
from typing import Any

from broker.quotas.quotas import Usage


async def counted(work: Coroutine[Any, Any, None], usage: Usage) -> None:
    """Do the work; what it takes of the loop is the request's."""
    await _Steps(work, usage)


class _Steps:
    def __init__(self, work: Coroutine[Any, Any, None], usage: Usage) -> None:
        self._work = work
        self._usage = usage

    def __await__(self) -> Generator[Any, None, None]:
        work, usage = self._work, self._usage
        thrown: BaseException | None = None
        while True:
            usage.begin()
            try:
                awaited = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration:
                return
            finally:
                usage.end()
            thrown = None
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - The work says what becomes of it.
                thrown = error
