"""`python -m broker`, and the console script `frazil`: refuses `python -O`, then the command line.

Assertions are part of how the agent stays right (they stop it before it does harm), so it does
not run without them.
"""

import os
import sys

from broker.cli import main as cli
from broker.cli.arguments import MISUSED

# An agent starts its worker by fork and exec; gRPC would only say that it does nothing about it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def main() -> int:
    """Entry point of the console script."""
    if not __debug__:
        print(
            "frazil: run it without -O and PYTHONOPTIMIZE: it needs its assertions", file=sys.stderr
        )
        return MISUSED
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
