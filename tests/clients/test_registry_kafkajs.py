"""kafkajs' client of schema registries (Avro by avsc, JSON by ajv, Protobuf by protobufjs) with the
embedded registry: code that shares nothing with Confluent's own client."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.parts import install
from tests.parts.process import free_port
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration


def test_kafkajs_registers_writes_reads_and_hears_refusals_as_its_own_errors(
    tmp_path: Path,
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    settings = (f"schema.registry.listeners={url}", "schema.registry.basic.auth.user.info=ann:pw")
    words = [word for setting in settings for word in ("--set", setting)]
    program = Path(__file__).parent / "js" / "registry.js"
    with FrazilDev(tmp_path, *words, "--set", "group.initial.rebalance.delay.ms=0") as agent:
        done = subprocess.run(
            [install.node(), str(program), agent.bootstrap, url, "ann", "pw"],
            env={
                "NODE_PATH": str(install.kafkajs_registry() / "node_modules"),
                "KAFKAJS_NO_PARTITIONER_WARNING": "1",
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert agent.stop() == 0
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["avro"] == [
        {"id": 1, "note": None, "cents": 7},
        {"id": 2, "note": "é", "cents": 250},
    ]
    assert said["latest"] == [True, True, True]
    assert said["json"] == {"id": 3, "note": "x"}
    assert said["proto"] == {"id": "4", "note": "y", "tags": ["a", "b"]}
    assert "incompatible" in said["incompatible"]["message"]
    assert said["invalid"]["name"] == "ConfluentSchemaRegistryValidationError"
    assert "Unauthorized" in said["stranger"]["message"]
