"""The protocol on catalogs that differ: SQLite by PyIceberg, and Iceberg's own REST server.

What a catalog must do for exports to be exact is told here once, and asked of each: refuse a
commit on a head that is gone, also the first one; tell every snapshot; take files out.
"""

import itertools
import threading
from collections import Counter

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.expressions import EqualTo

from iceberg_export.catalog import open_catalog, view_of
from iceberg_export.compact import compact
from iceberg_export.errors import CatalogError, FencedError, OvertakenError
from iceberg_export.job import export_topic
from iceberg_export.maintain import delete_orphans, expire
from iceberg_export.reset import reset_offsets
from iceberg_export.state import read_state
from iceberg_export.steps import Step
from tests.iceberg_export.direct import Place
from tests.iceberg_export.hooks import Answers, Killed, Once
from tests.iceberg_export.world import some_records
from tests.parts.servers import RestCatalogServer

pytestmark = pytest.mark.integration

FAR = 1 << 50
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def rest(tmp_path_factory):
    server = RestCatalogServer(tmp_path_factory.mktemp("rest"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "rest"])
def connect(request, tmp_path):
    """Opens one more connection to the catalog."""
    if request.param == "rest":
        server = request.getfixturevalue("rest")
        told = {"type": "rest", "uri": server.url}
    else:
        told = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"file://{tmp_path}",
        }
    opened = []

    def open_one():
        told["py-io-impl"] = "pyiceberg.io.pyarrow.PyArrowFileIO"
        opened.append(open_catalog(told, tmp_path))
        return opened[-1]

    yield open_one
    for catalog in opened:
        if hasattr(catalog, "engine"):
            catalog.engine.dispose()
        else:
            catalog.close()


@pytest.fixture
def here(connect, tmp_path):
    return Place(tmp_path, 2, connect(), ("frazil", f"t{next(NUMBERS)}"))


def fill(here, count=5):
    here.world.commit("orders", {0: [some_records(count)], 1: [some_records(count)]})


def export(here, *sets, **how):
    job = here.job(*sets, **how)
    return export_topic(job, here.topic(job))


def test_a_run_that_dies_at_each_step_in_turn_leaves_an_exact_table(here):
    for step in Step:
        fill(here)
        with pytest.raises(Killed):
            export(here, at=Once(step, Killed()))
    export(here)
    assert here.rows() == here.wanted()


@pytest.mark.parametrize("step", [Step.TABLE_FOUND, Step.INIT_WRITTEN])
def test_of_two_first_snapshots_one_counts(here, step):
    fill(here)
    export(here, at=Once(step, lambda: export(here)))
    assert here.rows() == here.wanted()
    first = [one for one in here.table().metadata.snapshots if one.parent_snapshot_id is None]
    assert len(first) == 1


def test_the_later_of_two_exports_is_fenced(here):
    fill(here)
    with pytest.raises(FencedError):
        export(here, at=Answers(lambda: export(here)))
    assert here.rows() == here.wanted()


def test_a_lost_answer_is_looked_up(here):
    fill(here)
    export(here, at=Answers(("after", CommitStateUnknownException("504"))))
    assert here.rows() == here.wanted()
    assert here.state().seq == 1


def test_a_delete_and_an_expiry_in_between_are_kept(here):
    fill(here)
    export(here)
    fill(here)

    def others():
        here.table().delete(EqualTo("kafka_offset", 1))
        table = here.table()
        head = table.metadata.current_snapshot_id
        old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != head]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    export(here, at=Answers(others))
    assert here.rows() == [row for row in here.wanted() if row[1] != 1]


def test_a_rollback_rewinds_and_a_zombie_on_its_base_is_exact(here):
    fill(here)
    export(here)
    base = here.table().metadata.current_snapshot_id
    fill(here)

    def there_and_back():
        export(here)
        here.table().manage_snapshots().rollback_to_snapshot(base).commit()

    export(here, at=Answers(there_and_back))
    assert here.rows() == here.wanted()


def test_files_are_joined_beside_an_export_and_not_over_a_delete(here):
    for _ in range(2):
        fill(here)
        export(here)
    hook = Answers(lambda: here.table().delete(EqualTo("kafka_offset", 1)))
    with pytest.raises(OvertakenError):
        compact(here.job(at=hook), here.name, FAR)
    fill(here)
    done = compact(here.job(at=Answers(lambda: export(here))), here.name, FAR)
    assert done.files_before >= 2
    assert here.rows() == [row for row in here.wanted() if row[1] != 1]


def test_going_back_and_upkeep_leave_an_exact_table(here):
    for _ in range(3):
        fill(here)
        export(here)
    job = here.job()
    assert reset_offsets(job, here.topic(job), {0: 7}).rows_removed == 8
    assert expire(here.job(), here.name, FAR).snapshots_expired == 0
    fill(here)
    with pytest.raises(Killed):
        export(here, at=Once(Step.TASKS_DONE, Killed()))
    assert delete_orphans(here.job(), here.name, -1).files_deleted > 0
    export(here)
    assert here.rows() == here.wanted()


def test_exporters_that_race_in_threads_bring_each_record_once(here, connect):
    """Each has a connection of its own. Whoever is fenced, or meets too many others, ends."""
    for _ in range(6):
        fill(here)
    export(here, "commit.bytes.max=1", at=Once(Step.COMMITTED, here.table, 1))
    for _ in range(6):
        fill(here)
    outcomes = Counter()

    def work(place):
        try:
            export(place, "commit.bytes.max=1")
            outcomes["done"] += 1
        except FencedError:
            outcomes["fenced"] += 1
        except CatalogError:
            outcomes["refused"] += 1

    threads = []
    for number in range(3):
        one = Place(here.folder, 2, connect(), here.name)
        one.world = here.world
        one.jobs = 100 * (number + 1)
        threads.append(threading.Thread(target=work, args=(one,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcomes.values()) == 3
    export(here)
    assert here.rows() == here.wanted()
    table = here.table()
    told = [one.summary.additional_properties for one in table.metadata.snapshots]
    assert [int(one["frazil.seq"]) for one in told] == list(range(len(told)))
    assert read_state(view_of(table)).offsets == {0: 60, 1: 60}
