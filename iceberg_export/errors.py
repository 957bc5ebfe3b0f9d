"""What can go wrong in an export, each as one sentence for a person.

Every error of this package is an `ExportError`; the command line prints its sentence and ends
with `exit_code`. Errors of libraries (Spark, PyIceberg, PyArrow, obstore) are turned into these
where they are understood, in the module that calls the library.
"""

from protocol.fault_codes import FaultCode, FaultError


class ExportError(FaultError):
    """The export cannot go on. The message is one sentence that says what to do."""

    exit_code = 1


class SettingsError(ExportError):
    """A setting is unknown, missing or wrong."""

    exit_code = 2


class AgentError(ExportError):
    """No agent answers, or one refuses."""


class PlanError(ExportError):
    """What the agent says and what the table says do not fit together."""


class AheadError(PlanError):
    """The table has what the log does not: an older log was put back. No export may go on."""

    fault = FaultCode.OLDER_LOG


class StoreReadError(ExportError):
    """The object store cannot be read. `again` says whether repeating may help."""

    def __init__(
        self, message: str, *, again: bool = False, fault: FaultCode | None = None
    ) -> None:
        super().__init__(message, fault=fault)
        self.again = again


class CorruptSpanError(ExportError):
    """The bytes of a span are not what the log says: never skipped, never guessed at."""


class CatalogError(ExportError):
    """The Iceberg catalog cannot be used as configured, or refuses."""


class StateError(ExportError):
    """The table does not say where its export stands, or belongs to another topic."""


class FencedError(ExportError):
    """Another exporter has moved the table on; nothing of this run is visible.

    `files_unused` is True when it is proven that no snapshot can ever name this run's files.
    """

    exit_code = 3

    def __init__(self, message: str, *, files_unused: bool) -> None:
        super().__init__(message)
        self.files_unused = files_unused


class OvertakenError(ExportError):
    """Files that were to be replaced, or the table's partition spec, are not what they were; nothing
    of this is visible.

    Read the table again and work the replacement out anew.
    """


class CommitUnknownError(ExportError):
    """The catalog never said whether the commit took place. Files must stay; run again."""


class SparkError(ExportError):
    """Spark cannot start (no Java, wrong version) or has stopped."""
