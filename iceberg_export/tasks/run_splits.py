"""Runs the tasks of an export's splits, again for those that met schemas which they did not know."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from iceberg_export.errors import CatalogError
from iceberg_export.plan.splits import Split
from iceberg_export.tasks.export_split import SplitResult, TaskSetup, export_split
from iceberg_export.typed.decode_values import Message

Result = TypeVar("Result")


class TaskRunner(Protocol):
    """Where tasks run: Spark (`iceberg_export.tasks.spark.Tasks`)."""

    @property
    def parallelism(self) -> int: ...

    def run(
        self,
        task: Callable[[Any, int], Result],
        payloads: Sequence[Any],
        *,
        sizes: Sequence[int],
        title: str,
    ) -> list[Result]: ...


def run_splits(
    runner: TaskRunner,
    splits: Sequence[Split],
    *,
    setup: Callable[[], TaskSetup],
    fetch_schemas: Callable[[Mapping[str, set[Message]], Mapping[str, str]], None],
    title: str,
) -> list[SplitResult]:
    """Returns the results of all splits. Raises ExportError.

    `setup` is called before each round; what it returns knows the schemas fetched so far.
    `fetch_schemas` is told what a split does not know, and what inferred types have no place for.
    """
    results: dict[int, SplitResult] = {}
    while missing := [split for split in splits if split.number not in results]:
        shared = setup()
        found: list[SplitResult] = runner.run(
            _export_task,
            [(shared, split) for split in missing],
            sizes=[split.byte_count for split in missing],
            title=title,
        )
        if len(found) != len(missing):
            raise CatalogError(f"{len(missing)} tasks gave {len(found)} results")
        for result in found:
            if result.unknown:
                fetch_schemas(result.unknown, result.seen)
            else:
                results[result.number] = result
    return list(results.values())


def _export_task(payload: Any, attempt: int) -> SplitResult:
    setup, split = payload
    return export_split(setup, split, attempt)
