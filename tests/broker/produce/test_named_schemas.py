"""Topics with frazil.schema.validate=id: what names no schema that the registry has is refused, by record."""

import pytest

from broker.produce.validation import INFLATED_IN_PLACE
from coordinator.commands.table_commands import RegisterSchema, SchemaKind
from protocol import records
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.record_scan import HEADS_MAX
from protocol.records import Record, build_batch
from protocol.types import POSITION_ZERO
from tests.broker.agents import World
from tests.kit.agents import NOW_MS
from tests.kit.batches import batch
from tests.kit.faults import lost

KNOWN = b"\0\0\0\0\x01"
UNKNOWN = b"\0\0\0\0\x4d"
CHECKED = {"frazil_schema_validate": "id"}
KEYS_TOO = CHECKED | {"frazil_iceberg_key_mode": "avro"}


async def register(agent, number: int = 1) -> int:
    command = RegisterSchema("s", SchemaKind.AVRO, b"body", number.to_bytes(32), (), POSITION_ZERO)
    return (await agent.log_client.propose(command)).schema_id


async def refused(answer) -> dict[int, str]:
    """What was said, by index of the record; nothing of the batch was appended."""
    row = await answer.partition()
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert row.base_offset == -1
    return {each.batch_index: each.batch_index_error_message for each in row.record_errors}


async def test_records_that_name_no_schema_or_an_unknown_one_are_named_and_nothing_is_appended(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **CHECKED)
        assert await register(agent) == 1
        data = batch(KNOWN + b"v", UNKNOWN + b"v", b"bare", KNOWN, KNOWN[:-1], b"\x01" + KNOWN)
        said = await refused(agent.produce("c", data))
        assert list(said) == [1, 2, 4, 5]
        assert said[1] == (
            "The value names schema 77, which the registry does not have; register it, or set"
            " frazil.schema.validate=off."
        )
        for index in (2, 4, 5):
            assert said[index].startswith("The value does not begin with the id of a schema")
        assert agent.row("c").end_offset == 0


async def test_records_that_name_known_schemas_are_appended_and_so_are_tombstones(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **KEYS_TOO)
        await register(agent)
        made = [
            Record(timestamp=NOW_MS, key=KNOWN + b"k", value=KNOWN + b"v" * 100),
            Record(timestamp=NOW_MS, key=KNOWN + b"k" * 100, value=None),
            Record(timestamp=NOW_MS, key=None, value=KNOWN, headers=(("h", b"v"),)),
        ]
        assert await agent.produce("c", build_batch(made)).written() == (0, 0)


async def test_keys_are_checked_only_where_the_table_reads_them_by_schemas(world: World) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("plain", **CHECKED)
        await agent.create_topic("keyed", **KEYS_TOO)
        await register(agent)
        data = batch(KNOWN, key=b"bare")
        assert await agent.produce("plain", data).written() == (0, 0)
        said = await refused(agent.produce("keyed", data))
        assert said[0].startswith("The key does not begin with the id of a schema")


async def test_without_the_setting_values_are_bytes(world: World) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c")
        assert await agent.produce("c", batch(b"bare")).written() == (0, 0)


@pytest.mark.promise("P8")
async def test_a_schema_that_was_registered_at_another_agent_is_known(world: World) -> None:
    async with world.agents("a", "b") as (one, other):
        await one.create_topic("c", **CHECKED)
        await other.log_client.barrier()
        other.lag()
        await register(one)
        answer = other.produce("c", batch(KNOWN))
        await answer.waits()
        other.catch_up()
        assert await answer.written() == (0, 0)


async def test_while_the_log_is_out_of_reach_an_unknown_schema_is_refused_for_now(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **CHECKED)
        agent.log.before["head"] = lost()
        answer = agent.produce("c", batch(UNKNOWN))
        assert await answer.code() == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_records_of_large_batches_are_named_too(world: World, codec: Codec) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **CHECKED)
        await register(agent)
        values = [KNOWN + bytes(100)] * (2 * HEADS_MAX + 5)
        assert len(values) * 100 > INFLATED_IN_PLACE
        assert await agent.produce("c", batch(*values, codec=codec)).written() == (0, 0)
        values[HEADS_MAX] = values[-1] = UNKNOWN
        said = await refused(agent.produce("c", batch(*values, codec=codec)))
        assert list(said) == [HEADS_MAX, len(values) - 1]


async def test_a_record_whose_lengths_lie_is_refused_and_read_no_further(world: World) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **CHECKED)
        data = bytearray(batch(KNOWN))
        data[61 + 5] = 0x7E  # The value's length.
        records._seal(data, 0, len(data))
        row = await agent.produce("c", bytes(data)).partition()
        assert row.error_code == ErrorCode.INVALID_RECORD
        assert "value" in row.error_message or "records" in row.error_message


async def test_an_idempotent_producer_goes_on_with_the_sequence_that_was_refused(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **CHECKED)
        await register(agent)
        producer = {"producer_id": 7, "epoch": 0}
        first = batch(KNOWN, sequence=0, **producer)
        assert await agent.produce("c", first).written() == (0, 0)
        await refused(agent.produce("c", batch(UNKNOWN, sequence=1, **producer)))
        again = batch(KNOWN, sequence=1, **producer)
        assert await agent.produce("c", again).written() == (0, 1)
