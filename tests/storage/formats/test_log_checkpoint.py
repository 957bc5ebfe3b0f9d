"""Checkpoints of the log: their keys and bytes."""

import pytest

from protocol.types import Incarnation, position
from storage.formats.log_checkpoint import LogCheckpoint

CHECKPOINT = LogCheckpoint(Incarnation(position(1, 10)), position(1, 900))
KEY = "checkpoints/000100000000000a/0001000000000384"


def test_checkpoint_is_written_and_found_as_ever() -> None:
    assert CHECKPOINT.key == KEY
    assert LogCheckpoint.of_key(KEY) == CHECKPOINT
    assert CHECKPOINT.encode(cluster_id="ours") == (
        b'{"cluster_id": "ours", "era": 1, "format_version": 1, "incarnation": 281474976710666, '
        b'"position": 281474976711556, "checksum": "fbffe3df"}\n'
    )


@pytest.mark.parametrize(
    "key", ["", "checkpoints/", KEY[:-1], KEY + "0", KEY.replace("/0001", "/x001", 1), "x" + KEY]
)
def test_other_keys_are_those_of_no_checkpoint(key: str) -> None:
    with pytest.raises(ValueError, match=r"checkpoint|invalid literal"):
        LogCheckpoint.of_key(key)
