"""The steps of an export at which it may die, as tests name them.

Code that goes through a step calls the hook of its job with it; the usual hook does nothing. A
test's hook raises what a library would raise there, kills the process, or lets somebody else
commit in between: so every gap of the protocol has a name, and no test replaces functions.
Pure.
"""

from collections.abc import Callable
from enum import StrEnum


class Step(StrEnum):
    """In the order in which an export of one topic passes them."""

    INIT_LOADED = "init-loaded"
    """The catalog was asked for the table: there is none, or it has no snapshot yet."""
    INIT_WRITTEN = "init-written"
    """The empty snapshot's files are written, the catalog does not know."""
    INIT_ANSWERED = "init-answered"
    """The catalog has taken the empty snapshot, and with it the table if there was none."""
    INITIALISED = "initialised"
    PLANNED = "planned"
    TASKS_DONE = "tasks-done"
    """All data files are written and nobody refers to them."""
    CHECKED = "checked"
    """Every offset is accounted for."""
    COMMIT_LOADED = "commit-loaded"
    """The table was loaded again, its state is the expected one."""
    COMMIT_WRITTEN = "commit-written"
    """Manifests are written, the catalog does not know."""
    COMMIT_ANSWERED = "commit-answered"
    """The catalog has taken the commit; this process does not know yet."""
    COMMITTED = "committed"
    """The catalog has taken the commit, and this process knows."""
    DEAD_LETTERS_LOADED = "dead-letters-loaded"
    """The same steps, of the commit to the dead-letter table."""
    DEAD_LETTERS_WRITTEN = "dead-letters-written"
    DEAD_LETTERS_ANSWERED = "dead-letters-answered"


Hook = Callable[[Step], None]


def no_hook(_step: Step) -> None:
    """Does nothing: the hook of every export that is not a test."""
