"""Tables that topics choose by their configs, which any client may alter: whose they may be."""

from dataclasses import replace

import pytest

from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.errors import SettingsError, StateError
from iceberg_export.runs.export import export_topic
from iceberg_export.runs.job import table_identifier
from iceberg_export.runs.status import topic_status
from iceberg_export.table.schema import TABLE_SCHEMA
from tests.iceberg_export.kit.place import place

OTHER_ID = "b" * 32


@pytest.fixture
def here():
    with place(1) as found:
        found.fill()
        yield found


def job_of(here, *sets):
    """A job without the kit's own name for the table of orders, which would win."""
    job = here.job(*sets)
    return job._replace(settings=replace(job.settings, table_names={}))


def chosen(here, *sets, table=None):
    """The table of topic orders, by its configs and these settings."""
    if table is not None:
        here.configure(table=table)
    job = job_of(here, *sets)
    return table_identifier(job, here.topic(job))


def export(here, *sets):
    job = job_of(here, *sets)
    return export_topic(job, here.topic(job))


@pytest.mark.parametrize("table", ["mine", "frazil.mine"])
def test_a_topic_chooses_its_table_in_the_exporters_namespace(here, table):
    assert chosen(here, table=table) == ("frazil", "mine")


def test_a_topic_chooses_no_other_namespace_unless_the_exporter_allows_it(here):
    with pytest.raises(
        SettingsError, match=r"asks for a table in namespace finance .* allows frazil,"
    ):
        chosen(here, table="finance.payroll")
    for allowed in ("finance", "sales, finance", "*"):
        assert chosen(here, f"table.namespaces={allowed}") == ("finance", "payroll")
    with pytest.raises(SettingsError, match="namespace finance"):
        chosen(here, "table.namespaces=finances")


@pytest.mark.parametrize("table", ["a/../b", "frazil.or ders", "x" * 256, "a..b", "a;b", ".a"])
def test_a_name_that_is_none_is_refused_whatever_the_agent_has_let_pass(here, table):
    with pytest.raises(SettingsError, match=r"frazil\.iceberg\.table must be letters, digits"):
        chosen(here, table=table)


def test_a_refused_table_is_told_as_the_reason_and_stops_no_other_topic(here):
    here.world.create("others", 1, OTHER_ID)
    here.configure(table="finance.payroll")
    job = job_of(here)
    assert "namespace finance" in topic_status(job, here.topic(job), LetterCounts()).problem
    assert topic_status(job, here.topic(job, "others"), LetterCounts()).problem == ""


def test_a_topic_keeps_the_table_that_it_has_in_a_namespace_that_is_not_allowed_any_more(here):
    here.configure(table="finance.orders")
    report = export(here, "table.namespaces=finance")
    assert report.table == "finance.orders"
    here.fill()
    report = export(here)
    assert (report.table, report.rows) == ("finance.orders", 5)


def test_a_topic_does_not_take_the_table_that_is_another_topics_by_its_name(here):
    here.world.create("pay.roll", 1, OTHER_ID)
    with pytest.raises(SettingsError, match=r"table pay_roll .* which is that of topic pay\.roll"):
        chosen(here, table="pay_roll")
    here.world.configs["pay.roll"] = {"enable": "false"}
    assert chosen(here) == ("frazil", "pay_roll")
    here.world.configs["pay.roll"] = {"table": "elsewhere"}
    assert chosen(here) == ("frazil", "pay_roll")


def test_a_topic_does_not_take_a_table_that_others_have(here):
    here.catalog.create_namespace("frazil")
    here.catalog.create_table(("frazil", "handmade"), TABLE_SCHEMA)
    with pytest.raises(StateError, match="was not made by the exporter"):
        chosen(here, table="handmade")
    here.world.create("others", 1, OTHER_ID)
    here.export(topic="others")
    here.world.configs["others"] = {"table": "elsewhere"}
    with pytest.raises(StateError, match="belongs to topic others"):
        chosen(here, table="others")


def test_a_topic_does_not_take_a_table_of_dead_letters_its_own_included(here):
    with pytest.raises(SettingsError, match="so tables of dead letters are called"):
        chosen(here, table="others__dlq")
    here.configure(value_mode="string", table="mine")
    here.send(b"\xff")
    export(here)
    assert here.catalog.table_exists(("frazil", "mine__dlq"))
    with pytest.raises(SettingsError, match="so tables of dead letters are called"):
        chosen(here, table="mine__dlq")
    here.world.create("sneaky__dlq", 1, OTHER_ID)
    job = here.job()
    with pytest.raises(SettingsError, match="so tables of dead letters are called"):
        table_identifier(job, here.topic(job, "sneaky__dlq"))


def test_the_operator_names_any_table(here):
    here.configure(table="finance.payroll")
    job = here.job("table.name.orders=orders__dlq")
    assert table_identifier(job, here.topic(job)) == ("frazil", "orders__dlq")
