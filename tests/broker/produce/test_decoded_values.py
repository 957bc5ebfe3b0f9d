"""Topics with frazil.schema.validate=full: what does not decode by the schema that it names is refused, by record."""

import json
import zlib

import pytest

from broker.produce import value_questions
from broker.produce.validation import InvalidBatch, Undecoded, ValidBatch
from broker.produce.value_checking import UndecidedError, ValueChecking
from broker.registry.checker import CheckerBusyError, CheckerUnavailableError
from broker.registry.checks import Answer, SchemaChecks
from coordinator.commands.table_commands import (
    RegisterSchema,
    SchemaKind,
)
from coordinator.tables.schemas import Schemas
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.records import Record, build_batch, read_header
from protocol.types import POSITION_ZERO
from tests.broker.agents import World
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
    monkeypatch.setattr(value_questions, "VALUES_MAX", 100)
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
        values = [GOOD] * 3000
        assert await agent.produce("c", batch(*values, codec=codec)).written() == (0, 0)
        assert asked == [100] * 30
        values[7] = values[2999] = BAD
        assert list(await refused(agent.produce("c", batch(*values, codec=codec)))) == [7, 2999]


def test_a_question_has_only_so_many_bytes_unless_a_value_alone_has_more(monkeypatch) -> None:
    monkeypatch.setattr(value_questions, "BYTES_MAX", 10)
    monkeypatch.setattr(value_questions, "_question", lambda fields, _schemas: fields)
    sizes = [4, 4, 4, 11, 1, 9, 1]
    fields = [
        value_questions.NamedField(n, "value", 1, bytes(size)) for n, size in enumerate(sizes)
    ]
    pieces = [[len(one.data) for one in some] for some in value_questions.questions(fields, None)]
    assert pieces == [[4, 4], [4], [11], [1, 9], [1]]


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


async def test_a_schema_that_was_deleted_meanwhile_takes_no_value() -> None:
    checking = ValueChecking(Schemas(), in_loop=True)
    data = batch(GOOD)
    fields = (value_questions.NamedField(0, "value", 9, b""),)
    undecoded = Undecoded(ValidBatch(data, read_header(data), -1, NOW_MS), fields)
    found = await checking.validate(undecoded, client="one", is_wanted=lambda: True)
    assert found == InvalidBatch(ErrorCode.INVALID_RECORD, "schema 9 was deleted just now")


async def test_nobody_is_asked_for_a_client_that_does_not_wait() -> None:
    checking = ValueChecking(Schemas(), in_loop=True)
    checking._checker = Refusing(AssertionError("asked"))
    data = batch(GOOD)
    undecoded = Undecoded(ValidBatch(data, read_header(data), -1, NOW_MS), ())
    with pytest.raises(UndecidedError, match="nobody waits"):
        await checking.validate(undecoded, client="one", is_wanted=lambda: False)
