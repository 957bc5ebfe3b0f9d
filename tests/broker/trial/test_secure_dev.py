"""What `frazil dev --secure` keeps in its folder, and which settings follow."""

from pathlib import Path

import pytest

from broker.config.settings import listeners_of, load
from broker.sasl.rules import rules_by_listener
from broker.trial.certificate_files import CertificateError
from broker.trial.secure_dev import SecureFolder

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def test_passwords_and_certificates_are_kept(tmp_path: Path) -> None:
    first = SecureFolder(tmp_path, now_ms=NOW_MS)
    files = {file.name: file.read_bytes() for file in first.path.iterdir()}
    again = SecureFolder(tmp_path, now_ms=NOW_MS + 300 * DAY_MS)
    assert {file.name: file.read_bytes() for file in again.path.iterdir()} == files
    assert again.passwords == first.passwords
    assert len(set(first.passwords.values())) == 2


def test_a_certificate_with_less_than_a_month_left_is_made_anew(tmp_path: Path) -> None:
    key_store = SecureFolder(tmp_path, now_ms=NOW_MS).path / "agent.pem"
    before = key_store.read_bytes()
    SecureFolder(tmp_path, now_ms=NOW_MS + 340 * DAY_MS)
    assert key_store.read_bytes() != before


def test_all_files_are_their_users_alone(tmp_path: Path) -> None:
    folder = SecureFolder(tmp_path, now_ms=NOW_MS)
    folder.write_clients("localhost:9092")
    folder.remember_users()
    assert {file.stat().st_mode & 0o777 for file in folder.path.iterdir()} == {0o600}
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_an_agent_starts_with_the_settings(tmp_path: Path) -> None:
    folder = SecureFolder(tmp_path, now_ms=NOW_MS)
    places = {"store": "memory://", "log": "memory://", "listeners": "SASL_SSL://localhost:9092"}
    loaded = load(defaults=places | folder.settings, toml=None, environ={}, flags=())
    assert loaded.warnings == ()
    (listener,) = listeners_of(loaded.settings)
    assert listener.tls is not None
    rules = rules_by_listener([listener])[listener.name]
    assert rules.mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert loaded.settings.kafka.super_user_principals() == {"User:admin"}


def test_users_are_made_once_and_again_where_a_password_is_drawn_anew(tmp_path: Path) -> None:
    folder = SecureFolder(tmp_path, now_ms=NOW_MS)
    assert not folder.users_made
    folder.remember_users()
    assert SecureFolder(tmp_path, now_ms=NOW_MS).users_made
    (folder.path / "app.password").unlink()
    again = SecureFolder(tmp_path, now_ms=NOW_MS)
    assert not again.users_made
    assert again.passwords["admin"] == folder.passwords["admin"]


def test_a_password_that_somebody_wrote_is_not_guessed_at(tmp_path: Path) -> None:
    file = SecureFolder(tmp_path, now_ms=NOW_MS).path / "app.password"
    file.write_text('with "quotes" in it')
    with pytest.raises(CertificateError, match="is not as it was drawn") as told:
        SecureFolder(tmp_path, now_ms=NOW_MS)
    assert "quotes" not in str(told.value)


def test_a_folder_is_shown_without_passwords(tmp_path: Path) -> None:
    folder = SecureFolder(tmp_path, now_ms=NOW_MS)
    assert not [word for word in folder.passwords.values() if word in repr(folder)]
