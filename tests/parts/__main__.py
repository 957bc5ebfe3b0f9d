"""`python -m tests.parts [NAME …]`: install the named parts, or all that tests need."""

import sys

from tests.parts.install import PARTS, READERS, RIVALS


def main(names: list[str]) -> None:
    known = {**PARTS, **READERS, **RIVALS}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no part is called {', '.join(unknown)}; there are {', '.join(known)}")
    for name in names or PARTS:
        known[name]()
        print(f"{name}: ready", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
