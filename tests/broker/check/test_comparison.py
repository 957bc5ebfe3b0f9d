"""Two lists in the order of keys, side by side."""

from hypothesis import given
from hypothesis import strategies as st

from broker.check.comparison import LENGTH, MISSING, Comparison
from protocol.types import Incarnation
from storage.formats.spans import ObjectId, ObjectKind
from storage.stores.object_store import ObjectInfo

IDS = st.builds(
    ObjectId,
    st.sampled_from([Incarnation(1), Incarnation(0x0001_0000_0000_00FF)]),
    st.sampled_from([0, 9, 10, 255, 256, 4096]),
    st.sampled_from(list(ObjectKind)),
)
LENGTHS = st.sampled_from([1, 2])


def info(key: str, length: int = 1) -> ObjectInfo:
    return ObjectInfo(key, length, 0)


def compared(expected: dict[ObjectId, int], listed: list[ObjectInfo], size: int = 2) -> Comparison:
    comparison = Comparison(
        {
            kind: [(each, expected[each]) for each in sorted(expected) if each.kind is kind]
            for kind in ObjectKind
        }
    )
    for first in range(0, len(listed), size):
        comparison.see(listed[first : first + size])
    comparison.end()
    return comparison


@given(st.dictionaries(IDS, LENGTHS), st.dictionaries(IDS, LENGTHS), st.integers(1, 4))
def test_what_is_expected_is_there_or_missing_or_has_another_length(expected, there, size):
    keys = sorted((each.key, length) for each, length in there.items())
    found = compared(expected, [info(key, length) for key, length in keys], size)
    troubles = {object_id: wrong.trouble for object_id, wrong in found.wrong}
    assert len(troubles) == len(found.wrong)
    assert troubles == {
        each: LENGTH if each in there else MISSING
        for each, length in expected.items()
        if there.get(each) != length
    }
    for kind in ObjectKind:
        of_kind = [length for each, length in expected.items() if each.kind is kind]
        assert found.counted[kind] == (len(of_kind), sum(of_kind))
    assert found.foreign.objects == 0


def test_keys_of_snapshots_checkpoints_and_markers_are_ours_and_all_others_are_foreign():
    ours = [
        "checkpoints/0001000000000002/0001000000000002",
        "chunks/0001000000000002/0000000a",
        "cluster.json",
        "log.json",
        "put-once",
        "snapshots/0001000000000002/0000",
    ]
    others = [
        "chunks/0001000000000002/0000000A",
        "chunks/0001000000000002/0000000a.bak",
        "chunks/readme",
        "cluster.json.old",
        "tables/a",
    ]
    found = compared({}, [info(key, 3) for key in sorted(ours + others)])
    assert (found.foreign.objects, found.foreign.bytes) == (5, 15)
    assert found.foreign.examples == tuple(others)
    assert found.wrong == []
