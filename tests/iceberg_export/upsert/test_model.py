"""Random life of a topic and its table of mode upsert, against the fold of the committed records.

Producers write few keys again and again, tombstones and records without keys between; log
compaction and retention shorten the log. After every step the table must be what the committed
records before its state's offsets fold to, but for those that its history cannot know (`gone`):
what deletes and resets took out, and what the log had lost before an export came by. Keys that
lie in both partitions go by timestamps; of them alone a deleted one may come back.
"""

from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import rule
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType

from iceberg_export.errors import StateError
from iceberg_export.table.catalog import view_of
from iceberg_export.table.state import read_state
from protocol.records import Record
from tests.iceberg_export.kit.life import CHOICES, PARTITIONS, Life, bounded
from tests.iceberg_export.kit.place import FAR, NOW_MS
from tests.iceberg_export.kit.strangers import delete_key, scan_of

BUCKETS = 2


class UpsertLife(Life):
    def __init__(self):
        super().__init__()
        self.place.configure(mode="upsert", partition_by=f"bucket({BUCKETS}, kafka_key)")
        self.place.sets = ("gap.policy=skip",)
        self.written = {}
        """Every record that ever was in the log, by (partition, offset)."""
        self.touched = False
        """The table is not what the log alone makes of it."""

    def committed(self):
        """Places of all records that are committed, also those that the log has no more."""
        there = {(p, one.offset) for p, log in enumerate(self.logs) for one in log.records}
        return there | self.dropped

    def last(self):
        """By key and partition: the place of the last record that the head's table knows of."""
        offsets = self.place.state().offsets
        found = {}
        for partition, offset in sorted(self.committed() - self.gone[self.head()]):
            key = self.written[partition, offset].key
            if offset < offsets.get(partition, 0) and key is not None:
                found.setdefault(key, {})[partition] = (partition, offset)
        return found

    def rows(self):
        """By key the place of its row, of which there must not be two, each in its bucket."""
        bucket = BucketTransform(BUCKETS).transform(BinaryType())
        table = self.place.table()
        found = {}
        for task in table.scan().plan_files():
            for row in scan_of(table).to_table([task]).to_pylist():
                key, place = row["kafka_key"], (row["kafka_partition"], row["kafka_offset"])
                assert (key, row["value"]) == self.written[place][2:4]
                assert task.file.partition[0] == bucket(key)
                assert key not in found
                found[key] = place
        return found

    def check_rows(self):
        last, rows = self.last(), self.rows()
        for key in last.keys() | rows.keys():
            assert rows.get(key) in self.allowed(list(last.get(key, {}).values()))

    def allowed(self, places):
        """What row a key may have, of its last records in each partition."""
        living = [place for place in places if self.written[place].value is not None]
        if len(places) > 1 and len(living) < len(places):
            return {None, *living}
        newest = max(living, key=lambda place: self.written[place].timestamp, default=None)
        return {newest}

    def check_end(self):
        """Records without keys are dead letters, once; those that the log dropped may be missing."""
        places = self.place.dead("kafka_partition", "kafka_offset")
        ends = self.place.state().offsets
        keyless = {
            place
            for place in self.committed()
            if self.written[place].key is None and place[1] < ends.get(place[0], 0)
        }
        assert len(places) == len(set(places))
        assert set(places) <= keyless
        assert keyless - set(places) <= self.gone[self.head()] | self.dropped
        if not self.touched:
            assert self.place.verify().problems == ()

    def records(self, partition, some):
        log = self.logs[partition]
        made = []
        for key, has_value in some:
            offset, number = log.end + len(made), len(self.written)
            if key is not None and not key.startswith(b"both"):
                key += b"-%d" % partition  # noqa: PLW2901
            value = b"v%d" % number if has_value else None
            record = Record(timestamp=NOW_MS + number, key=key, value=value)
            self.written[partition, offset] = record._replace(offset=offset)
            made.append(record)
        return made

    def drop(self, partition, offsets):
        """The log loses these: whoever has not exported them yet will never know them."""
        places = {(partition, offset) for offset in offsets}
        self.dropped |= places
        log = self.logs[partition]
        log.records = [one for one in log.records if one.offset not in offsets]
        if not self.place.has_head():
            return
        self.observe()
        view = view_of(self.place.table())
        for one in view.snapshots:
            with suppress(StateError):
                state = read_state(view._replace(head_id=one.snapshot_id))
                known = state.offsets.get(partition, 0)
                late = {place for place in places if place[1] >= known}
                self.gone[one.snapshot_id] |= late

    @rule(partition=PARTITIONS, tombstones=st.booleans())
    def clean(self, partition, tombstones):
        """Log compaction of all before the first transaction, into one segment."""
        log = self.logs[partition]
        starts = [aborted[1] for aborted in log.aborted] + log.markers
        starts += [records[0].offset for records in log.open.values()]
        starts += [one.offset for one in log.records if one in self.transactional(log)]
        end = min(starts, default=log.end)
        spans = [span for span in log.spans if span[3] + span[4] <= end]
        if not spans or spans[0][3] < log.log_start:
            return
        end = spans[-1][3] + spans[-1][4]
        below = [one for one in log.records if log.log_start <= one.offset < end]
        newest = {one.key: one.offset for one in below}
        gone = {
            one.offset
            for one in below
            if one.key is not None
            and (one.offset != newest[one.key] or (tombstones and one.value is None))
        }
        self.drop(partition, gone)
        kept = {one.offset for one in below} - gone
        self.place.world.compact("orders", partition, kept, len(spans))

    def transactional(self, log):
        """Records of transactions that were committed; segments here are of plain ones."""
        return [one for one in log.records if log.markers and one.offset < max(log.markers)]

    @rule(partition=PARTITIONS, choice=CHOICES)
    def retain(self, partition, choice):
        """Retention takes the oldest spans."""
        log = self.logs[partition]
        whole = [span for span in log.spans if span[3] + span[4] <= log.stable]
        if whole:
            last = whole[min(choice, len(whole) - 1)]
            start = last[3] + last[4]
            log.log_start = max(log.log_start, start)
            self.drop(partition, {one.offset for one in log.records if one.offset < log.log_start})

    def take_out(self, choice):
        """A row goes, and with it all that the table knew of its key."""
        if not (rows := self.rows()):
            return
        key = sorted(rows)[choice % len(rows)]
        before, offsets = self.gone[self.head()], self.place.state().offsets
        delete_key(self.place.table(), key)
        its = {
            place
            for place, record in self.written.items()
            if record.key == key and place[1] < offsets.get(place[0], 0)
        }
        self.gone[self.head()] = before | its
        self.touched = True

    def go_to(self, choice, *, ahead):
        """Back, or ahead: what is taken out and what is skipped the table does not know."""
        to, log = None, self.logs[0]
        if choice is not None:
            to = {0: min(log.log_start + choice, log.stable)}
            if not ahead:
                to = {0: max(log.log_start, min(choice, self.place.state().offsets.get(0, 0)))}
        kept = set(self.rows().values())
        offsets = self.place.reset(to).offsets
        moved = offsets if to is None else to
        kept = {place for place in kept if place[1] < moved.get(place[0], FAR)}
        assert set(self.rows().values()) == kept
        behind = {place for place in self.written if place[1] < offsets.get(place[0], 0)}
        self.gone[self.head()] = frozenset((behind - kept) | (self.dropped - behind))
        self.touched = True


UpsertLife.TestCase.settings = bounded(12, 14)
TestUpsertLife = UpsertLife.TestCase
