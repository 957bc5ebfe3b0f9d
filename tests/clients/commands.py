"""Commands of `frazil` in the tests' own process, with files for what they read and write."""

import io
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from broker.cli.main import main


class Done(NamedTuple):
    code: int
    out: bytes
    err: str


def frazil(*arguments: str, given: bytes = b"") -> Done:
    """`given`: its standard input."""
    told = io.StringIO()
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BufferedReader(io.BytesIO(given)))
    try:
        with tempfile.TemporaryFile() as file:
            with redirect_stdout(io.TextIOWrapper(file)) as out, redirect_stderr(told):
                code = main(arguments)
                out.detach()
            file.seek(0)
            return Done(code, file.read(), told.getvalue())
    finally:
        sys.stdin = stdin
