"""Thousands of partitions, by each client with its own defaults, beside a canary that feels nothing."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.harm.honest import kit
from tests.harm.scene import Scene
from tests.parts import install

pytestmark = [pytest.mark.integration, pytest.mark.alone]

PROGRAMS = Path(__file__).parent / "programs"
ONE_TOPIC, TEN_TOPICS = ("1", "10000"), ("10", "400")
"""librdkafka's own work grows faster than partitions do: of ten thousand it takes a group half a minute
to begin, beside Apache Kafka too. `python -m tests.harm.honest.librdkafka BOOTSTRAP 10 1000` does that."""


def librdkafka() -> tuple[list[str], tuple[str, str]]:
    return kit.python("librdkafka"), TEN_TOPICS


def java() -> tuple[list[str], tuple[str, str]]:
    return install.java_program(PROGRAMS / "Wide.java", install.kafka_jars()), ONE_TOPIC


def franz_go() -> tuple[list[str], tuple[str, str]]:
    return [str(install.franz_go_program(PROGRAMS / "wide.go"))], ONE_TOPIC


@pytest.mark.real_loop
@pytest.mark.parametrize("client", [librdkafka, java, franz_go])
async def test_thousands_of_partitions_are_served_and_hold_up_nobody(
    client: Callable[[], tuple[list[str], tuple[str, str]]], tmp_path: Path
) -> None:
    program, partitions = client()

    async def work(scene: Scene) -> Mapping[str, float]:
        return await kit.run([*program, scene.agent.bootstrap, *partitions])

    told = await kit.beside_a_canary(work, tmp_path)
    assert "delete" in told.steps
    assert not told.refusals
