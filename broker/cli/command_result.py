"""The result of a command of the tools, or its error in one sentence. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from protocol.fault_codes import FaultError


class CommandResult(NamedTuple):
    """The lines, warnings and failures that a command prints."""

    lines: Sequence[str]
    warnings: Sequence[str] = ()
    failures: Sequence[str] = ()


class ToolError(FaultError):
    """The command cannot be done; the sentence says why and what to do."""
