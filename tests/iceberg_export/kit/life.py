"""Random life of a topic and its table, whichever way the table is written.

Producers write, transactions end this way or that, exports run, die, lose answers and meet others
at any step; others delete, rewrite, expire, roll back; operators reset and maintain. After every
step the table must hold exactly what its own state claims (`check_rows`). At the end one clean
export must bring the state to the log's end. What a life of one mode says for itself: what is
produced, what a delete and a reset take out, and what the rows must be.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from typing_extensions import override

from iceberg_export.errors import FencedError, OvertakenError, StateError
from iceberg_export.steps import Step
from iceberg_export.table.catalog import view_of
from iceberg_export.table.state import read_state
from iceberg_export.upkeep.compact import CLOSED_MS, compact
from iceberg_export.upkeep.maintain import delete_orphans
from protocol.records import Record
from tests.iceberg_export.kit import strangers
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import FAR, TABLE, place
from tests.iceberg_export.kit.world import InTransaction

PARTITIONS = st.integers(0, 1)
CHOICES = st.integers(0, 7)
SOME = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"both-0", b"both-1", None]), st.booleans()),
    min_size=1,
    max_size=4,
)
"""Records to produce: (key, whether it has a value)."""
ERRORS: Mapping[str, Callable[[], BaseException]] = {
    "die": Killed,
    "refused": lambda: CommitFailedException("409"),
    "no answer": lambda: CommitStateUnknownException("504"),
}
Some = Sequence[tuple[bytes | None, bool]]
Spot = tuple[int, int]
"""(partition, offset)."""


def bounded(examples: int, steps: int) -> Any:
    """How long lives are, and how many."""
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class Life(RuleBasedStateMachine):
    """One topic of two partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.context = place()
        self.place = self.context.__enter__()
        self.gone: dict[int, frozenset[Spot]] = {}
        """By snapshot: what its table does not have, though it was in the log below its offsets."""
        self.dropped: set[Spot] = set()
        """What the log has lost."""

    @override
    def teardown(self) -> None:
        try:
            self.export()
            self.check()
            ends = {p: log.stable for p, log in enumerate(self.logs)}
            assert {**dict.fromkeys(ends, 0), **self.place.state().offsets} == ends
            self.check_end()
        finally:
            self.context.__exit__(None, None, None)

    # What a mode says.

    @abstractmethod
    def records(self, partition: int, some: Some) -> list[Record]:
        """Records to be produced next."""

    @abstractmethod
    def take_out(self, choice: int) -> None:
        """A delete by others, of the table's head."""

    @abstractmethod
    def go_to(self, choice: int | None, *, ahead: bool) -> None:
        """A reset; None: to the log's start."""

    @abstractmethod
    def check_rows(self) -> None:
        """The table of the head holds what it should."""

    def check_end(self) -> None:
        """What must hold at the end as well."""

    # What others know of the table.

    @property
    def logs(self) -> list[Any]:
        return self.place.world.topics["orders"][1]

    def head(self) -> int:
        found = self.place.head()
        assert found is not None
        return found

    def observe(self) -> None:
        """Snapshots that are new lack what those before them lacked; the first, what the log does."""
        for one in self.place.table().metadata.snapshots:
            if one.snapshot_id not in self.gone:
                parent = one.parent_snapshot_id
                before = frozenset(self.dropped) if parent is None else self.gone.get(parent)
                self.gone[one.snapshot_id] = frozenset(self.dropped) if before is None else before

    def check(self) -> None:
        if not self.place.has_head():
            return
        self.observe()
        try:
            read_state(view_of(self.place.table()))
        except StateError:
            self.reset(None)  # The operator's cure for a rollback behind all that is known.
        self.check_rows()

    # Producers.

    @rule(partition=PARTITIONS, some=SOME)
    def produce(self, partition: int, some: Some) -> None:
        self.place.world.commit("orders", {partition: [self.records(partition, some)]})

    @rule(partition=PARTITIONS, some=SOME, producer=st.integers(1, 2))
    def begin(self, partition: int, some: Some, producer: int) -> None:
        part = InTransaction(producer, self.records(partition, some))
        self.place.world.commit("orders", {partition: [part]})

    @rule(partition=PARTITIONS, producer=st.integers(1, 2), committed=st.booleans())
    def end(self, partition: int, producer: int, committed: bool) -> None:
        if producer in self.logs[partition].open:
            self.place.world.end("orders", partition, producer, commit=committed)

    # Exports.

    def export(self, *sets: str, **how: Any) -> None:
        self.place.export(*sets, **how)

    @rule(small=st.booleans())
    def plain_export(self, small: bool) -> None:
        self.export("commit.bytes.max=1" if small else "commit.bytes.max=100000")
        self.check()

    def others(self, choice: int) -> dict[str, Callable[[], None]]:
        return {
            "export": self.export,
            "delete": lambda: self.delete(choice),
            "scatter": self.scatter,
            "compact": self.compact,
            "expire": lambda: self.expire(choice),
            "roll back": lambda: self.roll_back(choice),
            "orphans": self.orphans_go,
        }

    @rule(
        step=st.sampled_from(Step),
        nth=st.integers(1, 2),
        what=st.sampled_from(
            [*ERRORS, "export", "delete", "scatter", "compact", "expire", "roll back", "orphans"]
        ),
        choice=CHOICES,
    )
    def troubled_export(self, step: Step, nth: int, what: str, choice: int) -> None:
        if what in {"refused", "no answer"}:
            step = Step.COMMIT_ANSWERED if choice % 2 else Step.COMMIT_WRITTEN
        act = ERRORS[what]() if what in ERRORS else self.others(choice)[what]
        sets = ("commit.bytes.max=1",) if nth == 2 else ()
        with suppress(Killed, FencedError, StateError):
            self.export(*sets, hook=Once(step, act, nth))
        self.check()

    # Others.

    @rule(choice=CHOICES)
    def delete(self, choice: int) -> None:
        if self.place.has_head():
            self.observe()
            self.take_out(choice)

    @rule()
    def scatter(self) -> None:
        """Somebody writes the files anew, one for each row: no change of rows."""
        if self.place.has_head():
            strangers.scatter(self.place.table())

    @rule(choice=CHOICES)
    def roll_back(self, choice: int) -> None:
        if self.place.has_head():
            self.observe()
            ancestors = strangers.ancestors(self.place.table())
            self.place.roll_back(ancestors[min(choice, len(ancestors) - 1)])

    @rule(keep=CHOICES)
    def expire(self, keep: int) -> None:
        """As strangers do it, without any care."""
        if self.place.has_head():
            self.observe()
            self.place.expire_all(kept=keep)

    # Operators.

    @rule()
    def compact(self) -> None:
        if self.place.has_head():
            compact(self.place.job(), TABLE, FAR + CLOSED_MS)

    @rule(step=st.sampled_from([Step.COMMIT_LOADED, Step.COMMIT_WRITTEN]), choice=CHOICES)
    def overtaken_compaction(self, step: Step, choice: int) -> None:
        if not self.place.has_head():
            return
        other = ["export", "delete", "roll back"][choice % 3]
        job = self.place.job(hook=Once(step, self.others(choice)[other]))
        with suppress(OvertakenError):
            compact(job, TABLE, FAR + CLOSED_MS)
        self.check()

    @rule(choice=st.none() | CHOICES, ahead=st.booleans())
    def reset(self, choice: int | None, ahead: bool = False) -> None:
        if self.place.has_head():
            self.observe()
            self.go_to(choice, ahead=ahead)
            self.check()

    @rule()
    def orphans_go(self) -> None:
        """Of any age: a live run's files must stay for its mark alone."""
        if self.place.has_head():
            with suppress(StateError):
                delete_orphans(self.place.job(), TABLE, -1)
