"""What is fuzzed, as the loop sees it: a target makes inputs, changes them, and runs one."""

import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, TypeVar

from tests.fuzz import mutation

T = TypeVar("T")


class WrongError(Exception):
    """What came of an input must never come of any; raised by `run`."""


class Target(ABC):
    """An input is bytes, so that it can be kept in a file, made smaller, and run again by anybody.

    What is counted are `inputs_in` an input: a target that sends many requests to one agent runs
    them as one input, whose outcome hangs on nothing but its bytes.
    """

    name: ClassVar[str]
    cpu_ms_max: ClassVar[float] = 100.0
    """Of the thread that serves, in one go: what the loop may stand still (`stood_ms`)."""
    memory_mib_max: ClassVar[int] = 96
    """What one input may make the process larger by."""
    life: ClassVar[int] = 1 << 30
    """Inputs between `open` and `close`."""
    fixed: ClassVar[int] = 400
    """Inputs, drawn from fixed seeds, of `make test`."""

    ignored_errors: ClassVar[tuple[type[BaseException], ...]] = ()
    """Which may be in the log."""

    stood_ms: float | None = None
    """The longest that the loop stood still in the last run, where a target has one of its own."""

    def open(self) -> None:  # noqa: B027 - Most have nothing.
        """Whatever outlives an input."""

    def close(self) -> None:  # noqa: B027 - As above.
        """Its end; raises WrongError for what should not be so by now."""

    @abstractmethod
    def generate(self, rng: random.Random) -> bytes:
        """An input that is mostly as it should be."""

    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        """Another one, of two that are known."""
        return self.sealed(mutation.mutated(rng, data, other))

    def timed(self, act: Callable[[], T]) -> T:
        """What `act` returns, which is done in one go: by the loop, or by a thread beside it.

        The longest counts (`stood_ms`), where a run says `stood_ms = 0.0` first.
        """
        begun = time.thread_time()
        done = act()
        self.stood_ms = max(self.stood_ms or 0.0, 1000 * (time.thread_time() - begun))
        return done

    @abstractmethod
    def run(self, data: bytes) -> Hashable:
        """What came of it, in few words: inputs of which something else comes are interesting.

        Every error that it does not catch is a finding.
        """

    def sealed(self, data: bytes) -> bytes:
        """The same with whatever checksums it needs to get past the door."""
        return data

    def inputs_in(self, data: bytes) -> int:
        return 1

    def pieces(self, data: bytes) -> Sequence[bytes]:
        """The units of which a smaller input leaves out some; `b"".join` puts them together."""
        return [data[at : at + 1] for at in range(len(data))]


def words(error: BaseException | str) -> str:
    """What an error says, without numbers and names: the place that it comes from, so to say."""
    return _NUMBERS.sub("0", str(error)[:120].partition("'")[0])


_NUMBERS = re.compile(r"-?[0-9]+")
