"""Batches whose checksum is right and whose records are none: they stop no export, whatever the mode."""

import pytest
from crc32c import crc32c

from iceberg_export.dead_letters.dead_letter_table import dead_letter_identifier
from iceberg_export.steps import Step
from iceberg_export.tasks.export_split import BadRecordError
from protocol.records import Record, build_batch
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import DEAD_TABLE, TABLE, place
from tests.iceberg_export.kit.world import some_records


@pytest.fixture
def here():
    with place(1) as found:
        yield found


def poison(count, codec=0):
    """A batch of so many offsets, with a valid checksum over garbage."""
    batch = bytearray(build_batch(some_records(count)))
    batch[61:] = b"\xff" * (len(batch) - 61)
    batch[22] = codec
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


def send(here, *parts):
    here.world.commit("orders", {0: parts})


def keyed(*keys):
    return [Record(timestamp=1_700_000_000_000, key=key, value=b"v") for key in keys]


def both(here):
    """Offsets in the table, and among its dead letters."""
    return [row[1] for row in here.rows()], here.dead_offsets()


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4, 6])
def test_a_batch_of_garbage_becomes_one_dead_letter_and_the_export_goes_on(here, codec):
    send(here, some_records(3), poison(4, codec), some_records(2))
    report = here.export()
    assert (report.rows, report.dead, report.left_out) == (5, 1, 0)
    assert both(here) == ([0, 1, 2, 7, 8], [6])
    send(here, some_records(1))
    assert here.export().rows == 1
    assert both(here) == ([0, 1, 2, 7, 8, 9], [6])


def test_the_dead_letter_of_a_batch_has_its_bytes_its_offsets_and_the_reason(here):
    bad = poison(4)
    send(here, some_records(3), bad)
    here.export()
    ((offset, value, headers, code, text),) = here.dead(
        "kafka_offset", "value", "kafka_headers", "error_code", "error_message"
    )
    assert offset == 6
    assert value[16:] == bad[16:]
    assert [one["value"] for one in headers] == [b"3", b"6"]
    assert code == "BAD_BATCH"
    assert text.startswith("the batch of offsets 3 to 6 cannot be read, although its checksum")


def test_a_table_of_raw_records_has_no_dead_letters_until_there_is_one(here):
    send(here, some_records(3))
    here.export()
    assert not here.catalog.table_exists(DEAD_TABLE)
    send(here, poison(2))
    here.export()
    assert here.catalog.table_exists(DEAD_TABLE)


@pytest.mark.parametrize("decoder", ["compiled", "reference"])
@pytest.mark.parametrize("mode", ["raw", "string"])
def test_the_proof_holds_with_batches_of_garbage(here, mode, decoder):
    here.configure(value_mode=mode)
    send(here, keyed(b"a"), poison(4), keyed(b"b"), poison(1))
    here.export()
    send(here, poison(2), poison(3))
    here.export()
    found = here.verify(f"verify.decoder={decoder}")
    assert found.problems == ()
    assert (found.records, found.dead) == (2, 4)


@pytest.mark.parametrize("decoder", ["compiled", "reference"])
def test_the_proof_finds_a_batch_whose_dead_letter_is_gone(here, decoder):
    send(here, some_records(3), poison(4))
    here.export()
    here.table(DEAD_TABLE).delete("kafka_offset = 6")
    problems = here.verify(f"verify.decoder={decoder}").problems
    assert len(problems) == 1
    assert (
        "1 records cannot be decoded and are no dead letters: partition 0, offset 6" in problems[0]
    )


def test_upserts_go_on_beside_a_batch_of_garbage(here):
    here.configure(mode="upsert")
    send(here, keyed(b"a", b"b"), poison(4), keyed(b"a"))
    here.export("table.partition.by=day")
    assert both(here) == ([1, 6], [5])
    found = here.verify()
    assert found.problems == ()
    assert found.records == 2


def test_a_topic_that_drops_bad_records_drops_the_batch(here):
    here.configure(bad_records="drop")
    send(here, some_records(3), poison(4), some_records(1))
    report = here.export()
    assert (report.rows, report.dead, report.left_out) == (4, 0, 1)
    assert "offsets 3 to 6" in report.first_reason
    assert not here.catalog.table_exists(dead_letter_identifier(TABLE))
    assert here.verify().problems == ()


def test_a_topic_that_fails_on_bad_records_says_which_batch(here):
    here.configure(bad_records="fail")
    send(here, some_records(3), poison(4))
    with pytest.raises(
        BadRecordError, match=r"orders partition 0, offset 6: the batch of offsets 3"
    ):
        here.export()
    assert here.rows() == []


def test_a_batch_that_claims_two_billion_offsets_is_one_row(here):
    bad = bytearray(poison(4))
    bad[23:27] = (2_000_000_000 - 1).to_bytes(4, "big")
    bad[57:61] = (2_000_000_000).to_bytes(4, "big")
    bad[17:21] = crc32c(memoryview(bad)[21:]).to_bytes(4, "big")
    send(here, bytes(bad), some_records(1))
    here.export()
    assert both(here) == ([2_000_000_000], [1_999_999_999])
    assert here.verify().problems == ()


@pytest.mark.parametrize("at", [Step.COMMITTED, Step.DEAD_LETTERS_WRITTEN])
def test_a_crash_around_the_commit_of_a_batchs_dead_letter_loses_and_doubles_nothing(here, at):
    send(here, some_records(2), poison(3))
    with pytest.raises(Killed):
        here.export(hook=Once(at, Killed()))
    send(here, some_records(1))
    here.export()
    assert both(here) == ([0, 1, 5], [4])
    assert here.verify().problems == ()


def test_a_rollback_doubles_no_dead_letter_of_a_batch(here):
    send(here, some_records(2))
    here.export()
    before = here.head()
    send(here, poison(3), some_records(1))
    here.export()
    here.roll_back(before)
    here.export()
    assert both(here) == ([0, 1, 5], [4])
    assert here.verify().problems == ()


@pytest.mark.parametrize("to", [2, 3, 4, 5])
def test_a_reset_into_the_middle_of_such_a_batch_loses_and_doubles_nothing(here, to):
    send(here, some_records(2), poison(3), some_records(1))
    here.export()
    here.reset({0: to})
    assert here.verify().problems == ()
    here.export()
    assert both(here) == ([0, 1, 5], [4])
    assert here.verify().problems == ()


def test_a_log_that_begins_within_such_a_batch_is_proven_as_well(here):
    send(here, some_records(2), poison(3), some_records(1))
    here.export()
    here.log().log_start = 3
    found = here.verify()
    assert found.problems == ()
    assert found.dead == 1


def test_an_export_recognises_the_log_by_a_last_record_that_is_such_a_batch(here):
    send(here, some_records(2), poison(3))
    here.export()
    assert here.state().last_records[0].offset == 4
    # A job has moved it, so it is read and compared.
    log = here.log()
    key, start, length, *_rest = log.spans[0]
    moved = here.folder / "store" / "segments" / "9"
    moved.parent.mkdir(parents=True, exist_ok=True)
    data = bytearray((here.folder / "store" / key).read_bytes()[start : start + length])
    size = int.from_bytes(data[8:12], "big") + 12
    data[size : size + 8] = (2).to_bytes(8, "big")
    moved.write_bytes(bytes(data))
    log.spans[0][:2] = ["segments/9", 0]
    send(here, some_records(1))
    assert here.export().rows == 1
