"""The supervisor over workers without processes: who is started again, who ends all, what all say."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from broker.config.settings import load
from broker.workers import life, messages, supervisor
from broker.workers.messages import Subject, What
from broker.workers.seats import Seat
from broker.workers.supervisor import Supervisor, WorkersError
from tests.broker.workers.fakes import FakeWorker, FakeWorkers

pytestmark = pytest.mark.real_loop


class Scene:
    """A supervisor of two workers, and what it said."""

    def __init__(self) -> None:
        self.fakes = FakeWorkers()
        self.announced: list[str] = []
        places = [Seat(each, 2, "pod-0", {"PLAINTEXT": 9092}, (), ()) for each in (1, 2)]
        self.supervisor = Supervisor(
            places,
            {"flags": ["zone=a"]},
            drain_ms=10_000,
            announce=self.announced.append,
            spawn=self.fakes.spawn,
        )
        self.running = asyncio.create_task(self.supervisor.run())

    async def two(self) -> list[FakeWorker]:
        """Both, serving, in their order."""
        both = [await self.fakes.next(), await self.fakes.next()]
        for worker in both:
            worker.serve()
        return sorted(both, key=lambda worker: int(worker.seat["number"]))

    async def ended(self) -> int:
        async with asyncio.timeout(10):
            return await self.running


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    try:
        yield made
    finally:
        made.running.cancel()
        with contextlib.suppress(asyncio.CancelledError, WorkersError):
            await made.running


async def test_it_says_once_that_all_serve() -> None:
    async with scene() as here:
        first, second = await here.two()
        assert [first.seat["number"], second.seat["number"]] == [1, 2]
        second.end(-9)
        again = await here.fakes.next()
        again.serve()
        here.supervisor.leave()
        await first.expect(What.LEAVE)
        assert here.announced == ["serving PLAINTEXT=127.0.0.1:9092 workers=2"]


async def test_a_worker_that_dies_is_started_again_in_its_seat_and_the_other_goes_on() -> None:
    async with scene() as here:
        first, second = await here.two()
        second.end(-11)
        again = await here.fakes.next()
        assert again.seat == second.seat
        assert first.returncode is None


async def test_a_worker_for_which_there_is_no_descriptor_is_started_later_and_the_other_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scene() as here:
        first, second = await here.two()
        pair, failures = socket.socketpair, [errno.EMFILE, errno.ENFILE]

        def exhausted() -> tuple[socket.socket, socket.socket]:
            if failures:
                raise OSError(failures.pop(), "too many open files")
            return pair()

        monkeypatch.setattr(life.socket, "socketpair", exhausted)
        second.end(-9)
        again = await here.fakes.next()
        assert again.seat == second.seat
        assert not failures
        assert first.returncode is None


async def test_the_others_are_told_whose_process_has_died() -> None:
    async with scene() as here:
        first, second = await here.two()
        second.end(-9)
        told = await first.expect(What.DIED)
        assert told.fields["node_name"] == "pod-0/w2"


async def test_a_worker_that_left_by_itself_is_no_news_but_is_started_again() -> None:
    async with scene() as here:
        first, second = await here.two()
        second.end(0)
        await here.fakes.next()
        here.supervisor.leave()
        assert (await first.receive()).what is What.LEAVE


async def test_a_worker_that_refuses_its_settings_ends_all_with_what_it_said() -> None:
    async with scene() as here:
        first = await here.fakes.next()
        second = await here.fakes.next()
        first.serve()
        second.send(What.REFUSED, sentence="the bucket is another cluster's")
        second.end(1)
        await first.expect(What.LEAVE)
        first.end(0)
        with pytest.raises(WorkersError, match="the bucket is another cluster's"):
            await here.ended()
        assert here.fakes.count == 2


@pytest.fixture(autouse=True)
def hangups() -> Iterator[None]:
    """They end processes, as they did before."""
    yield
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_has_all_leave_and_it_ends_when_they_have(number: int) -> None:
    async with scene() as here:
        first, second = await here.two()
        os.kill(os.getpid(), number)
        await first.expect(What.LEAVE)
        await second.expect(What.LEAVE)
        first.end(0)
        second.end(0)
        assert await here.ended() == 0
        assert here.fakes.count == 2


async def test_a_terminal_that_ends_may_say_so_twice() -> None:
    async with scene() as here:
        first, second = await here.two()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.01)
        await first.expect(What.LEAVE)
        await second.expect(What.LEAVE)
        first.end(0)
        second.end(0)
        assert await here.ended() == 0


async def test_a_worker_that_is_being_started_is_told_to_leave_as_well() -> None:
    async with scene() as here:
        here.fakes.may_start.clear()
        while here.fakes.count < 2:
            await asyncio.sleep(0)
        here.supervisor.leave()
        here.fakes.may_start.set()
        for _ in range(2):
            worker = await here.fakes.next()
            await worker.expect(What.LEAVE)
            worker.end(0)
        assert await here.ended() == 0


async def test_a_worker_that_dies_while_all_leave_is_told_by_the_exit_code() -> None:
    async with scene() as here:
        first, second = await here.two()
        here.supervisor.leave()
        first.end(0)
        second.end(-9)
        assert await here.ended() == 1
        assert here.fakes.count == 2


async def test_a_worker_that_does_not_leave_in_time_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "BEYOND_DRAIN_S", -10.0)
    async with scene() as here:
        first, second = await here.two()
        here.supervisor.leave()
        assert await here.ended() == 1
        assert first.was_killed
        assert second.was_killed


async def test_whoever_asks_is_told_what_all_say() -> None:
    async with scene() as here:
        first, second = await here.two()
        first.send(What.ASK, ticket=5, subject=Subject.READINESS.value)
        await first.answer({"ready": True, "reasons": []})
        await second.answer({"ready": False, "reasons": ["the agent is starting"]})
        told = await first.expect(What.TOLD)
        assert told.ticket == 5
        assert told.fields["value"]["ready"] is True
        assert told.fields["value"]["notes"] == ["w2: the agent is starting"]


async def test_metrics_of_a_worker_that_died_stay_in_the_sums() -> None:
    page = "# TYPE frazil_requests_total counter\nfrazil_requests_total 5.0\n"
    async with scene() as here:
        first, second = await here.two()
        first.send(What.ASK, ticket=1, subject=Subject.METRICS.value)
        await first.answer(page)
        await second.answer(page)
        told = (await first.expect(What.TOLD)).fields["value"]
        assert "\nfrazil_requests_total 10.0\n" in told
        second.end(-9)
        again = await here.fakes.next()
        first.send(What.ASK, ticket=2, subject=Subject.METRICS.value)
        await first.answer(page)
        await again.answer("")
        told = (await first.expect(What.TOLD)).fields["value"]
        assert "\nfrazil_requests_total 10.0\n" in told
        assert 'frazil_worker_up{worker="w2"} 0.0' in told


async def test_a_page_that_is_too_long_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "# TYPE pushed gauge\n" + "".join(f'pushed{{client="{n}"}} 1.0\n' for n in range(100))
    async with scene() as here:
        first, second = await here.two()
        monkeypatch.setattr(messages, "BYTES_MAX", 2 * len(page))
        for ticket in (1, 2):
            first.send(What.ASK, ticket=ticket, subject=Subject.METRICS.value)
            await first.answer(page)
            await second.answer(page)
            assert (await first.expect(What.TOLD)).fields == {
                "what": "told",
                "ticket": ticket,
                "value": None,
            }
        assert (first.returncode, second.returncode) == (None, None)


async def test_who_says_nothing_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "TELL_S", 0.01)
    async with scene() as here:
        first, _ = await here.two()
        first.send(What.ASK, ticket=1, subject=Subject.READINESS.value)
        await first.answer({"ready": True, "reasons": []})
        told = (await first.expect(What.TOLD)).fields["value"]
        assert told["notes"] == ["w2: it does not answer, or is being started"]


async def test_a_worker_that_answers_no_ping_is_killed_and_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(life, "PING_S", 0.001)
    async with scene() as here:
        _, second = await here.two()
        for _ in range(life.UNANSWERED_MAX):
            await second.expect(What.PING)
        assert await second.wait() == -9
        assert second.was_killed


async def test_a_worker_that_says_something_wrong_is_killed() -> None:
    async with scene() as here:
        _, second = await here.two()
        second.send(What.HELLO)
        assert await second.wait() == -9


def test_a_port_that_somebody_listens_on_is_told_before_anything_is_started() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        place = {"store": "s3://b/p", "log": "etcd://e:1/p", "listen": f"127.0.0.1:{port}"}
        settings = load(defaults=place, toml=None, environ={}, flags=()).settings
        with pytest.raises(WorkersError, match=f"cannot listen on 127.0.0.1:{port} .*in use"):
            supervisor.reserve(settings)


def test_a_free_port_is_the_same_for_all_and_nobody_elses() -> None:
    place = {"store": "s3://b/p", "log": "etcd://e:1/p", "listen": "127.0.0.1:0", "http": "off"}
    settings = load(defaults=place, toml=None, environ={}, flags=()).settings
    reserved = supervisor.reserve(settings)
    try:
        port = reserved.listen["PLAINTEXT"]
        assert port > 0
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        assert [
            each.listen for each in supervisor.places(settings, reserved, 2, host_name="machine")
        ] == [{"PLAINTEXT": port}] * 2
    finally:
        for each in reserved.sockets:
            each.close()
