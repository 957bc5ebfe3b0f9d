"""Names of topics are completed behind `frazil export`, as an agent tells them."""

from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.world import World
from tests.kit.completion import completed


def test_topics_are_completed_as_an_agent_tells_them(tmp_path):
    world = World(tmp_path / "store")
    for name in ("orders", "orders-dead", "payments"):
        world.create(name, 1)
    with served(world) as address:
        line = f"frazil export verify --agent {address} --topic ord"
        assert completed(line, tmp_path) == ["orders", "orders-dead"]


def test_an_address_that_is_none_completes_nothing(tmp_path):
    assert completed("frazil export verify --agent nowhere --topic ord", tmp_path) == []
