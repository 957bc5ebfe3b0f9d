"""`python -m tests.sim.first_failing 1 6 11 ...`: these seeds, one after the other, until one fails.

In one process, with a line of JSON for each: [seed, violations]. For programs that run a copy of the
tree with a bug in it (`tests.mutants.simulating`).
"""

import json
import sys

from tests.sim.seeds import observe


def main() -> None:
    for seed in map(int, sys.argv[1:]):
        found = observe(seed, brief=True).violations
        print(json.dumps([seed, found[:3]]), flush=True)
        if found:
            return


if __name__ == "__main__":
    main()
