"""Exports that die, lose answers or meet others at every step, and what the table has then."""

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from iceberg_export.errors import ExportError, FencedError
from iceberg_export.steps import Step
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.tasks import Changed, Wrapped

STEPS = [one for one in Step if not one.startswith("dead-letters-")]
"""Those of tables without dead letters."""


@pytest.mark.parametrize("exported_before", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_dies_at_any_step_loses_and_doubles_nothing(here, step, exported_before):
    if exported_before:
        here.fill()
        here.export()
        here.fill()
    else:
        here.fill()
    hook = Once(step, Killed())
    if exported_before and step.startswith(("init-", "table-")):
        here.export(hook=hook)
        assert not hook.happened
    else:
        with pytest.raises(Killed):
            here.export(hook=hook)
    here.fill()
    here.export()
    assert here.rows() == here.wanted()
    assert here.export().commits == 0


@pytest.mark.parametrize("step", [Step.PLANNED, Step.TASKS_DONE, *STEPS[-4:]])
def test_a_run_of_many_commits_that_dies_in_a_later_one_keeps_the_earlier(here, step):
    for _ in range(3):
        here.fill()
    nth = 1 if step is Step.PLANNED else 2
    with pytest.raises(Killed):
        here.export("commit.bytes.max=1", hook=Once(step, Killed(), nth))
    seen = here.rows()
    assert seen == [row for row in here.wanted() if row in seen]
    assert len(seen) < len(here.wanted())
    here.export()
    assert here.rows() == here.wanted()


def append_nothing(here):
    with here.table().transaction() as transaction:
        transaction.update_snapshot().fast_append().commit()


@pytest.mark.parametrize("what", ["delete", "append", "expire", "export"])
@pytest.mark.parametrize("step", [one for one in STEPS if not one.startswith(("init-", "table-"))])
def test_whatever_others_commit_at_any_step_each_record_is_there_once(here, step, what):
    here.fill()
    here.export()
    here.fill()
    others = {
        "delete": lambda: here.table().delete("kafka_offset = 1"),
        "append": lambda: append_nothing(here),
        "expire": here.expire_all,
        "export": here.export,
    }
    hook = Once(step, others[what])
    if what == "export" and step not in {Step.COMMIT_ANSWERED, Step.COMMITTED}:
        with pytest.raises(FencedError):
            here.export(hook=hook)
    else:
        here.export(hook=hook)
    assert hook.happened
    here.export()
    kept = [row for row in here.wanted() if what != "delete" or row[1] != 1]
    assert here.rows() == kept


@pytest.mark.parametrize("error", [CommitFailedException, CommitStateUnknownException, OSError])
@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN, Step.COMMIT_ANSWERED])
def test_whatever_the_catalog_answers_at_the_commit_each_record_is_there_once(here, step, error):
    here.fill()
    here.export(hook=Once(step, error("no")))
    assert here.rows() == here.wanted()
    assert here.state().seq == 1


@pytest.mark.parametrize("nth", [1, 2])
def test_a_task_whose_first_attempt_was_lost_counts_once(here, nth):
    here.fill()
    here.fill()
    ran = []

    def dying(task, payload, attempt):
        """The n-th task dies once, after it has written all its files."""
        ran.append(task(payload, attempt))
        return task(payload, attempt + 1000) if len(ran) == nth else ran[-1]

    here.export("split.bytes.max=1", runner=Wrapped(dying))
    assert len(ran) >= nth
    assert here.rows() == here.wanted()


def test_a_result_told_twice_is_never_committed(here):
    here.fill()
    with pytest.raises(ExportError):
        here.export(runner=Changed(lambda results: results + results[:1]))
    assert here.rows() == []
