"""Topics with frazil.schema.validate=full: what does not decode by the schema that it names is refused, by record."""

import asyncio
import json
import zlib

import pytest

from broker.calls.slices import Slices
from broker.produce import value_questions
from broker.produce.value_checking import QUESTION_BYTES
from broker.registry.checker import CheckerBusyError, CheckerUnavailableError
from broker.registry.checks import Answer, SchemaChecks
from coordinator.commands.table_commands import (
    RegisterSchema,
    SchemaKind,
)
from coordinator.tables.schemas import SchemaRow, Schemas
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.record_scan import HEADS_MAX
from protocol.records import Record, build_batch, payload
from protocol.types import POSITION_ZERO
from tests.broker.agents import World
from tests.broker.produce.world import FakeConnection
from tests.kit.agents import NOW_MS
from tests.kit.batches import batch

DECODED = {"frazil_schema_validate": "full"}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": "string"}],
    }
)
PERSON = '{"type": "object", "required": ["name"]}'
KNOWN = b"\0\0\0\0\x01"
GOOD = b"\0\0\0\0\x01\x0e\x06Ulm"
BAD = b"\0\0\0\0\x01\x0e\x0aUlm"


async def register(agent, text=ORDER, kind=SchemaKind.AVRO, subject="s") -> int:
    body = zlib.compress(text.encode())
    digest = text.encode()[:32].ljust(32)
    command = RegisterSchema(subject, kind, body, digest, (), POSITION_ZERO)
    return (await agent.log_client.propose(command)).schema_id


async def refused(answer) -> dict[int, str]:
    """What was said, by index of the record; nothing of the batch was appended."""
    row = await answer.partition()
    assert (row.error_code, row.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    return {each.batch_index: each.batch_index_error_message for each in row.record_errors}


async def test_values_that_do_not_decode_are_named_and_nothing_is_appended(world: World) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **DECODED)
        assert await register(agent) == 1
        assert await register(agent, PERSON, SchemaKind.JSON, "p") == 2
        person = b"\0\0\0\0\2{}"
        row = await agent.produce("c", batch(GOOD, BAD, person, GOOD + b"x")).partition()
        assert row.error_message == (
            "One or more records have been rejected due to 3 record errors in total"
        )
        said = await refused(agent.produce("c", batch(GOOD, BAD, person, GOOD + b"x")))
        assert said == {
            1: "The value is not as its schema 1 says: it ends within its 5 bytes.",
            2: 'The value is not as its schema 2 says: "name" is a required property.',
            3: "The value is not as its schema 1 says: 1 bytes follow the value.",
        }
        assert agent.row("c").end_offset == 0


async def test_what_decodes_is_appended_as_it_was_sent_and_so_are_tombstones(world: World) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **DECODED)
        await register(agent)
        made = [
            Record(timestamp=NOW_MS, key=b"k", value=GOOD),
            Record(timestamp=NOW_MS, key=b"k", value=None),
        ]
        assert await agent.produce("c", build_batch(made)).written() == (0, 0)
        only_tombstones = [Record(timestamp=NOW_MS, key=b"k", value=None)]
        assert await agent.produce("c", build_batch(only_tombstones)).written() == (0, 2)


async def test_keys_decode_too_where_the_table_reads_them_by_schemas(world: World) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("plain", **DECODED)
        await agent.create_topic("keyed", **DECODED, frazil_iceberg_key_mode="avro")
        await register(agent)
        assert await agent.produce("plain", batch(GOOD, key=BAD)).written() == (0, 0)
        row = await agent.produce("keyed", batch(BAD, key=BAD)).partition()
        said = [(one.batch_index, one.batch_index_error_message) for one in row.record_errors]
        assert [(index, text.partition(" as ")[0]) for index, text in said] == [
            (0, "The key is not"),
            (0, "The value is not"),
        ]


async def test_what_names_no_schema_is_refused_before_anything_is_decoded(world: World) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **DECODED)
        await register(agent)
        said = await refused(agent.produce("c", batch(BAD, b"bare")))
        assert list(said) == [1]
        assert said[1].startswith("The value does not begin with the id of a schema")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_records_of_large_batches_are_asked_about_in_pieces(
    world: World, codec: Codec, monkeypatch
) -> None:
    asked = []
    answer = SchemaChecks.answer
    monkeypatch.setattr(
        SchemaChecks,
        "answer",
        lambda self, question: asked.append(len(question.values)) or answer(self, question),
    )
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **DECODED)
        await register(agent)
        values = [GOOD] * (2 * HEADS_MAX + 5)
        assert await agent.produce("c", batch(*values, codec=codec)).written() == (0, 0)
        assert asked == [HEADS_MAX, HEADS_MAX, 5]
        values[7] = values[-1] = BAD
        said = await refused(agent.produce("c", batch(*values, codec=codec)))
        assert list(said) == [7, len(values) - 1]


def sizes_asked(*sizes: int) -> list[list[int]]:
    schemas = Schemas()
    schemas._rows[1] = SchemaRow(1, SchemaKind.AVRO, b"", b"", ())
    data = batch(*(KNOWN + bytes(size) for size in sizes))
    header, content = payload(data)
    found = value_questions.questions(content, header.record_count, schemas, with_keys=False)
    return [[len(value) for _, value in asked.question.values] for asked in found]


def test_a_question_has_only_so_many_bytes_unless_a_value_alone_has_more(monkeypatch) -> None:
    monkeypatch.setattr(value_questions, "BYTES_MAX", 10)
    assert sizes_asked(4, 4, 4, 11, 1, 9, 1) == [[4, 4], [4], [11], [1, 9], [1]]


def test_a_value_that_is_too_large_to_be_decoded_is_told(monkeypatch) -> None:
    monkeypatch.setattr(value_questions, "VALUE_BYTES_MAX", 10)
    assert sizes_asked(4, 10) == [[4, 10]]
    with pytest.raises(value_questions.UndecodableError) as told:
        sizes_asked(4, 11)
    assert str(told.value) == "the value of record 1 has 11 bytes, and at most 10 are decoded"


async def test_batches_wait_as_they_were_sent_until_there_is_room_to_ask_about_them(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **DECODED)
        await register(agent)
        checking = agent.node.value_checking
        checking._checker = slow = Slow()
        checking._room = Slices(held_max=2 * QUESTION_BYTES + 1000)
        answers = [
            agent.produce("c", batch(GOOD), connection=FakeConnection(number))
            for number in range(100, 105)
        ]
        assert sorted([(await one.written())[1] for one in answers]) == [0, 1, 2, 3, 4]
        assert slow.most == 2
        assert checking._room.held == 0


async def test_batches_of_a_connection_keep_their_order_while_one_is_decoded(world: World) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **DECODED)
        await agent.create_topic("plain")
        await register(agent)
        first = agent.produce("c", batch(GOOD, producer_id=7, epoch=0, sequence=0))
        second = agent.produce("c", batch(GOOD, producer_id=7, epoch=0, sequence=1))
        assert [await first.written(), await second.written()] == [(0, 0), (0, 1)]


class Refusing:
    """A checker that cannot answer, or says what it is told to."""

    def __init__(self, says) -> None:
        self._says = says

    async def ask(self, _question, *, client, is_wanted):
        if isinstance(self._says, Answer):
            return self._says
        raise self._says

    async def aclose(self) -> None:
        pass


class Slow:
    """A checker to which everything is fine; counts who waits for it."""

    def __init__(self) -> None:
        self.asked = self.most = self._waiting = 0

    async def ask(self, _question, *, client, is_wanted):
        self.asked += 1
        self._waiting += 1
        self.most = max(self.most, self._waiting)
        await asyncio.sleep(0.05)
        self._waiting -= 1
        return Answer()

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("says", [CheckerBusyError("too many wait"), CheckerUnavailableError("no")])
async def test_what_cannot_be_asked_about_now_is_for_its_producer_to_send_again(
    world: World, says
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **DECODED)
        await register(agent)
        agent.node.value_checking._checker = Refusing(says)
        producer = {"producer_id": 7, "epoch": 0, "sequence": 0}
        row = await agent.produce("c", batch(GOOD, **producer)).partition()
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert row.error_message == f"whether the values decode is not known: {says}"
        agent.node.value_checking._checker = None
        assert await agent.produce("c", batch(GOOD, **producer)).written() == (0, 0)


async def test_what_cannot_be_decoded_within_the_bounds_is_refused(world: World) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **DECODED)
        await register(agent)
        agent.node.value_checking._checker = Refusing(Answer(error="it takes more than 5 s"))
        row = await agent.produce("c", batch(GOOD, GOOD)).partition()
        assert row.error_code == ErrorCode.INVALID_RECORD
        said = "what is to be decoded of the records 0 to 1: it takes more than 5 s"
        assert row.error_message == said


def test_a_schema_that_was_deleted_meanwhile_takes_no_value() -> None:
    _, content = payload(batch(GOOD))
    with pytest.raises(value_questions.UndecodableError, match="schema 1 was deleted just now"):
        list(value_questions.questions(content, 1, Schemas(), with_keys=False))


async def test_what_a_batch_is_asked_about_is_given_up_when_nobody_waits_any_more(
    world: World,
) -> None:
    async with world.agents("a") as (agent,):
        await agent.create_topic("c", **DECODED)
        await register(agent)
        agent.node.value_checking._checker = slow = Slow()
        gone = agent.produce("c", batch(GOOD), connection=FakeConnection(100))
        gone.call.connection.closed = True
        assert await agent.produce("c", batch(GOOD)).written() == (0, 0)
        assert slow.asked == 1
