"""What compaction may not do is seen where it does it, and nowhere else."""

from protocol.records import CONTROL_COMMIT, Record, build_batch, control_batch
from protocol.types import Incarnation, position
from storage.formats.spans import ObjectId, ObjectKind, Span
from tests.sim.compaction_account import CompactionAccount, Kept, records_of

A1, A2, B1 = (
    Kept(b"a", is_tombstone=False),
    Kept(b"a", is_tombstone=False),
    Kept(b"b", is_tombstone=False),
)
A_GONE = Kept(b"a", is_tombstone=True)


def test_older_records_may_go_and_new_ones_may_come() -> None:
    account = CompactionAccount()
    account.look({0: A1, 1: B1, 2: A2}, "at 1")
    account.look({1: B1, 2: A2, 3: A1}, "at 2")
    account.look({1: B1, 3: A1}, "at 3")
    assert account.violations == []


def test_the_newest_record_of_a_key_that_was_compacted_away_is_seen() -> None:
    account = CompactionAccount()
    account.look({0: A1, 1: B1, 2: A2}, "at 1")
    account.look({0: A1, 1: B1}, "at 2")
    assert account.violations == [
        "the newest record of b'a' at 2 was compacted away, 0 is left at 2"
    ]


def test_a_deletion_may_go_with_all_before_it_unless_none_is_old_enough() -> None:
    patient, account = CompactionAccount(keeps_tombstones=True), CompactionAccount()
    for each in (patient, account):
        each.look({0: A1, 1: B1, 2: A_GONE}, "at 1")
        each.look({1: B1}, "at 2")
    assert account.violations == []
    assert patient.violations == ["the deletion of b'a' at 2 was compacted away, -1 is left at 2"]


def test_a_deletion_that_leaves_an_older_record_is_seen() -> None:
    account = CompactionAccount()
    account.look({0: A1, 1: B1, 2: A_GONE}, "at 1")
    account.look({0: A1, 1: B1}, "at 2")
    assert account.violations == ["the deletion of b'a' at 2 was compacted away, 0 is left at 2"]


def test_what_comes_back_is_seen() -> None:
    account = CompactionAccount()
    account.look({0: A1, 1: B1, 2: A2}, "at 1")
    account.look({1: B1, 2: A2}, "at 2")
    account.look({0: A1, 1: B1, 2: A2, 3: B1}, "at 3")
    assert account.violations == ["[0] were compacted away and are there again at 3"]


def test_records_of_a_row_have_their_offsets_whether_the_row_tells_them_or_its_batches_do() -> None:
    marker = control_batch(
        CONTROL_COMMIT, base_offset=43, timestamp=0, producer_id=7, producer_epoch=0
    )
    for kind, base_offset in ((ObjectKind.CHUNK, 0), (ObjectKind.SEGMENT, 41)):
        batch = build_batch(
            [Record(key=b"a"), Record(key=b"b", value=b"1")], base_offset=base_offset
        )
        row = Span(ObjectId(Incarnation(position(1, 9)), 1, kind), 0, len(batch + marker), 41, 3, 0)
        assert [*records_of(row, batch + marker)] == [(41, A_GONE), (42, B1)]
