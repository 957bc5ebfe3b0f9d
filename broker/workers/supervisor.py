"""Starts the workers of one machine and keeps them, until a signal ends all.

    ports reserved ─▶ workers started ─▶ all serve: announced ─▶ SIGTERM: all leave ─▶ ended

What holds: every worker listens at the ports of the settings (SO_REUSEPORT), which the supervisor
holds, unlistened, so that nobody else gets one while a worker is started again. What becomes of a worker
that ended is decided in `broker.workers.supervision`. A second signal kills.

Left out: what a worker is (`broker.workers.__main__`).
"""

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from broker import logs
from broker.config.settings import Loaded, Settings
from broker.config.values import SettingsError
from broker.doors import fault_of_address
from broker.environment import (
    available_cores,
    boot_ms,
    ignore_hangups,
    signals_to_leave,
    software_version,
    spawn_module,
)
from broker.workers import joined_readiness, orphans, seats
from broker.workers.joined_metrics import JoinedMetrics
from broker.workers.life import Life, Spawn
from broker.workers.messages import Subject
from broker.workers.seats import Seat
from broker.workers.supervision import AllEnd, Ended, Over, step_after
from protocol.fault_codes import FaultError

logger = logging.getLogger(__name__)

BEYOND_DRAIN_S: Final = 15.0
"""After drain.ms: to close sessions. Who needs longer is killed, before whoever ends us does."""
Texts = Mapping[str, Any]
"""The arguments of `broker.config.settings.load`, but for the environment, which workers inherit."""


class WorkersError(FaultError):
    """They cannot be started, or cannot go on; the sentence says why and what to do."""


class Reserved(NamedTuple):
    """Ports that nobody else gets."""

    listen: dict[str, int]
    http: tuple[int, ...]
    registry: tuple[int, ...]
    sockets: list[socket.socket]


def count_of(settings: Settings) -> int:
    """How many workers there are to be."""
    return settings.workers or seats.cores(*available_cores())


def run(loaded: Loaded, texts: Texts, count: int, *, announce: Callable[[str], None]) -> int:
    """Be a supervisor of `count` workers until a signal ends it; the exit code.

    `announce` gets a line when all workers serve clients. Raises WorkersError, and SettingsError for
    settings that several cannot share.
    """
    settings = loaded.settings
    logs.set_up(level=settings.logs_level, form=settings.logs_format)
    if loaded.warnings:
        logger.warning("settings that have no effect: %s", "; ".join(loaded.warnings))
    mistakes = seats.contradictions(settings, count)
    if mistakes:
        raise SettingsError(mistakes)
    reserved = reserve(settings)
    try:
        supervisor = Supervisor(
            places(settings, reserved, count, host_name=socket.gethostname()),
            texts,
            drain_ms=settings.drain_ms,
            announce=announce,
            spawn=_spawn_of(count),
        )
        return asyncio.run(supervisor.run())
    finally:
        for each in reserved.sockets:
            each.close()


def places(settings: Settings, reserved: Reserved, count: int, *, host_name: str) -> list[Seat]:
    """What each worker is told of itself."""
    name = seats.node_name(settings, ports=reserved.listen, host_name=host_name)
    return [
        Seat(number, count, name, reserved.listen, reserved.http, reserved.registry)
        for number in range(1, count + 1)
    ]


def reserve(settings: Settings) -> Reserved:
    """Bind the shared ports. Raises WorkersError."""
    held: list[socket.socket] = []
    try:
        listen = {
            each.name: _hold(each.host, each.port or 0, "listen", held) for each in settings.listen
        }
        http, registry = (
            tuple(
                _hold(each.host, each.port, setting, held) for each in settings.http_addresses(name)
            )
            for name, setting in (("http", "http"), ("registry", "schema.registry.listeners"))
        )
    except WorkersError:
        for each in held:
            each.close()
        raise
    return Reserved(listen, http, registry, held)


def _hold(host: str, port: int, setting: str, held: list[socket.socket]) -> int:
    # As agents bind them.
    name = {"": "0.0.0.0", "*": "0.0.0.0", "localhost": "127.0.0.1"}.get(host, host)  # noqa: S104
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # Alone: at a shared port another supervisor's workers would take part of our clients.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
            bound: int = probe.getsockname()[1]
        door = socket.socket(family, kind, protocol)
        held.append(door)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        door.bind((address[0], bound, *address[2:]))
    except OSError as error:
        reason = error.strerror or str(error)
        raise WorkersError(
            f"cannot listen on {host}:{port} ({reason}):"
            f" end what uses it, or set another address ({setting})",
            fault=fault_of_address(error),
        ) from error
    return bound


def _spawn_of(count: int) -> Spawn:
    """The threads of the object store's client are one a core, of all workers together."""
    threads = str(max(1, seats.cores(*available_cores()) // count))
    more = {"TOKIO_WORKER_THREADS": os.environ.get("TOKIO_WORKER_THREADS", threads)}

    async def spawn(stdin: int) -> asyncio.subprocess.Process:
        return await spawn_module("broker.workers", stdin=stdin, more=more)

    return spawn


class Supervisor:
    """`run` is called once."""

    def __init__(
        self,
        places: list[Seat],
        texts: Texts,
        *,
        drain_ms: int,
        announce: Callable[[str], None],
        spawn: Spawn,
    ) -> None:
        self._seats = places
        self._texts = texts
        self._drain_s = drain_ms / 1000
        self._announce = announce
        self._spawn = spawn
        self._lives: dict[str, Life] = {}
        self._starting = {seat.name for seat in places}
        """Who has not served yet."""
        self._metrics = JoinedMetrics(seat.name for seat in places)
        self._leaving = asyncio.Event()
        self._sentence: str | None = None
        self._code = 0
        self._rng = random.Random()  # noqa: S311 - Only spreads starts.

    async def run(self) -> int:
        """Until all workers have ended; 0 when each left by itself. Raises WorkersError."""
        loop = asyncio.get_running_loop()
        for number in signals_to_leave():
            loop.add_signal_handler(number, self._signalled, number)
        async with asyncio.TaskGroup() as tasks:
            ending = tasks.create_task(self._end_in_time())
            keeping = [tasks.create_task(self._keep(seat)) for seat in self._seats]
            await asyncio.wait(keeping)
            ending.cancel()
        if self._sentence is not None:
            raise WorkersError(self._sentence)
        return self._code

    def leave(self) -> None:
        """Have all workers drain and end."""
        if not self._leaving.is_set():
            self._leaving.set()
            for life in self._lives.values():
                life.leave()

    def _signalled(self, number: signal.Signals) -> None:
        if self._leaving.is_set():
            for life in self._lives.values():
                life.kill()
            os._exit(128 + number)
        ignore_hangups(asyncio.get_running_loop())
        logger.info("%s: leaving", signal.Signals(number).name)
        self.leave()

    async def _end_in_time(self) -> None:
        await self._leaving.wait()
        await asyncio.sleep(self._drain_s + BEYOND_DRAIN_S)
        for life in self._lives.values():
            logger.warning("worker %s has not ended in time, and is killed", life.name)
            life.kill()

    async def _keep(self, seat: Seat) -> None:
        """One worker after another."""
        failures = 0
        while not self._leaving.is_set():
            if orphans.is_first():
                orphans.reap([life.pid for life in self._lives.values() if life.pid is not None])
            ended = await self._live(seat)
            leaving = self._leaving.is_set()
            step = step_after(ended, failures=failures, leaving=leaving, chance=self._rng.random())
            if isinstance(step, Over):
                if ended.code != 0:
                    self._code = 1
                return
            if isinstance(step, AllEnd):
                self._sentence = step.sentence
                self.leave()
                return
            failures = step.failures
            logger.warning(
                "worker %s ended (%s), and is started again in %d ms",
                seat.name,
                ended.sentence or told(ended.code),
                step.after_ms,
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(step.after_ms / 1000):
                    await self._leaving.wait()

    async def _live(self, seat: Seat) -> Ended:
        hello = {"version": software_version(), "seat": seat._asdict(), "texts": self._texts}
        life = Life(
            seat.name,
            hello,
            spawn=self._spawn,
            serving=lambda listening: self._serving(seat, listening),
            joined=self._joined,
        )
        self._lives[seat.name] = life
        self._metrics.started(seat.name)
        try:
            ended = await life.run()
        finally:
            del self._lives[seat.name]
            self._metrics.ended(seat.name)
        if ended.code != 0:
            died_ms = boot_ms()
            for other in self._lives.values():
                other.tell_of_death(seat.node_name, died_ms)
        return ended

    def _serving(self, seat: Seat, listening: Mapping[str, Any]) -> None:
        if seat.name not in self._starting:
            return
        self._starting.discard(seat.name)
        if not self._starting:
            at = " ".join(f"{name}={host}:{port}" for name, (host, port) in listening.items())
            self._announce(f"serving {at} workers={len(self._seats)}")

    async def _joined(self, subject: Subject) -> Any:
        names = list(self._lives)
        said = await asyncio.gather(*(self._lives[name].tell(subject) for name in names))
        answers = dict(zip(names, said, strict=True))
        match subject:
            case Subject.METRICS:
                for seat in self._seats:
                    self._metrics.take(seat.name, answers.get(seat.name))
                return self._metrics.page()
            case Subject.READINESS:
                return joined_readiness.join(
                    {seat.name: answers.get(seat.name) for seat in self._seats}
                )


def told(code: int) -> str:
    """How a process ended."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
    return f"exit code {code}"
