"""A plugin of pytest: `async def test_…` runs on an event loop of its own, the virtual one unless told.

The virtual loop (`tests.kit.loop`) draws its schedule from the test's `seed` when it has one, so
`@pytest.mark.parametrize("seed", range(5))` tries five schedules, each with fixtures of its own.
`@pytest.mark.schedules(5)` does so within one test, for bodies that make all they need themselves.
`@pytest.mark.real_loop` is for real sockets, threads and time.

When the body is over, tasks that it left behind are cancelled. On the virtual loop an error that
nobody caught fails the test; one that expects such errors takes them (`tests.kit.loop.take_failures`).
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.kit import late_accepts
from tests.kit import loop as virtual

SEED = 1
Runs = Callable[..., None]


def pytest_configure(config: pytest.Config) -> None:
    late_accepts.mend()
    config.addinivalue_line(
        "markers", "real_loop: an async test that needs sockets, threads or time"
    )
    config.addinivalue_line(
        "markers", "schedules(n): an async test runs n times, by seeds 0 to n - 1"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test. None: pytest runs it, as all others."""
    given = getattr(pyfuncitem.obj, "hypothesis", None)
    if given is not None and inspect.iscoroutinefunction(given.inner_test):
        # Each of Hypothesis' cases is a run of its own.
        given.inner_test = _running(pyfuncitem, given.inner_test)
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    _running(pyfuncitem, pyfuncitem.obj)(**{name: pyfuncitem.funcargs[name] for name in names})
    return True


def _running(item: pytest.Function, body: Callable[..., Coroutine[Any, Any, None]]) -> Runs:
    """The body as a plain function, which runs it on the loop that the test asks for."""

    @functools.wraps(body)
    def run(*arguments: Any, **named: Any) -> None:
        if item.get_closest_marker("real_loop") is not None:
            with asyncio.Runner() as runner:
                runner.run(body(*arguments, **named))
            return
        for seed in _seeds(item):
            virtual.run_test(lambda: body(*arguments, **named), seed=seed)

    return run


def _seeds(item: pytest.Function) -> list[int]:
    schedules = item.get_closest_marker("schedules")
    if schedules is not None:
        return [*range(schedules.args[0])]
    drawn: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    return [drawn.get("seed", SEED)]
