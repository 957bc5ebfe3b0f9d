"""A topic with several tables: each record is in exactly one, and each table is exported by itself."""

import json
from dataclasses import replace

import pytest

from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.errors import SettingsError, StateError
from iceberg_export.routes import ROUTE
from iceberg_export.runs.backfill import backfill
from iceberg_export.runs.export import export_topic
from iceberg_export.runs.status import offsets_of_all, table_source, topic_status
from iceberg_export.runs.table_choice import each_table
from iceberg_export.steps import Step
from iceberg_export.upkeep.redact import plan_redaction, redact
from iceberg_export.upkeep.replay import replay
from iceberg_export.upkeep.reset import reset_offsets
from iceberg_export.verify.proof import verify_topic
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import FAR

KINDS = ("order", "refund", "gift", None)
TABLES = {
    "": ("frazil", "orders"),
    "refunds": ("frazil", "refunds"),
    "shop.gifts": ("shop", "gifts"),
    "orders_alone": ("frazil", "orders_alone"),
}


@pytest.fixture
def routed(here):
    """Topic orders of JSON, whose refunds and gifts have tables of their own."""
    configure(here)
    here.sets = (*here.sets, "table.namespaces=shop")
    return here


def configure(here, **more):
    here.configure(
        **{
            "value_mode": "json",
            "value_schema": "infer",
            "route_by": "type",
            "route_tables": "refund:refunds, gift : shop.gifts,present:shop.gifts",
            **more,
        }
    )


def send(here, count=8, partition=0):
    first = here.log(partition).end
    values = [
        {"id": first + n, "type": kind} if kind else {"id": first + n}
        for n, kind in zip(range(count), KINDS * count, strict=False)
    ]
    here.send(*(json.dumps(one).encode() for one in values), partition=partition)


def tables(here, job):
    return {one.route: one for one in each_table(here.topic(job))}


def export(here, *routes):
    """Exports the tables of these routes, all by default; returns the rows of each."""
    job = here.job()
    return {
        route: export_topic(here.job(), one).rows
        for route, one in tables(here, job).items()
        if not routes or route in routes
    }


def offsets(here, route):
    return [offset for (offset,) in here.columns("kafka_offset", table=TABLES[route])]


def verified(here, *sets):
    """Records that are proven to be in each table."""
    job = here.job(*sets)
    found = {route: verify_topic(here.job(*sets), one) for route, one in tables(here, job).items()}
    assert not any(one.problems for one in found.values()), found
    return {route: one.records for route, one in found.items()}


@pytest.mark.promise("P7")
def test_each_record_is_in_the_table_of_its_route_and_in_no_other(routed):
    send(routed)
    assert export(routed) == {"": 4, "refunds": 2, "shop.gifts": 2}
    assert offsets(routed, "") == [0, 3, 4, 7]
    assert offsets(routed, "refunds") == [1, 5]
    assert offsets(routed, "shop.gifts") == [2, 6]
    assert verified(routed) == verified(routed, "verify.decoder=reference") == {
        "": 4, "refunds": 2, "shop.gifts": 2,
    }  # fmt: skip


def test_each_table_goes_on_from_its_own_offsets(routed):
    send(routed)
    export(routed, "refunds")
    send(routed)
    assert export(routed) == {"": 8, "refunds": 2, "shop.gifts": 4}
    assert export(routed) == {"": 0, "refunds": 0, "shop.gifts": 0}
    assert offsets(routed, "refunds") == [1, 5, 9, 13]
    verified(routed)


def test_a_run_that_dies_leaves_the_other_tables_and_its_own_as_they_were(routed):
    send(routed)
    for step in (Step.TASKS_DONE, Step.COMMITTED):
        job = routed.job(hook=Once(step, Killed()))
        with pytest.raises(Killed):
            export_topic(job, tables(routed, job)["refunds"])
        export(routed)
        send(routed)
    export(routed)
    assert verified(routed) == {"": 12, "refunds": 6, "shop.gifts": 6}


def test_what_cannot_be_decoded_is_a_dead_letter_of_its_routes_table_and_no_routes_of_the_topics(
    here,
):
    configure(here, value_schema="inline", value_schema_json=json.dumps(
        {"type": "object", "properties": {"id": {"type": "integer"}, "type": {"type": "string"}}}
    ))  # fmt: skip
    here.sets = (*here.sets, "table.namespaces=shop")
    here.send(b'{"id":"x","type":"refund"}', b'{"id":1,"type":"refund"}', b"{", b'{"id":"y"}')
    assert export(here) == {"": 0, "refunds": 1, "shop.gifts": 0}
    letters = [here.columns("kafka_offset", table=("frazil", f"{name}__dlq")) for name in ("orders", "refunds")]  # fmt: skip
    assert letters == [[(2,), (3,)], [(0,)]]
    verified(here)


def test_letters_are_replayed_into_the_table_of_their_route(here, registry):
    configure(here, value_schema="by-id")
    here.sets = (*here.sets, "table.namespaces=shop")
    here.send(b'{"id":1,"type":"refund"}', b'{"id":2}')
    assert export(here) == {"": 0, "refunds": 0, "shop.gifts": 0}
    registry.register(
        "orders-value",
        {"type": "object", "properties": {"id": {"type": "integer"}, "type": {"type": "string"}}},
        "JSON",
    )
    job = here.job()
    done = {route: replay(here.job(), one).rows for route, one in tables(here, job).items()}
    assert done == {"": 1, "refunds": 1, "shop.gifts": 0}
    assert offsets(here, "refunds") == [0]
    verified(here)


def test_a_table_with_records_keeps_its_route_until_all_is_exported_again(routed):
    send(routed)
    export(routed)
    configure(routed, route_tables="refund:refunds,gift:shop.gifts,order:shop.orders")
    with pytest.raises(StateError, match=r"route\.\* is .*order.* set it back, or name another"):
        export(routed, "")
    assert export(routed, "refunds", "shop.orders") == {"refunds": 0, "shop.orders": 2}
    job = routed.job()
    for route, one in tables(routed, job).items():
        if route in ("", "shop.gifts"):
            reset_offsets(routed.job(), one, None)
    assert export(routed) == {"": 2, "refunds": 0, "shop.gifts": 2, "shop.orders": 0}
    assert verified(routed) == {"": 2, "refunds": 2, "shop.gifts": 2, "shop.orders": 2}


def test_a_reset_to_some_offset_leaves_the_route_as_it_is(routed):
    send(routed)
    export(routed)
    configure(routed, route_tables="refund:refunds")
    job = routed.job()
    reset_offsets(routed.job(), tables(routed, job)[""], {0: 4})
    with pytest.raises(StateError, match="set it back"):
        export(routed, "")


def test_a_topic_of_one_table_that_has_records_takes_no_routes(here):
    here.configure(value_mode="json", value_schema="infer")
    send(here)
    here.export()
    assert here.table().metadata.properties[ROUTE] == ""
    configure(here)
    with pytest.raises(StateError, match="has records that were exported with none"):
        export(here, "")
    here.configure(value_mode="json", value_schema="infer")
    assert here.export().rows == 0


def test_tables_of_releases_that_knew_no_routes_have_all_records(here):
    here.configure(value_mode="json", value_schema="infer")
    send(here)
    here.export()
    with here.table().transaction() as change:
        change.remove_properties(ROUTE)
    send(here)
    assert here.export().rows == 8
    assert here.verify().problems == ()


def test_agents_are_told_of_what_is_in_all_tables(routed):
    send(routed)
    job = routed.job()
    export(routed, "")
    own, refunds, gifts = tables(routed, job).values()
    assert offsets_of_all(job, own, {0: 8, 1: 0}) == {0: 0, 1: 0}
    assert table_source(job, own, {0: 0, 1: 0}) is None
    export(routed, "refunds")
    send(routed)
    export(routed, "shop.gifts")
    assert offsets_of_all(job, gifts, {0: 16, 1: 0}) == {0: 8, 1: 0}
    assert table_source(job, refunds, {0: 8, 1: 0}).table == "frazil.orders"


def test_status_tells_of_each_table(routed):
    send(routed)
    export(routed, "refunds")
    job = routed.job()
    found = [topic_status(job, one, LetterCounts()) for one in tables(routed, job).values()]
    assert [(one.table, one.lag, one.rows) for one in found] == [
        ("frazil.orders", 8, None), ("frazil.refunds", 0, 2), ("shop.gifts", 8, None),
    ]  # fmt: skip


def test_rows_are_redacted_and_skipped_ones_filled_table_by_table(routed):
    send(routed)
    export(routed)
    job = routed.job()
    refunds = tables(routed, job)["refunds"]
    plan = plan_redaction(job, refunds, "kafka_offset = 5")
    assert redact(job, refunds, plan, by="us", reason="asked to") == 1
    send(routed)
    reset_offsets(routed.job(), refunds, {0: 16})
    with_gap = backfill(routed.job(), refunds, {0: (0, FAR)})
    assert with_gap.exported.rows == 2
    assert offsets(routed, "refunds") == [1, 9, 13]
    export(routed)
    assert verified(routed) == {"": 8, "refunds": 3, "shop.gifts": 4}


def test_two_tables_that_would_be_one_are_refused(routed):
    for named in ("refund:orders", "refund:refunds,gift:frazil.refunds"):
        configure(routed, route_tables=named)
        job = routed.job()
        with pytest.raises(SettingsError, match=r"topic orders has table frazil\.\w+ twice"):
            export_topic(job, tables(routed, job)[""])


def test_a_route_takes_no_table_of_another_topic_or_namespace(routed):
    routed.world.create("others", 1, "b" * 32)
    for named, said in (
        ("refund:others", "which is that of topic others"),
        ("refund:secret.refunds", "in namespace secret"),
        ("refund:orders__dlq", "so tables of dead letters are called"),
    ):
        configure(routed, route_tables=named)
        job = routed.job()
        job = job._replace(settings=replace(job.settings, table_names={}))
        route = named.partition(":")[2]
        with pytest.raises(SettingsError, match=said):
            export_topic(job, tables(routed, job)[route])


def test_a_header_routes_values_that_stay_bytes(here):
    here.configure(route_by="kafka_headers.kind", route_tables="refund:refunds")
    here.send(b"\xff", b"a", headers=[("kind", b"refund")])
    here.send(b"\xff")
    assert export(here) == {"": 1, "refunds": 2}
    verified(here)


def test_a_redacted_record_stays_away_from_the_table_that_it_would_go_to_by_new_routes(routed):
    send(routed)
    export(routed)
    job = routed.job()
    own, refunds, _gifts = tables(routed, job).values()
    for one, where in ((own, "kafka_offset = 4"), (refunds, "kafka_offset = 5")):
        plan = plan_redaction(job, one, where)
        redact(job, one, plan, by="us", reason="asked to")
    configure(routed, route_tables="order:orders_alone")
    reset_offsets(routed.job(), own, None)
    assert export(routed) == {"": 5, "orders_alone": 1}
    assert (offsets(routed, ""), offsets(routed, "orders_alone")) == ([1, 2, 3, 6, 7], [0])


def test_a_reset_to_the_start_of_a_log_whose_head_is_gone_lets_the_table_follow_too(routed):
    send(routed)
    export(routed)
    routed.log().log_start = 2
    configure(routed, route_tables="refund:refunds")
    job = routed.job()
    reset_offsets(routed.job(), tables(routed, job)[""], None)
    assert export(routed, "") == {"": 5}
    assert offsets(routed, "") == [0, 2, 3, 4, 6, 7]
