"""`python -m tests.parts [--lines] [NAME …]`: install the named parts, or all that tests need.

What is built, on all cores, and what is fetched is made side by side, each in its order. Each tells when it begins and
when it is ready; in between there is a line that is rewritten on a terminal, unless `--lines` says that others print there.
"""

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TextIO

from tests.parts.cache import cache_folder
from tests.parts.install import DOWNLOADS_MB, PARTS, RIVALS, missing
from tests.screen import Screen

BUILT = frozenset({"etcd", "minio", "go-clients", "libfaketime"})
LOOK_EVERY_S = 1.0
MB = 10**6


def promise(names: Sequence[str], wanted: int) -> str:
    """What is going to happen."""
    download_mb = sum(DOWNLOADS_MB[name] for name in names)
    return (
        f"{len(names)} of {wanted} parts are to be made, once for this user, from about {download_mb:,} MB of"
        f" downloads: {', '.join(names)}"
    )


def make(
    makers: dict[str, Callable[[], object]], screen: Screen, used_bytes: Callable[[], int]
) -> None:
    """Makes parts, and tells how far they are. Raises what the first that cannot be made raised."""
    builder, fetcher = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    waiting = {
        (builder if name in BUILT else fetcher).submit(maker): name
        for name, maker in makers.items()
    }
    before = used_bytes()
    try:
        while waiting:
            done, _ = wait(waiting, LOOK_EVERY_S, FIRST_COMPLETED)
            for future in done:
                name = waiting.pop(future)
                future.result()
                print(f"{name}: ready ({len(makers) - len(waiting)} of {len(makers)})", flush=True)
            running = " and ".join(name for future, name in waiting.items() if future.running())
            grown_mb = max(0, used_bytes() - before) // MB
            if running:
                screen.show(f"making {running}: {grown_mb:,} MB on disk")
    finally:
        for lane in (builder, fetcher):
            lane.shutdown(cancel_futures=True)


def main(arguments: Sequence[str], out: TextIO) -> None:
    known = {**PARTS, **RIVALS}
    parser = argparse.ArgumentParser(prog="python -m tests.parts")
    parser.add_argument("--lines", action="store_true", help="rewrite none")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        sys.exit(f"no part is called {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = options.names or list(PARTS)
    absent = missing(wanted)
    if not absent:
        print(f"all {len(wanted)} parts are there", file=out, flush=True)
        return
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    screen = Screen(out, rewrites=out.isatty() and not options.lines, clock=time.monotonic)
    with contextlib.redirect_stdout(screen):
        print(promise(absent, len(wanted)), flush=True)
        try:
            make(
                {name: known[name] for name in absent},
                screen,
                lambda: shutil.disk_usage(folder).used,
            )
        finally:
            screen.clear()


if __name__ == "__main__":
    main(sys.argv[1:], sys.stdout)
