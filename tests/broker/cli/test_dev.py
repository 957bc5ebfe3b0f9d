"""The data folder of `frazil dev`, and what it prints."""

import os
from pathlib import Path

import pytest

from broker.cli import dev
from broker.config.settings import Settings, advertised, load
from broker.trial.secure_dev import SecureFolder


@pytest.fixture(autouse=True)
def _mask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_files_of_frazil_dev_are_its_users_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    dev.prepare(data)
    (data / "log.db").write_bytes(b"")
    assert [path.stat().st_mode & 0o777 for path in (data, data / "objects", data / "log.db")] == [
        0o700,
        0o700,
        0o600,
    ]


def test_a_folder_that_was_opened_to_others_stays_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    dev.prepare(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_new_data_folder_is_there_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, synced = os.fsync, []

    def recording(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", recording)
    dev.prepare(tmp_path / "some" / "data")
    above = [tmp_path, tmp_path / "some", tmp_path / "some" / "data"]
    assert synced == [each.stat().st_ino for each in above]


def test_the_greeting_of_a_secure_agent_names_files_and_no_password(tmp_path: Path) -> None:
    folder = SecureFolder(tmp_path, now_ms=1_700_000_000_000)
    listening = {"SASL_SSL": ("127.0.0.1", 9092), "http": ("127.0.0.1", 9094)}
    told = dev.greeting(listening, data=tmp_path, secure=True)
    for name in ("client.properties", "librdkafka.config", "kafka_python.py", "admin.properties"):
        assert name in told
    assert f"--command-config {folder.path}/client.properties" in told
    assert not [word for word in folder.passwords.values() if word in told]


def test_the_greeting_of_an_open_agent_asks_for_no_files(tmp_path: Path) -> None:
    listening = {"PLAINTEXT": ("127.0.0.1", 9095), "http": ("127.0.0.1", 9094)}
    told = dev.greeting(listening, data=tmp_path)
    assert "group describe readers --bootstrap localhost:9095" in told
    assert "secure" not in told


def test_the_greeting_names_listeners_that_speak_tls_as_such(tmp_path: Path) -> None:
    listening = dict.fromkeys(("PLAINTEXT", "http", "registry"), ("127.0.0.1", 1))
    told = dev.greeting(listening, data=tmp_path, https={"http"})
    assert "https://127.0.0.1:1/health/ready" in told
    assert "schema registry  http://127.0.0.1:1" in told
    assert "--agent https://127.0.0.1:1" in told


def test_the_export_of_the_greeting_is_told_by_the_agent_where_the_registry_is(
    tmp_path: Path,
) -> None:
    listening = {"PLAINTEXT": ("127.0.0.1", 9095), "http": ("127.0.0.1", 9094)}
    told = dev.greeting(listening | {"registry": ("127.0.0.1", 18081)}, data=tmp_path)
    assert "schema registry  http://127.0.0.1:18081\n" in told
    assert f"export run --once --data {tmp_path}\n" in told


def test_frazil_dev_is_one_node_to_its_clients_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    given = dev.defaults(port=9092, http_port=9094, registry_port=0, data=tmp_path)
    plain = load(defaults=given, toml=None, environ={}, flags=[])
    assert plain.settings.nodes_per_agent == 1
    told = load(defaults=given, toml=None, environ={}, flags=["frazil.nodes.per.agent=8"])
    assert told.settings.nodes_per_agent == 8


def in_container(tmp_path: Path, *, port: int = 9092, **environ: str) -> Settings:
    given = dev.defaults(port=port, http_port=9094, registry_port=0, data=tmp_path, bind="0.0.0.0")
    return load(defaults=given, toml=None, environ=environ, flags=[]).settings


def told(settings: Settings) -> list[tuple[str, int | None]]:
    """What clients are told by an agent that listens on port 9092 of a container."""
    listeners = advertised(
        settings, ports={"PLAINTEXT": 9092, "SASL_SSL": 9092}, host_name="c0ffee"
    )
    return [(each.host, each.port) for each in listeners]


def test_in_a_container_everybody_is_let_in_and_told_localhost(tmp_path: Path) -> None:
    settings = in_container(tmp_path)
    assert [(each.host, each.port) for each in settings.listen] == [("0.0.0.0", 9092)]
    assert [each.host for each in settings.registry_listen] == ["0.0.0.0"]
    assert told(settings) == [("localhost", 9092)]
    assert settings.http is not None
    assert settings.http.host == "127.0.0.1", "it would ask for a token"


def test_another_port_of_the_machine_can_be_told(tmp_path: Path) -> None:
    settings = in_container(tmp_path, FRAZIL_ADVERTISE="localhost:19092")
    assert told(settings) == [("localhost", 19092)]


def test_a_secure_agent_in_a_container_is_told_as_localhost_too(tmp_path: Path) -> None:
    folder = SecureFolder(tmp_path, now_ms=1_700_000_000_000)
    given = dev.defaults(port=9092, http_port=9094, registry_port=0, data=tmp_path, bind="0.0.0.0")
    given |= dev.secure_defaults(folder, port=9092, bind="0.0.0.0")
    settings = load(defaults=given, toml=None, environ={}, flags=[]).settings
    assert [each.host for each in settings.listen] == ["0.0.0.0"]
    assert told(settings) == [("localhost", 9092)]


def test_without_a_container_only_this_machine_is_let_in(tmp_path: Path) -> None:
    given = dev.defaults(port=9092, http_port=9094, registry_port=0, data=tmp_path)
    settings = load(defaults=given, toml=None, environ={}, flags=[]).settings
    assert [each.host for each in settings.listen] == ["localhost"]
    assert [each.host for each in settings.registry_listen] == ["127.0.0.1"]
    assert settings.advertise == ()
