"""What agents use up of the cluster's client quotas, as each one reported last.

An agent's rows go with its incarnation. Nothing but the parts that agents take of a quota follows from
them: no outcome does.
"""

from collections.abc import Iterator

from coordinator.commands.config_commands import ReportUsage, UsageRow
from coordinator.commands.entries import DONE, Done
from protocol.types import Incarnation


class QuotaUsage:
    """Reports by incarnation. To be read only, but by `apply`."""

    def __init__(self) -> None:
        self._rows: dict[Incarnation, tuple[UsageRow, ...]] = {}

    def __len__(self) -> int:
        """Agents that use up anything."""
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[Incarnation, tuple[UsageRow, ...]]]:
        return iter(self._rows.items())

    def of(self, incarnation: Incarnation) -> tuple[UsageRow, ...]:
        return self._rows.get(incarnation, ())

    # For `apply`.

    def apply(self, command: ReportUsage, writer: Incarnation) -> Done:
        """Never refused."""
        self.close(writer)
        if command.rows:
            self._rows[writer] = command.rows
        return DONE

    def close(self, incarnation: Incarnation) -> None:
        self._rows.pop(incarnation, None)
