"""`python -m tests.parts [NAME …]`: install the named parts, or all of them."""

import sys

from tests.parts.install import PARTS


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.exit(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for name in names or PARTS:
        PARTS[name]()
        print(f"{name}: ready", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
