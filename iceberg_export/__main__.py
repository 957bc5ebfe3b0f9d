"""`python -m iceberg_export`: the exporter's own entry, which `frazil export` starts.

A process of its own, since the agent needs none of the exporter's packages; when they are not
installed it says so in one sentence.
"""

import sys


def main() -> int:
    """Runs the command line and returns its exit code."""
    if not __debug__:
        print("frazil export: assertions guard the tables, do not run with -O", file=sys.stderr)
        return 2
    try:
        from iceberg_export.cli import main as cli
    except ModuleNotFoundError as error:
        print(
            f"frazil export: the package {error.name} is missing; "
            "install the exporter with: pip install 'frazil[export]'",
            file=sys.stderr,
        )
        return 2
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
