"""Hooks for the steps of an export: what befalls it there, without replacing any function."""

from collections.abc import Callable

from iceberg_export.steps import Step


class Killed(BaseException):
    """The process is gone: nothing of the export catches this, as nothing catches SIGKILL."""


class Once:
    """At the n-th passing of `step`: call `act`, or raise it. Later passings are quiet."""

    def __init__(self, step: Step, act: Callable[[], object] | BaseException, nth: int = 1) -> None:
        self.step = step
        self.act = act
        self.left = nth

    @property
    def happened(self) -> bool:
        return self.left <= 0

    def __call__(self, step: Step) -> None:
        if step is not self.step:
            return
        self.left -= 1
        if self.left == 0:
            if isinstance(self.act, BaseException):
                raise self.act
            self.act()


Outcome = Callable[[], object] | Exception | tuple[str, Exception] | None


class Answers:
    """What the catalog does with one commit after the other: takes it (None), an error before it
    takes effect, ("after", error) when the answer is lost, or a function to call just before."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.queue = list(outcomes)
        self.lost: Exception | None = None

    def __call__(self, step: Step) -> None:
        if step is Step.COMMIT_ANSWERED and self.lost is not None:
            lost, self.lost = self.lost, None
            raise lost
        if step is not Step.COMMIT_WRITTEN or not self.queue:
            return
        outcome = self.queue.pop(0)
        if isinstance(outcome, tuple):
            self.lost = outcome[1]
        elif isinstance(outcome, Exception):
            raise outcome
        elif outcome is not None:
            outcome()
