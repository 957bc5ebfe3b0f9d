"""What lies in etcd and beside snapshots besides entries and parts: written and read as ever."""

from coordinator.log import etcd_pb2 as pb
from coordinator.log.etcd_cut import CutState
from coordinator.log.etcd_keys import Keys
from coordinator.snapshot.manifest import (
    LoadableSnapshot,
    Manifest,
    PartInfo,
    decode_manifest,
    decode_published,
    encode_manifest,
    encode_published,
    manifest_key,
    part_key,
)
from protocol.types import position

PLACE = position(1, 900)
DIGEST = bytes(range(16))
MANIFEST = Manifest(
    cluster_id="ours",
    era=1,
    position=PLACE,
    digest=DIGEST,
    time_ms=1_700_000_000_000,
    parts=(PartInfo(3, b"\1" * 32),),
)
MANIFEST_BYTES = (
    b"{\n"
    b'  "version": 1,\n'
    b'  "cluster": "ours",\n'
    b'  "era": 1,\n'
    b'  "position": 281474976711556,\n'
    b'  "digest": "000102030405060708090a0b0c0d0e0f",\n'
    b'  "time_ms": 1700000000000,\n'
    b'  "parts": [\n'
    b"    {\n"
    b'      "length": 3,\n'
    b'      "blake2b": "0101010101010101010101010101010101010101010101010101010101010101"\n'
    b"    }\n"
    b"  ]\n"
    b"}\n"
)
PUBLISHED_BYTES = (
    b'{"version": 1, "snapshots": [{"position": 281474976711556, '
    b'"digest": "000102030405060708090a0b0c0d0e0f", '
    b'"key": "snapshots/0001000000000384/manifest"}]}'
)


def test_keys_of_etcd_are_what_they_ever_were() -> None:
    keys = Keys.of(prefix="/frazil", cluster="ours", era=1)
    assert keys._asdict() == {
        "identity": b"/frazil/ours/identity",
        "log_prefix": b"/frazil/ours/1/log/0/",
        "last_prefix": b"/frazil/ours/1/last/0/",
        "session_prefix": b"/frazil/ours/1/session/",
        "head": b"/frazil/ours/1/head/0",
        "snapshot": b"/frazil/ours/1/snapshot",
        "cut": b"/frazil/ours/1/cut/0",
        "void_prefix": b"/frazil/ours/1/void/0/",
    }
    assert keys.entry(0x1234, 17) == b"/frazil/ours/1/log/0/0000000000001234/0000000011"
    assert keys.last(0x1234) == b"/frazil/ours/1/last/0/0000000000001234"
    assert keys.session(0x1234) == b"/frazil/ours/1/session/0000000000001234"
    assert keys.void(0x384) == b"/frazil/ours/1/void/0/0000000000000384"


def test_how_far_etcds_log_is_cut_is_written_and_read_as_ever() -> None:
    state = CutState(through=900, done=800, compact=700, forgotten=True)
    written = b'{"compact": 700, "done": 800, "forgotten": true, "through": 900}'
    assert state.encoded() == written
    assert CutState.of(pb.KeyValue(value=written)) == state


def test_a_manifest_is_written_and_read_as_ever() -> None:
    assert encode_manifest(MANIFEST) == MANIFEST_BYTES
    assert decode_manifest(MANIFEST_BYTES) == MANIFEST
    assert manifest_key(PLACE) == "snapshots/0001000000000384/manifest"
    assert part_key(PLACE, 12) == "snapshots/0001000000000384/0012"


def test_the_list_of_snapshots_in_the_log_is_written_and_read_as_ever() -> None:
    named = LoadableSnapshot(PLACE, DIGEST, manifest_key(PLACE))
    assert encode_published([named]) == PUBLISHED_BYTES
    assert decode_published(PUBLISHED_BYTES) == (named,)
