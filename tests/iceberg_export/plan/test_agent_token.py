"""The exporter says the agents' token, and the registry's, and reads them from files each time."""

from pathlib import Path

import pytest

from iceberg_export.errors import SettingsError
from iceberg_export.settings import parse, token_in


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
