"""Values for topics that decode them (frazil.schema.validate=full): by schemas that take long, and very many."""

import json

from protocol.compression import Codec
from tests.harm.attacks.batches import OPENED_MAX, again_and_again, bomb, topic_for
from tests.harm.attacks.http import register
from tests.harm.scene import Scene, attack
from tests.kit.batches import batch

DOUBLINGS = 40
FRAMED = b"\0\0\0\0\1" + b"1"
"""A number in JSON, by the first schema."""
RECORD = bytes([2 * (6 + len(FRAMED)), 0, 0, 0, 1, 2 * len(FRAMED)]) + FRAMED + b"\0"
A_MILLION = 1_100_000


async def schema_that_doubles(scene: Scene) -> None:
    """By which a value is looked at a million million times."""
    definitions = {
        f"n{number}": {"allOf": [{"$ref": f"#/definitions/n{number + 1}"}] * 2}
        for number in range(DOUBLINGS)
    } | {f"n{DOUBLINGS}": {"type": "integer"}}
    text = json.dumps({"$ref": "#/definitions/n0", "definitions": definitions})
    assert await register(scene, "s", text, "JSON") == 200


@attack()
async def values_that_take_for_ever_by_their_schema(scene: Scene) -> None:
    await schema_that_doubles(scene)
    await topic_for(scene, "decoded", frazil_schema_validate="full")
    await again_and_again(scene, "decoded", batch(FRAMED))


@attack(memory_max=OPENED_MAX)
async def bombs_of_values(scene: Scene) -> None:
    """A few KB of zstd: a million values, each to be decoded."""
    assert await register(scene, "s", '{"type": "integer"}', "JSON") == 200
    await topic_for(scene, "decoded", frazil_schema_validate="full")
    await again_and_again(scene, "decoded", bomb(RECORD, A_MILLION, Codec.ZSTD))
