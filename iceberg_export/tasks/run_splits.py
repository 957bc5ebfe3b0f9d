"""Runs the tasks of splits, again for those that met schemas which they did not know."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from iceberg_export.errors import CatalogError
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


class AnySplit(Protocol):
    """What one task works on."""

    @property
    def number(self) -> int: ...

    @property
    def byte_count(self) -> int: ...


class AnyResult(Protocol):
    """What one task returns."""

    @property
    def number(self) -> int: ...

    @property
    def unknown(self) -> Mapping[str, set[Message]]: ...

    @property
    def seen(self) -> Mapping[str, str]: ...


SplitOutcome = TypeVar("SplitOutcome", bound=AnyResult)


def run_splits(
    runner: TaskRunner,
    splits: Sequence[AnySplit],
    *,
    task: Callable[[Any, int], SplitOutcome],
    setup: Callable[[], Any],
    fetch_schemas: Callable[[Mapping[str, set[Message]], Mapping[str, str]], None],
    title: str,
) -> list[SplitOutcome]:
    """Returns the results of all splits, each of `task((setup, split), attempt)`. Raises ExportError.

    `setup` is called before each round; what it returns knows the schemas fetched so far.
    `fetch_schemas` is told what a split does not know, and what inferred types have no place for.
    """
    results: dict[int, SplitOutcome] = {}
    while missing := [split for split in splits if split.number not in results]:
        shared = setup()
        found = runner.run(
            task,
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
