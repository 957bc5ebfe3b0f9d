"""`python -m tests.docs [FOLDER]` builds the site (`make docs`); a link or an anchor that leads nowhere is a failure."""

import os
import sys

from tests.docs.building import build

if __name__ == "__main__":
    done = build(*sys.argv[1:])
    # How far it is says nothing.
    told = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith("INFO")]
    sys.stderr.writelines(told)
    sys.exit(done.returncode or os.EX_OK)
