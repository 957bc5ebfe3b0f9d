"""Exports that die, lose answers or meet others at every step, and what the table has then."""

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.expressions import EqualTo

from iceberg_export.errors import ExportError, FencedError
from iceberg_export.runs.job import export_topic
from iceberg_export.steps import Step
from tests.iceberg_export.direct import place
from tests.iceberg_export.hooks import Killed, Once
from tests.iceberg_export.world import HereRunner, some_records


@pytest.fixture
def here():
    with place() as found:
        yield found


def fill(here, count=5):
    here.world.commit("orders", {0: [some_records(count)], 1: [some_records(count + 1)]})


def export(here, *sets, **how):
    job = here.job(*sets, **how)
    return export_topic(job, here.topic(job))


STEPS = [one for one in Step if not one.startswith("dead-letters-")]
"""Those of tables without dead letters."""


@pytest.mark.parametrize("exported_before", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_dies_at_any_step_loses_and_doubles_nothing(here, step, exported_before):
    if exported_before:
        fill(here)
        export(here)
        fill(here)
    else:
        fill(here)
    hook = Once(step, Killed())
    if exported_before and step.startswith(("init-", "table-")):
        export(here, hook=hook)
        assert not hook.happened
    else:
        with pytest.raises(Killed):
            export(here, hook=hook)
    fill(here)
    export(here)
    assert here.rows() == here.wanted()
    assert export(here).commits == 0


@pytest.mark.parametrize("step", [Step.PLANNED, Step.TASKS_DONE, *STEPS[-4:]])
def test_a_run_of_many_commits_that_dies_in_a_later_one_keeps_the_earlier(here, step):
    for _ in range(3):
        fill(here)
    nth = 1 if step is Step.PLANNED else 2
    with pytest.raises(Killed):
        export(here, "commit.bytes.max=1", hook=Once(step, Killed(), nth))
    seen = here.rows()
    assert seen == [row for row in here.wanted() if row in seen]
    assert len(seen) < len(here.wanted())
    export(here)
    assert here.rows() == here.wanted()


def delete_one(here):
    here.table().delete(EqualTo("kafka_offset", 1))


def append_nothing(here):
    with here.table().transaction() as transaction:
        transaction.update_snapshot().fast_append().commit()


def expire_all(here):
    table = here.table()
    head = table.metadata.current_snapshot_id
    old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(old).commit()


OTHERS = {"delete": delete_one, "append": append_nothing, "expire": expire_all, "export": export}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("step", [one for one in STEPS if not one.startswith(("init-", "table-"))])
def test_whatever_others_commit_at_any_step_each_record_is_there_once(here, step, what):
    fill(here)
    export(here)
    fill(here)
    hook = Once(step, lambda: OTHERS[what](here))
    if what == "export" and step not in {Step.COMMIT_ANSWERED, Step.COMMITTED}:
        with pytest.raises(FencedError):
            export(here, hook=hook)
    else:
        export(here, hook=hook)
    assert hook.happened
    export(here)
    kept = [row for row in here.wanted() if what != "delete" or row[1] != 1]
    assert here.rows() == kept


@pytest.mark.parametrize("error", [CommitFailedException, CommitStateUnknownException, OSError])
@pytest.mark.parametrize("step", [Step.COMMIT_LOADED, Step.COMMIT_WRITTEN, Step.COMMIT_ANSWERED])
def test_whatever_the_catalog_answers_at_the_commit_each_record_is_there_once(here, step, error):
    fill(here)
    export(here, hook=Once(step, error("no")))
    assert here.rows() == here.wanted()
    assert here.state().seq == 1


class MortalRunner(HereRunner):
    """Its n-th task dies once, after it has written all its files."""

    def __init__(self, nth):
        super().__init__()
        self.nth = nth

    def run(self, task, payloads, *, sizes, title):
        def dying(payload, attempt):
            result = task(payload, attempt)
            self.nth -= 1
            if self.nth == 0:
                return task(payload, attempt + 1000)
            return result

        return super().run(dying, payloads, sizes=sizes, title=title)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_task_whose_first_attempt_was_lost_counts_once(here, nth):
    fill(here)
    fill(here)
    runner = MortalRunner(nth)
    export(here, "split.bytes.max=1", runner=runner)
    assert runner.nth <= 0
    assert here.rows() == here.wanted()


def test_a_result_told_twice_is_never_committed(here):
    class Twice(HereRunner):
        def run(self, *arguments, **options):
            results = super().run(*arguments, **options)
            return results + results[:1]

    fill(here)
    with pytest.raises(ExportError):
        export(here, runner=Twice())
    assert here.rows() == []
