"""No field of any table is forgotten by a snapshot: changing it, wherever it is, changes the bytes.

Walks a machine down to its last number, changes one thing at a time, and dumps. Who adds a field
to a table and not to the snapshot is told its name here. What follows from other fields and is
made again is listed, with the reason.
"""

from array import array
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import pytest

from coordinator.commands.transaction_commands import AddToTransaction, InitProducer
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import SnapshotError, dump, restore
from protocol.types import Incarnation, position
from storage.formats.spans import ObjectKind
from tests.coordinator.histories import WITHOUT_JOBS, history
from tests.coordinator.machine.story import begun
from tests.coordinator.snapshot.compare import PLAIN, differences, fields_of

DERIVED = {
    "Acls._allowing": "ACLs by principal and operation",
    "Acls._literal": "ACLs by name and principal",
    "Acls._prefix_lengths": "counted as ACLs are read",
    "Acls._prefixed": "ACLs by prefix and principal",
    "Acls._size": "summed up as ACLs are read",
    "Eras.leader_epoch": "that of the newest row",
    "Credentials._count": "counted as users are read",
    "Groups._count": "groups are counted as they are read",
    "Objects._slots": "writers by what they are",
    "PendingOffsets._count": "counted as they are read",
    "PendingOffsets._places": "what waits, by place instead of by producer",
    "PendingOffsets.metadata_size": "summed up as offsets are read",
    "Partition.paged_row_count": "summed up over its pages",
    "Partition.topic_id": "the key of its topic",
    "Schemas._body_bytes": "summed up as schemas are read",
    "Schemas._by_fingerprint": "schemas by fingerprint",
    "Schemas._referrers": "references the other way round",
    "Schemas._uses": "versions by schema",
    "Schemas._version_count": "counted as subjects are read",
    "Snapshots.is_beginning": "true within apply only",
    "Topics._by_folded_name": "names as metric names",
    "Topics._by_name": "topics by name",
    "Transactions._by_producer": "transactional ids by producer",
    "TransactionRow.partitions[]": "the rows of the table of partitions",
}
"""Fields that are not written, and what they are made from."""

REFERENCES = {
    "Groups._incarnations",
    "Groups._topics",
    "Partition._objects",
    "Partitions._objects",
    "Partitions._transactions",
    "Machine._transacting",
    "Machine._bounding",
    "Transactions._ongoing[]",
}
"""To other tables and their rows, which are walked where they are at home."""

FIXED = {"Groups._holders", "Groups._shards"}
"""Lists that are never longer or shorter."""

KEYS = {
    "DelegationToken.token_id",
    "GroupRow.group_id",
    "IncarnationRow.incarnation",
    "JobRow.kind",
    "Partition.partition",
    "PinRow.name",
    "Reference.subject",
    "Reference.version",
    "SchemaRow.fingerprint",
    "SchemaRow.schema_id",
    "TransactionMetadata.previous_id",
    "TransactionMetadata.producer_id",
    "Topic.name",
    "Topic.topic_id",
    "TransactionRow.transactional_id",
    "VersionRow.schema_id",
    "_Writer.incarnation",
    "_Writer.kind",
}
"""Fields under which rows are found: changed alone they contradict the maps."""

ORDERED_SETS = {
    "Acls._rows[]",
    "PendingOffsets._producers[][]",
    "TransactionRow.group_ids[]",
}
"""Values of maps that are only keys."""

Setter = Callable[[Any], None]


def machines() -> list[Machine]:
    return [
        *[history(seed, steps=400, kinds=WITHOUT_JOBS).machine for seed in range(4)],
        *[history(seed, steps=600).machine for seed in range(12)],
        rare(),
        of_a_later_era(),
    ]


def rare() -> Machine:
    """What random histories hardly ever end with."""
    story, agent, topic_id = begun()
    story.do(agent, InitProducer("pay", 1000, -1, -1))
    story.do(agent, AddToTransaction("pay", 0, 0, 1, 7, ((topic_id, 0),), ()))
    row = story.machine.transactions.get("pay")
    assert row is not None
    assert row.txn_metadata.adds.owner == (agent, 7)
    # The slot of a writer that is closed and has nothing left.
    gone = Incarnation(agent - 1)
    objects = story.machine.objects
    objects.slot(agent)
    objects.doom(gone, ObjectKind.SEGMENT, [3], is_live=False)
    objects.forget(gone, ObjectKind.SEGMENT, {3})
    return story.machine


def of_a_later_era() -> Machine:
    machine = history(1, steps=600).machine
    machine.begin_era(position(2, 1), snapshot_key="snapshots/the-first/manifest")
    return machine


def places(name: str, value: Any, put: Setter) -> Iterator[tuple[str, Any, Setter]]:
    """Everything that `value` is made of: its name, what it is, and how to put something else."""
    if name in DERIVED or name in REFERENCES:
        return
    yield name, value, put
    if isinstance(value, PLAIN):
        return
    if hasattr(value, "_fields"):
        for field in value._fields:
            yield from places(
                f"{type(value).__name__}.{field}",
                getattr(value, field),
                lambda new, field=field: put(value._replace(**{field: new})),
            )
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from places(
                f"{name}[]",
                each,
                lambda new, index=index: put((*value[:index], new, *value[index + 1 :])),
            )
    elif isinstance(value, list | dict):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(
                f"{name}[]", value[key], lambda new, key=key: value.__setitem__(key, new)
            )
    else:
        for field in fields_of(value):
            yield from places(
                f"{type(value).__name__}.{field}",
                getattr(value, field),
                lambda new, field=field: object.__setattr__(value, field, new),
            )


def changed(value: Any) -> Any:
    """Another value of the kind; None when there is no other."""
    match value:
        case None:
            return None
        case bool():
            return not value
        case Enum():
            return next((each for each in type(value) if each is not value), None)
        case int():
            return value + 1
        case str():
            return value + "x"
        case bytes() | bytearray() if value:
            return type(value)([value[0] ^ 1]) + value[1:]
        case array() if value:
            return array(value.typecode, [value[0] ^ 1, *value[1:]])
        case dict() if value:
            return dict(list(value.items())[:-1])
        case list() | tuple() if value and not hasattr(value, "_fields"):
            return value[:-1]
    return None


def is_empty(value: Any) -> bool:
    sized = isinstance(value, dict | list | tuple | bytearray | array)
    return value is None or (sized and not len(value))


def dumped(machine: Machine) -> object:
    """Its bytes; or that they cannot be made, which a change can bring about too."""
    try:
        return dump(machine)
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        return repr(error)


def test_every_field_of_every_table_is_in_the_snapshot():
    met: set[str] = set()
    filled: set[str] = set()
    changes: set[str] = set()
    for machine in machines():
        before = dump(machine)
        for name, value, put in places("machine", machine, lambda new: None):
            met.add(name)
            if not is_empty(value):
                filled.add(name)
            other = changed(value)
            if name in changes or other is None or name in FIXED:
                continue
            changes.add(name)
            put(other)
            after = dumped(machine)
            put(value)
            assert after != before, f"{name} is not in the snapshot: {value!r:.100}"
        assert dump(machine) == before
    assert met - filled == ORDERED_SETS, "these are always empty in the machines of this test"


@pytest.mark.parametrize("seed", range(3))
def test_a_field_that_was_changed_is_restored_into_the_same_field(seed: int):
    machine = history(seed, steps=600).machine
    restored_count = 0
    names: set[str] = set()
    for name, value, put in places("machine", machine, lambda new: None):
        other = changed(value)
        if (
            name in names | KEYS | {"TransactionMetadata.state"}
            or other is None
            or not isinstance(value, PLAIN)
        ):
            continue
        names.add(name)
        put(other)
        restored = Machine()
        parts = dumped(machine)
        if isinstance(parts, list) and restores(restored, parts):
            restored_count += 1
            assert differences(machine, restored) == [], name
        put(value)
    assert restored_count > len(names) // 2


def restores(machine: Machine, parts: list[bytes]) -> bool:
    """Whether the change left the fields in agreement."""
    try:
        restore(machine, parts)
    except SnapshotError:
        return False
    return True
