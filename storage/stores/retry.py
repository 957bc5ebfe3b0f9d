"""Makes an operation again until it is done: the shell of `retry_policy`.

The same call is made each time, so an attempt that took effect without an answer must do no harm:
the port's calls may all be repeated. What repeating will not change (StoreRefusedError and the
other definite answers) is raised at once. An adapter may repeat a request within an attempt.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from storage.stores.object_store import StoreUnavailableError
from storage.stores.retry_policy import NO_LIMIT, RetryPolicy

T = TypeVar("T")


async def until_done(
    call: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    tell: Callable[[Exception, int], None],
    passing: tuple[type[Exception], ...] = (StoreUnavailableError,),
    byte_count: int = 0,
    deadline: float = NO_LIMIT,
    rng: random.Random | None = None,
) -> T:
    """What `call` returns at last.

    `tell` has each error before the call is made again, and how many there were. `passing`: errors
    that may pass; an attempt without an answer in time is StoreUnavailableError. `byte_count`: so many
    are moved at most; an attempt has time for them. `deadline`: in the loop's time. `rng` spreads the
    delays of those whom many others do the same as.

    Raises the last error when policy or deadline say so, and all others at once.
    """
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        until = min(deadline, loop.time() + policy.attempt_s(byte_count))
        try:
            async with asyncio.timeout_at(None if until == NO_LIMIT else until):
                return await call()
        except TimeoutError:
            error: Exception = StoreUnavailableError("no answer in time")
        except passing as passed:
            error = passed
        failures += 1
        delay_s = policy.delay_s(failures, chance=1.0 if rng is None else rng.random())
        if failures >= policy.attempts_max or loop.time() + delay_s >= deadline:
            raise error
        tell(error, failures)
        await asyncio.sleep(delay_s)
