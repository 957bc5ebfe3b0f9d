"""The command line answers at once: what it imports before it does, by name. No clock is read here."""

import subprocess
import sys
from pathlib import Path

import pytest

from protocol.messages.places import MODULE_OF

ROOT = Path(__file__).parents[3]
TOLD = """
import sys
from broker.__main__ import main
try:
    main()
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
HEAVY = {
    "aiobotocore",
    "aiohttp",
    "confluent_kafka",
    "cramjam",
    "cryptography",
    "grpc",
    "joserfc",
    "numba",
    "numpy",
    "obstore",
    "pandas",
    "pyarrow",
    "pyiceberg",
    "pyspark",
    "uvloop",
}
AGENTS = {"asyncio", "ssl", "broker.config.settings", "coordinator", "protocol.messages", "storage"}
"""What only agents need, and commands that ask them."""


def imported(*arguments: str, told: str = TOLD) -> set[str]:
    """The modules of a process that ran the command."""
    ended = subprocess.run(
        [sys.executable, "-c", told, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ("--help",),
            ("--version",),
            ("brew",),
            ("topic", "describe", "--help"),
            ("dev", "--help"),
        ),
        *(("schema", "--help"), ("produce", "--help")),
    ],
    ids=" ".join,
)
def test_what_needs_no_agent_is_answered_without_what_agents_are_made_of(
    arguments: tuple[str, ...],
) -> None:
    assert imported(*arguments) & (HEAVY | AGENTS) == set()


EXPORTER = TOLD.replace("broker", "iceberg_export")
COMMANDS = ("run", "status", "plan", "view", "verify", "init", "reset-offsets", "redact")


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("brew",), ("run", "--interval", "soon")]
    + [(command, "--help") for command in (*COMMANDS, "replay", "backfill", "maintain")],
    ids=" ".join,
)
def test_what_the_exporter_says_without_exporting_needs_nothing_of_what_exports(
    arguments: tuple[str, ...],
) -> None:
    found = imported(*arguments, told=EXPORTER)
    assert "iceberg_export.cli.parser" in found
    exporting = {"ssl", "iceberg_export.cli.main", "iceberg_export.settings", "protocol.messages"}
    assert found & (HEAVY | exporting | {"storage"}) == set()


def test_a_cluster_is_asked_without_what_agents_are_made_of_nor_logins() -> None:
    found = imported("group", "list", "--bootstrap", "127.0.0.1:1")
    assert "broker.cli.kafka_client" in found
    unneeded = {"broker.config.settings", "broker.sasl.client", "coordinator", "storage"}
    assert found & (HEAVY | unneeded | {"protocol.messages.transactions"}) == set()


def test_who_logs_in_does_not_wait_for_the_metadata_log(tmp_path: Path) -> None:
    """Its commands and tables take longer to import than all the rest."""
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="alice" password="secret";\n'
    )
    found = imported("user", "list", "--command-config", str(file))
    assert "broker.sasl.client" in found
    unneeded = {
        "broker.config.settings",
        "coordinator.commands.entries",
        "coordinator.tables",
        "storage",
    }
    assert found & (HEAVY | unneeded) == set()


def test_a_registry_is_asked_without_what_asks_clusters_and_reads_values() -> None:
    found = imported("schema", "list", "--registry", "http://127.0.0.1:1")
    assert "broker.cli.schemas.registry" in found
    unneeded = {
        "broker.config.settings",
        "coordinator",
        "google.protobuf",
        "jsonschema_rs",
        "storage",
    }
    assert found & (HEAVY | unneeded) == set()


def test_an_agent_imports_no_message_when_it_is_asked() -> None:
    """What makes the classes of one module takes longer than a request may."""
    told = "import sys, broker.agent; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True
    )
    modules = {f"protocol.messages.{name}" for name in MODULE_OF.values()}
    assert modules - set(ended.stdout.split()) == set()
