"""What is on the pages of schemas, tables and rights."""

import json
import zlib

from broker.console.views.access import access_view
from broker.console.views.page_of_rows import Asked
from broker.console.views.schemas import SHOWN_MAX, subject_view, subjects_view
from broker.console.views.tables import LossRow, Told, tables_view
from broker.reports.export_report import TableSource
from coordinator.commands.config_commands import (
    AlterClientQuotas,
    EntityPart,
    EntityType,
    Quota,
    QuotaChange,
)
from coordinator.commands.table_commands import (
    ExportEnd,
    RegisterSchema,
    ReportExport,
    SchemaKind,
    SetSubjectRules,
)
from coordinator.tables.losses import Loss
from coordinator.tables.schemas import LATEST
from protocol.acls import Operation
from protocol.types import POSITION_ZERO
from tests.broker.groups.world import agents
from tests.broker.rights.acls import acl, allow
from tests.kit.batches import batch


async def register(agent, subject: str, text: str, kind: SchemaKind = SchemaKind.AVRO) -> None:
    body, fingerprint = zlib.compress(text.encode()), text.encode()[-32:].ljust(32)
    await agent.log_client.propose(
        RegisterSchema(subject, kind, body, fingerprint, (), POSITION_ZERO)
    )


def record(*fields: str) -> str:
    return json.dumps({"type": "record", "fields": [{"name": name} for name in fields]})


async def test_a_subject_shows_what_changed_since_the_version_before() -> None:
    async with agents() as (one,):
        await register(one, "orders-value", record("id"))
        await register(one, "orders-value", record("id", "note"))
        await one.log_client.propose(SetSubjectRules("orders-value", "FULL", None))
        (row,) = subjects_view(one.machine, Asked("orders")).rows
        assert (row.kind, row.versions, row.latest, row.compatibility) == ("AVRO", 2, 2, "FULL")
        newest = subject_view(one.machine, "orders-value", LATEST)
        assert newest is not None
        assert newest.version == 2
        assert [line for line in newest.changes if line.startswith("+")] == [
            "+    },",
            "+    {",
            '+      "name": "note"',
        ]
        first = subject_view(one.machine, "orders-value", 1)
        assert first is not None
        assert (first.changes, '"name": "id"' in first.text) == (None, True)
        assert subject_view(one.machine, "orders-value", 3) is None
        assert subject_view(one.machine, "", LATEST) is None


async def test_a_text_that_is_long_or_no_json_is_shown_as_it_is_and_cut() -> None:
    async with agents() as (one,):
        await register(one, "deep", "[" * 50_000)
        await register(one, "long", f'"{"x" * (2 * SHOWN_MAX)}"')
        deep, long = (subject_view(one.machine, name, LATEST) for name in ("deep", "long"))
        assert deep is not None
        assert deep.text == "[" * 50_000
        assert long is not None
        assert (len(long.text), long.is_cut) == (SHOWN_MAX, True)


async def test_tables_are_those_of_which_something_is_set_or_was_told() -> None:
    async with agents() as (one,):
        await one.create_topic("plain")
        await one.create_topic("set", **{"frazil.iceberg.mode": "upsert"})
        await one.produce("logs", batch(b"a", b"b", b"c"))
        topic_id = one.machine.topics.by_name("logs").topic_id
        await one.log_client.propose(ReportExport(topic_id, (ExportEnd(0, 1),)))
        sources, letters = {topic_id: TableSource("lake.logs", 7)}, {"NO_KEY": 3, "BAD_JSON": 1}
        one.machine.losses.rows[topic_id, 0] = (Loss(4, 6, one.machine.time_ms - 5000),)
        heard = Told(sources, {topic_id: letters})
        told, only_set = tables_view(one.machine, Asked(), heard).rows
        assert (told.table, told.snapshot_id) == ("lake.logs", 7)
        assert (told.dead_letter_table, told.dead_letter_count) == ("lake.logs__dlq", 4)
        assert told.losses == (LossRow(0, 4, 5, 5000),)
        assert (only_set.table, only_set.dead_letters, only_set.losses) == ("", None, ())
        assert (told.topic, told.sums.waits_for_export, told.reported_ms) == ("logs", 2, 0)
        assert (only_set.topic, only_set.configs, only_set.reported_ms) == (
            "set",
            (("mode", "upsert"),),
            None,
        )


async def test_access_shows_acls_and_quotas_in_kafkas_words() -> None:
    async with agents() as (one,):
        await allow(one, acl(Operation.READ, name="orders", prefix=True))
        entity = (EntityPart(EntityType.USER, "ann"), EntityPart(EntityType.CLIENT_ID, None))
        change = QuotaChange(entity, Quota.PRODUCER_BYTE_RATE, 1024.0)
        await one.log_client.propose(AlterClientQuotas((change,)))
        view = access_view(one.machine)
        (binding,) = view.acls
        assert binding[:3] == ("User:bob", "ALLOW", "READ")
        assert binding[3:] == ("TOPIC", "PREFIXED", "orders", "*")
        (quota,) = view.quotas
        assert quota == ("user ann, client-id <default>", (("producer_byte_rate", 1024.0),))
        assert (view.users, view.user_count) == ((), 0)
