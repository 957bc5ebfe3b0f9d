"""The exporter says the agents' token, and the registry's, and reads them from files each time."""

import time
from pathlib import Path
from typing import Any

import pytest

from iceberg_export.errors import SettingsError
from iceberg_export.plan.agent_client import AgentClient, Pinned
from iceberg_export.settings import parse, token_in
from tests.iceberg_export.kit.http import Asked, served


def test_the_token_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = parse(data=tmp_path, config=None, assignments=[f"agent.token.file={file}"])
    for token in ("the-first-of-them", "the-second-of-them"):
        file.write_text(f"{token}\n")
        assert settings.agent_token() == token


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff"])
def test_a_file_without_a_token_is_told(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    settings = parse(data=tmp_path, config=None, assignments=[f"agent.token.file={file}"])
    with pytest.raises(SettingsError, match=r"agent\.token\.file"):
        settings.agent_token()


def test_the_registrys_token_is_read_anew_each_time(tmp_path: Path) -> None:
    name, file = "schema.registry.bearer.auth.token", tmp_path / "token"
    settings = parse(data=tmp_path, config=None, assignments=[f"{name}.file={file}"])
    for token in ("the-first-of-them", "the-second-of-them"):
        file.write_text(f"{token}\n")
        assert token_in(settings.values, name) == token


class _Pins:
    """An agent that counts how often it was told of a pin."""

    def __init__(self) -> None:
        self.pinned = 0

    def respond(self, asked: Asked) -> tuple[int, Any]:
        self.pinned += asked.method == "POST"
        return 200, {"position": 1}


def test_a_pin_is_renewed_when_a_file_of_the_token_that_was_gone_is_there_again(
    tmp_path: Path,
) -> None:
    """A secret is swapped while a run lasts: its chunks stay."""
    file, agent = tmp_path / "token", _Pins()
    file.write_text("the-first")
    settings = parse(data=tmp_path, config=None, assignments=[f"agent.token.file={file}"])
    end_s = time.monotonic() + 20
    with served(agent) as here:
        client = AgentClient(
            [here], timeout_ms=5000, sleep=lambda _: None, token=settings.agent_token
        )
        with Pinned(client, "export-x", 30) as pin:
            file.unlink()
            while pin.lost is None and time.monotonic() < end_s:
                time.sleep(0.005)
            file.write_text("the-second")
            before = agent.pinned
            while agent.pinned < before + 2 and time.monotonic() < end_s:
                time.sleep(0.005)
            assert agent.pinned >= before + 2
            file.unlink()
        assert "agent.token.file" in (pin.lost or "")
