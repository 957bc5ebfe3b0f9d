"""Data files of a table have the size that its topic chose, whoever writes them."""

import hashlib

import pytest

from iceberg_export.errors import StateError
from iceberg_export.table.file_size import ICEBERG_TARGET, TARGET_FILE_SIZE
from iceberg_export.upkeep.compact import compact
from tests.iceberg_export.kit.place import FAR, TABLE

MIB = 1 << 20


def noise(number, count):
    """Bytes that cannot be compressed."""
    return hashlib.shake_256(bytes([number])).digest(count)


def sizes(here):
    return sorted(task.file.file_size_in_bytes for task in here.table().scan().plan_files())


def told(here):
    properties = here.table().properties
    return properties.get(TARGET_FILE_SIZE), properties[ICEBERG_TARGET]


def send(here, count, size):
    first = here.log().end
    here.send(*(noise(first + number, size) for number in range(count)))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_one_batch_becomes_files_of_the_size_that_the_topic_chose(here, mode):
    here.configure(target_file_size=str(MIB), mode=mode, partition_by="none")
    keys = [bytes([number]) for number in range(6)]
    here.send(*(noise(number, MIB // 2) for number in range(6)), keys=keys)
    here.export()
    assert len(sizes(here)) == 3
    assert all(MIB <= size < 2 * MIB for size in sizes(here))
    assert here.verify().problems == ()
    assert told(here) == (str(MIB), str(MIB))


def test_without_the_setting_the_exporters_size_counts_and_the_table_is_left_alone(here):
    send(here, 6, MIB // 2)
    here.export("file.bytes.max=1048576")
    assert len(sizes(here)) == 3
    with here.table().transaction() as by_hand:
        by_hand.set_properties({ICEBERG_TARGET: "77"})
    send(here, 1, 9)
    here.export()
    assert told(here) == (None, "77")


def test_another_size_holds_from_the_next_run_on_and_none_goes_back_to_the_exporters(here):
    send(here, 4, MIB // 2)
    here.export()
    assert len(sizes(here)) == 1
    here.configure(target_file_size=str(MIB))
    send(here, 4, MIB // 2)
    here.export()
    assert len(sizes(here)) == 3
    assert told(here) == (str(MIB), str(MIB))
    here.configure()
    send(here, 4, MIB // 2)
    here.export()
    assert len(sizes(here)) == 4
    assert told(here) == (None, str(512 * MIB))
    assert here.rows() == here.wanted()


def test_what_people_wrote_for_other_engines_stays_while_the_setting_is_the_same(here):
    here.configure(target_file_size=str(MIB))
    here.export()
    with here.table().transaction() as by_hand:
        by_hand.set_properties({ICEBERG_TARGET: "77"})
    send(here, 4, MIB // 2)
    here.export()
    assert len(sizes(here)) == 2
    assert told(here) == (str(MIB), "77")


def test_small_files_are_joined_up_to_the_size_that_the_topic_chose(here):
    here.configure(target_file_size=str(MIB))
    for _ in range(6):
        send(here, 1, 300_000)
        here.export()
    done = compact(here.job(), TABLE, FAR)
    assert (done.files_before, done.files_after) == (6, 2)
    # They are not small for their topic, so they are not written again.
    assert compact(here.job(), TABLE, FAR).files_before == 0
    assert here.rows() == here.wanted()


def test_a_size_that_cannot_be_read_is_refused_with_what_helps(here):
    here.export()
    with here.table().transaction() as by_hand:
        by_hand.set_properties({TARGET_FILE_SIZE: "big"})
    with pytest.raises(StateError, match=r"frazil.target-file-size of table .*'big'.*; remove it"):
        compact(here.job(), TABLE, FAR)
    here.configure(target_file_size=str(MIB))
    send(here, 1, 9)
    here.export()
    assert told(here)[0] == str(MIB)
