"""`python -m tests.releases WHEEL [VERSION]` keeps a release, so that later ones are held against it.

WHEEL is that of the release, as `pip wheel --no-deps` builds it from the sources that were released;
VERSION is what it is kept under: the wheel's, and a number behind it (`0.1.0-2`) when one of that
version is kept already. It runs the wheel's agents from where it unpacks them, with this
interpreter, over SQLite and over a real etcd, has real clients write (`story`), exports, and packs
all that into tests/releases/. It takes about two minutes. Then commit what it has made.
"""

import sys
from pathlib import Path

from tests.releases import Release, version_of
from tests.releases.keep import keep


def main(arguments: list[str]) -> None:
    if not (1 <= len(arguments) <= 2 and Path(arguments[0]).is_file()):
        sys.exit("python -m tests.releases WHEEL [VERSION]")
    wheel, *named = arguments
    keep(Path(wheel), Release(*named or [version_of(Path(wheel))]))


if __name__ == "__main__":
    main(sys.argv[1:])
