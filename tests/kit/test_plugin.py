"""Async tests, each on a loop of its own: virtual, under several schedules, or real."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.loop import LivelockError, SimLoop, current, run_test, take_failures


async def order() -> tuple[int, ...]:
    """In which order the loop runs what is ready."""
    ran: list[int] = []
    for number in range(5):
        current().call_soon(ran.append, number)
    while len(ran) < 5:
        await asyncio.sleep(0.001)
    return tuple(ran)


def order_of(seed: int) -> tuple[int, ...]:
    found: list[tuple[int, ...]] = []

    async def body() -> None:
        found.append(await order())

    run_test(body, seed=seed)
    return found[0]


async def test_an_async_test_waits_for_nothing() -> None:
    begun_s = time.monotonic()
    await asyncio.sleep(86_400)
    assert current().time() >= 86_400
    assert time.monotonic() - begun_s < 3600


@pytest.mark.parametrize("seed", range(8))
async def test_the_seed_of_a_test_draws_its_schedule(
    seed: int, draws: dict[int, tuple[int, ...]]
) -> None:
    assert await order() == draws[seed]


@pytest.fixture(scope="module")
def draws() -> dict[int, tuple[int, ...]]:
    drawn = {seed: order_of(seed) for seed in range(8)}
    assert len(set(drawn.values())) > 1
    return drawn


seen: list[tuple[int, ...]] = []


@pytest.mark.schedules(8)
async def test_a_test_may_try_several_schedules_by_itself(
    draws: dict[int, tuple[int, ...]],
) -> None:
    seen.append(await order())
    assert seen[-1] == draws[len(seen) - 1]


@pytest.mark.real_loop
async def test_a_test_may_ask_for_the_real_loop() -> None:
    assert not isinstance(asyncio.get_running_loop(), SimLoop)


def test_what_a_test_leaves_behind_is_cancelled() -> None:
    left: list[asyncio.Task[object]] = []

    async def body() -> None:
        left.append(asyncio.ensure_future(asyncio.Event().wait()))

    run_test(body)
    assert left[0].cancelled()


async def test_an_error_that_nobody_caught_is_kept_for_who_expects_it() -> None:
    current().call_soon(lambda: 1 / 0)
    await asyncio.sleep(1)
    (failure,) = take_failures()
    assert "ZeroDivisionError" in failure


def test_an_error_that_nobody_caught_fails_the_test() -> None:
    async def body() -> None:
        current().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_test(body)


def test_a_test_that_goes_round_in_circles_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.kit.loop.STEPS_MAX", 1000)

    async def body() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LivelockError):
        run_test(body)


@given(st.integers(0, 3))
async def test_hypothesis_draws_for_async_tests(seconds: int) -> None:
    assert current().time() == 0
    await asyncio.sleep(seconds)
    assert current().time() == seconds
