"""Runners of tasks: in this process, in order, as stand-ins for Spark; some of them with a fault."""

from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

Task = Callable[[Any, int], Any]


class HereRunner:
    """Runs tasks in this process, in order. `close` is for who takes it for Spark."""

    parallelism = 2

    def __init__(self) -> None:
        self.ran = 0

    def run(
        self, task: Task, payloads: Sequence[Any], *, sizes: Sequence[int], title: str
    ) -> list[Any]:
        assert len(sizes) == len(payloads)
        assert title
        results = []
        for payload in payloads:
            results.append(task(payload, self.ran))
            self.ran += 1
        return results

    def close(self) -> None:
        """Nothing was started."""


class Wrapped(HereRunner):
    """Each task goes through `around(task, payload, attempt)`."""

    def __init__(self, around: Callable[[Task, Any, int], Any]) -> None:
        super().__init__()
        self.around = around

    @override
    def run(
        self, task: Task, payloads: Sequence[Any], *, sizes: Sequence[int], title: str
    ) -> list[Any]:
        def one(payload: Any, attempt: int) -> Any:
            return self.around(task, payload, attempt)

        return super().run(one, payloads, sizes=sizes, title=title)


class Changed(HereRunner):
    """The results of all tasks are what `change` makes of them."""

    def __init__(self, change: Callable[[list[Any]], list[Any]]) -> None:
        super().__init__()
        self.change = change

    @override
    def run(
        self, task: Task, payloads: Sequence[Any], *, sizes: Sequence[int], title: str
    ) -> list[Any]:
        return self.change(super().run(task, payloads, sizes=sizes, title=title))


def between(act: Callable[[], None]) -> Wrapped:
    """Calls something after each task."""

    def around(task: Task, payload: Any, attempt: int) -> Any:
        found = task(payload, attempt)
        act()
        return found

    return Wrapped(around)
