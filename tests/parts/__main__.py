"""`python -m tests.parts [NAME …]`: install the named parts, or all that tests need.

What is built, on all cores, and what is fetched is made side by side, each in its order.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from tests.parts.install import PARTS, RIVALS

BUILT = frozenset({"etcd", "minio", "go-clients"})
TELL_EVERY_S = 60.0


def main(names: Sequence[str]) -> None:
    known = {**PARTS, **RIVALS}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no part is called {', '.join(unknown)}; there are {', '.join(known)}")
    builder, fetcher = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    waiting = {
        (builder if name in BUILT else fetcher).submit(known[name]): name for name in names or PARTS
    }
    try:
        while waiting:
            done, _ = wait(waiting, TELL_EVERY_S, FIRST_COMPLETED)
            for future in done:
                name = waiting.pop(future)
                future.result()
                print(f"{name}: ready", flush=True)
            if not done:
                names = [name for future, name in waiting.items() if future.running()]
                print(f"still making {' and '.join(names)} …", flush=True)
    finally:
        for lane in (builder, fetcher):
            lane.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main(sys.argv[1:])
