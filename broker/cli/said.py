"""What a command of the tools ends with: something to say, or an error of one sentence. Pure."""

from collections.abc import Sequence
from typing import NamedTuple


class Said(NamedTuple):
    """What a command has to say: results, warnings, and what did not work."""

    lines: Sequence[str]
    warnings: Sequence[str] = ()
    failures: Sequence[str] = ()


class ToolError(Exception):
    """The command cannot be done; the sentence says why and what to do."""
