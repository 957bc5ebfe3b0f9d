"""The protocol on catalogs that differ: SQLite and Postgres by PyIceberg, Iceberg's own REST server,
Nessie.

What a catalog must do for exports to be exact is told here once, and asked of each: refuse a
commit on a head that is gone, also the first one; tell every snapshot; take files out.
"""

import contextlib
import itertools
import threading
from collections import Counter

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.expressions import EqualTo

from iceberg_export.errors import CatalogError, FencedError, OvertakenError
from iceberg_export.steps import Step
from iceberg_export.table.catalog import open_catalog, view_of
from iceberg_export.table.state import read_state
from iceberg_export.upkeep.compact import compact
from iceberg_export.upkeep.maintain import delete_orphans, expire
from iceberg_export.upkeep.redact import plan_redaction, redact
from tests.iceberg_export.kit.hooks import Answers, Killed, Once
from tests.iceberg_export.kit.place import FAR, Place
from tests.iceberg_export.kit.registry import ORDER_1, ORDER_2, avro
from tests.iceberg_export.table import catalogs
from tests.iceberg_export.table.catalogs import connections
from tests.parts.servers import MinioServer, NessieServer, PostgresServer

pytestmark = pytest.mark.integration

NUMBERS = itertools.count()
STEPS = [step for step in Step if not step.name.startswith("DEAD_LETTERS")]
"""Of a table without dead letters."""


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    server = PostgresServer(tmp_path_factory.mktemp("postgres"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def nessie(tmp_path_factory):
    store = MinioServer(tmp_path_factory.mktemp("minio"), md5=True)
    store.start()
    server = NessieServer(tmp_path_factory.mktemp("nessie"), store)
    server.start()
    yield server
    server.stop()
    store.stop()


@pytest.fixture
def glue():
    with catalogs.glue_in_memory():
        yield


@pytest.fixture(params=["sqlite", "postgres", "rest", "nessie", "glue"])
def kind(request, tmp_path):
    """The catalog that the story is told of."""
    if request.param == "rest":
        return catalogs.rest(request.getfixturevalue("rest").url)
    if request.param == "postgres":
        return catalogs.postgres(request.getfixturevalue("postgres"), tmp_path)
    if request.param == "nessie":
        return catalogs.nessie(request.getfixturevalue("nessie"))
    if request.param == "glue":
        request.getfixturevalue("glue")
        return catalogs.glue(tmp_path)
    return catalogs.sqlite(tmp_path)


@pytest.fixture
def connect(kind, tmp_path):
    """Opens one more connection to the catalog."""
    with connections(kind, tmp_path) as open_one:
        yield open_one


@pytest.fixture
def here(connect, tmp_path):
    return Place(tmp_path, 2, connect(), ("frazil", f"t{next(NUMBERS)}"))


def test_a_run_that_dies_at_each_step_in_turn_leaves_an_exact_table(here):
    for step in STEPS:
        here.fill()
        with pytest.raises(Killed):
            here.export(hook=Once(step, Killed()))
    here.export()
    assert here.rows() == here.wanted()


@pytest.mark.parametrize("step", [Step.INIT_LOADED, Step.INIT_WRITTEN])
def test_of_two_first_snapshots_one_counts(here, step):
    here.fill()
    late = here.export(hook=Once(step, here.export))
    assert late.rows == 0, "what the other has exported was taken back"
    assert here.rows() == here.wanted()
    first = [one for one in here.table().metadata.snapshots if one.parent_snapshot_id is None]
    assert len(first) == 1


def test_the_later_of_two_exports_is_fenced(here):
    here.fill()
    with pytest.raises(FencedError):
        here.export(hook=Answers(here.export))
    assert here.rows() == here.wanted()


def test_a_lost_answer_is_looked_up(here):
    here.fill()
    here.export(hook=Answers(("after", CommitStateUnknownException("504"))))
    assert here.rows() == here.wanted()
    assert here.state().seq == 1


def test_a_delete_and_an_expiry_in_between_are_kept(here):
    here.exported()
    here.fill()

    def others():
        here.table().delete(EqualTo("kafka_offset", 1))
        here.expire_all()

    here.export(hook=Answers(others))
    assert here.rows() == [row for row in here.wanted() if row[1] != 1]


def test_a_rollback_rewinds_and_a_zombie_on_its_base_is_exact(here, kind):
    here.fill()
    here.export()
    base = kind.point(here)
    here.fill()

    def there_and_back():
        here.export()
        kind.go_back(here, base)

    # A catalog that tells what the branch left behind refuses the zombie, others take it.
    with contextlib.suppress(FencedError):
        here.export(hook=Answers(there_and_back))
    here.export()
    assert here.rows() == here.wanted()


def test_files_are_joined_beside_an_export_and_not_over_a_delete(here, kind):
    here.exported(2)
    hook = Answers(lambda: here.table().delete(EqualTo("kafka_offset", 1)))
    with pytest.raises(OvertakenError):
        compact(here.job(hook=hook), here.name, FAR)
    here.fill()
    beside = here.job(hook=Answers(here.export))
    if kind.shows_history:
        assert compact(beside, here.name, FAR).files_before >= 2
    else:
        # What lies between may be more than appends, and is not shown.
        with pytest.raises(OvertakenError):
            compact(beside, here.name, FAR)
        assert compact(here.job(), here.name, FAR).files_before >= 2
    assert here.rows() == [row for row in here.wanted() if row[1] != 1]


def test_going_back_and_upkeep_leave_an_exact_table(here, kind):
    here.exported(3)
    assert here.reset({0: 7}).rows_removed == 8
    assert expire(here.job(), here.name, FAR).snapshots_expired == 0
    here.fill()
    with pytest.raises(Killed):
        here.export(hook=Once(Step.TASKS_DONE, Killed()))
    if kind.shows_history:
        assert delete_orphans(here.job(), here.name, -1).files_deleted > 0
    here.export()
    assert here.rows() == here.wanted()


def test_no_file_is_deleted_that_a_catalogs_own_history_names(here, kind):
    """Of what a reset takes out of the table, a branch that goes back shows all again."""
    here.fill()
    here.export()
    before, wanted = kind.point(here), here.rows()
    here.reset(None)
    if kind.shows_history:
        delete_orphans(here.job(), here.name, -1)
    else:
        with pytest.raises(CatalogError, match="nessie-gc"):
            delete_orphans(here.job(), here.name, -1)
    assert here.rows() == []
    kind.go_back(here, before)
    assert here.rows() == wanted


def test_a_commit_without_answer_under_that_of_another_exporter_is_neither_lost_nor_doubled(
    here, kind
):
    """A catalog that shows the newest snapshot alone cannot say that the first one landed."""
    here.exported()
    here.fill()

    def another_comes():
        here.fill()
        here.export()
        raise CommitStateUnknownException("504")

    how = {"hook": Once(Step.COMMIT_ANSWERED, another_comes)}
    if kind.shows_history:
        here.export(**how)
    else:
        with pytest.raises(FencedError) as fenced:
            here.export(**how)
        assert not fenced.value.files_unused
    assert here.rows() == here.wanted()
    assert here.state().seq == 3
    here.fill()
    here.export()
    assert here.rows() == here.wanted()


def test_redacted_records_leave_the_table_and_stay_away_when_it_is_made_anew(here):
    here.fill()
    here.export()
    job = here.job()
    topic = here.topic(job)
    plan = plan_redaction(job, topic, "kafka_offset < 2")
    assert redact(job, topic, plan, by="ada", reason="ticket 7") == 4
    here.catalog.drop_table(here.name)
    here.export()
    assert here.rows() == [row for row in here.wanted() if row[1] >= 2]
    assert (here.verify().problems, here.verify().redacted) == ((), 4)


def test_dead_letters_come_once_though_a_run_dies_between_the_tables(here):
    here.configure(value_mode="string")
    for number in range(3):
        here.send(b"a", b"\xff", b"b", b"\xfe")
        if number == 1:
            with pytest.raises(Killed):
                here.export(hook=Once(Step.COMMITTED, Killed()))
    here.export()
    assert [row[1] for row in here.rows()] == [0, 2, 4, 6, 8, 10]
    assert here.dead_offsets() == [1, 3, 5, 7, 9, 11]


def test_a_table_grows_with_its_schemas_though_another_exporter_was_faster(here, registry):
    here.configure(value_mode="avro")
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 7, "city": "Ulm"}))
    here.export()
    two = registry.register("orders-value", ORDER_2)
    here.send(avro(two, ORDER_2, {"id": 1 << 40, "city": "Ulm", "price": 2.5}))
    with pytest.raises(FencedError):
        here.export(hook=Once(Step.PLANNED, here.export))
    assert here.columns("id", "price") == [(7, None), (1 << 40, 2.5)]


def test_inferred_types_grow_with_their_columns_though_another_exporter_was_faster(here):
    here.configure(value_mode="json", value_schema="infer")
    here.send(b'{"id": 1}')
    here.export()
    here.send(b'{"id": "two", "b": []}')
    with pytest.raises(FencedError):
        here.export(hook=Once(Step.PLANNED, here.export))
    here.send(b'{"id": 3, "b": [1]}')
    here.export()
    assert sorted(here.columns("id", "id__json", "b__json", "b"), key=str) == [
        (1, None, None, None), (3, None, None, [1]), (None, '"two"', "[]", None),
    ]  # fmt: skip
    assert here.verify().problems == ()


def test_columns_that_people_dropped_and_renamed_stay_so_while_the_table_grows(here, registry):
    here.configure(value_mode="avro")
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 7, "city": "Ulm"}))
    here.export()
    with here.table().update_schema() as update:
        update.rename_column("city", "town")
        update.delete_column("kafka_value_schema_id")
    two = registry.register("orders-value", ORDER_2)
    here.send(avro(two, ORDER_2, {"id": 8, "city": "Bonn", "price": 2.5}))
    here.export()
    assert here.columns("id", "town", "price") == [(7, "Ulm", None), (8, "Bonn", 2.5)]
    assert not {"city", "kafka_value_schema_id"} & set(here.table().schema().column_names)


def test_trino_finds_the_tables_of_a_catalog_in_postgres(postgres, trino, tmp_path):
    catalog = open_catalog(catalogs.postgres(postgres, tmp_path).told, tmp_path)
    here = Place(tmp_path, 2, catalog, ("frazil", f"t{next(NUMBERS)}"))
    here.fill()
    here.export()
    trino.add_catalog(
        "in_postgres",
        {
            "iceberg.catalog.type": "jdbc",
            "iceberg.jdbc-catalog.catalog-name": "frazil",
            "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
            "iceberg.jdbc-catalog.connection-url": postgres.uri.replace(
                "postgresql+psycopg://frazil@", "jdbc:postgresql://"
            ),
            "iceberg.jdbc-catalog.connection-user": "frazil",
            "iceberg.jdbc-catalog.default-warehouse-dir": f"file://{tmp_path}",
        },
    )
    query = f"SELECT kafka_partition, kafka_offset FROM in_postgres.frazil.{here.name[1]}"
    assert sorted(trino.query(query)) == [row[:2] for row in here.wanted()]
    here.close()


def test_exporters_that_race_in_threads_bring_each_record_once(here, kind, connect):
    """Each has a connection of its own. Whoever is fenced, or meets too many others, ends."""
    for _ in range(6):
        here.fill()
    here.export("commit.bytes.max=1", hook=Once(Step.COMMITTED, here.table, 1))
    for _ in range(6):
        here.fill()
    outcomes = Counter()

    def work(place):
        try:
            place.export("commit.bytes.max=1")
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
    here.export()
    assert here.rows() == here.wanted()
    table = here.table()
    told = [one.summary.additional_properties for one in table.metadata.snapshots]
    first = here.state().seq + 1 - len(told)
    assert [int(one["frazil.seq"]) for one in told] == list(range(first, first + len(told)))
    assert first == 0 or not kind.shows_history
    assert read_state(view_of(table)).offsets == {0: 60, 1: 60}
