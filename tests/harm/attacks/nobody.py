"""No harm at all: what the canary sees when nobody attacks."""

from tests.harm.scene import Scene, attack


@attack()
async def nothing(scene: Scene) -> None:
    """The canary alone."""
    assert scene.sent == 0
