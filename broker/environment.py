"""The environment of a process: clocks, the event loop, descriptors, and the store and log that its
settings name.

The only module that chooses an event loop (uvloop where present) and reads clocks; shared by
agents, the workers of their jobs, and commands that look at something.
"""

import contextlib
import os
import resource
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from asyncio.subprocess import Process

    from broker.config.settings import Settings
    from coordinator.log.metadata_log import MetadataLog
    from coordinator.log.open_log import LogOptions
    from storage.stores.object_store import ObjectStore
    from storage.stores.open_store import StoreOptions


def now_ms() -> int:
    """Wall clock, ms since the epoch."""
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    """A clock that nobody sets and that goes on while the machine is suspended, in ms."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return time.monotonic_ns() // 1_000_000


def loop_ns() -> int:
    """A clock for the steps of the loop."""
    return time.perf_counter_ns()


def software_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("frazil")
    except metadata.PackageNotFoundError:
        return "0"


def loop_factory() -> "Callable[[], AbstractEventLoop]":
    """uvloop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.new_event_loop
    factory: Callable[[], AbstractEventLoop] = uvloop.new_event_loop
    return factory


def signals_to_leave() -> list[signal.Signals]:
    """After which an agent leaves in order: those after which Kafka's broker does. Whoever was started by `nohup`
    goes on when its terminal ends."""
    kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if kept else [signal.SIGHUP])]


def ignore_hangups(loop: "AbstractEventLoop") -> None:
    """From now on: who is leaving already is told again by the shell, or by the terminal, and need not end sooner."""
    loop.remove_signal_handler(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def raise_descriptors() -> int | None:
    """How many files and sockets the process may have open, once it may have as many as it can.

    None: there is no bound.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS refuses its own hard limit; then the soft one stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def open_adapters(settings: "Settings") -> "tuple[ObjectStore, MetadataLog]":
    """The store and the log that the settings name. Raises ValueError with a sentence."""
    from coordinator.log.open_log import open_log
    from storage.stores.open_store import open_store

    store = open_store(settings.store_url, store_options(settings), now_ms=now_ms)
    log = open_log(settings.log_url, log_options(settings), settings.cluster_id)
    return store, log


def store_options(settings: "Settings") -> "StoreOptions":
    from storage.stores.open_store import StoreOptions

    return StoreOptions(
        endpoint=settings.store_endpoint,
        region=settings.store_region,
        access_key=settings.store_access_key,
        secret_key=settings.store_secret_key,
        ca_file=_path(settings.store_ca),
        path_style=settings.store_path_style,
    )


def log_options(settings: "Settings") -> "LogOptions":
    from coordinator.log.open_log import LogOptions

    return LogOptions(
        user=settings.log_user,
        password=settings.log_password,
        password_file=_path(settings.log_password_file),
        ca_file=_path(settings.log_ca),
        cert_file=_path(settings.log_cert),
        key_file=_path(settings.log_key),
        compact=settings.log_compact,
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def available_cores() -> tuple[int, str]:
    """How many cores this process may use, and what Linux says of its quota ("" elsewhere)."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    try:
        return cores, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii")
    except OSError:
        return cores, ""


async def spawn_module(
    module: str, *, stdin: int, more: Mapping[str, str] = MappingProxyType({})
) -> "Process":
    """A process of ours: this Python, another module; what it prints goes where this one complains.

    `more`: of its environment."""
    import asyncio

    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-m", module),
        stdin=stdin,
        stdout=sys.__stderr__,
        env={**_module_environment(), **more},
    )


def _module_environment() -> dict[str, str]:
    """Where this program is found, if it is not installed where Python looks by itself."""
    root = str(Path(__file__).resolve().parent.parent)
    environment = dict(os.environ)
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = root if not before else f"{root}{os.pathsep}{before}"
    return environment
