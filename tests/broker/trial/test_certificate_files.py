"""A folder of certificates: made once, renewed when asked, and its user's alone."""

from pathlib import Path

import pytest

from broker.trial import certificate_files
from broker.trial.certificate_files import CertificateError, create, days_left

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
HOSTS = ["agent1.example.com"]


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def test_an_authority_is_made_with_the_first_key_store_and_then_kept(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    create(folder, "agent1", HOSTS, now_ms=NOW_MS)
    before = (folder / "ca.pem").read_bytes()
    second = create(folder, "agent2", HOSTS, now_ms=NOW_MS)
    assert (folder / "ca.pem").read_bytes() == before
    assert days_left(second, folder / "ca.pem", NOW_MS) == 365


def test_files_are_their_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    create(folder, "agent1", HOSTS, now_ms=NOW_MS)
    assert mode(folder) == 0o700
    assert {mode(file) for file in folder.iterdir()} == {0o600}
    assert sorted(file.name for file in folder.iterdir()) == ["agent1.pem", "ca-key.pem", "ca.pem"]


def test_a_key_store_is_written_over_only_when_asked(tmp_path: Path) -> None:
    file = create(tmp_path, "agent1", HOSTS, now_ms=NOW_MS)
    before = file.read_bytes()
    with pytest.raises(CertificateError, match="--renew"):
        create(tmp_path, "agent1", HOSTS, now_ms=NOW_MS)
    assert file.read_bytes() == before
    create(tmp_path, "agent1", HOSTS, now_ms=NOW_MS + DAY_MS, renew=True)
    assert days_left(file, tmp_path / "ca.pem", NOW_MS) == 366


def test_the_certificate_to_trust_comes_back_if_it_was_deleted(tmp_path: Path) -> None:
    file = create(tmp_path, "agent1", HOSTS, now_ms=NOW_MS)
    (tmp_path / "ca.pem").unlink()
    certificate_files.authority_of(tmp_path, NOW_MS)
    assert days_left(file, tmp_path / "ca.pem", NOW_MS) == 365


def test_no_days_are_left_of_what_is_missing_broken_or_somebody_elses(tmp_path: Path) -> None:
    file = create(tmp_path / "one", "agent1", HOSTS, now_ms=NOW_MS)
    create(tmp_path / "two", "agent1", HOSTS, now_ms=NOW_MS)
    assert days_left(tmp_path / "nowhere.pem", tmp_path / "one" / "ca.pem", NOW_MS) == 0
    assert days_left(file, tmp_path / "two" / "ca.pem", NOW_MS) == 0
    file.write_text("no certificate")
    assert days_left(file, tmp_path / "one" / "ca.pem", NOW_MS) == 0


@pytest.mark.parametrize("name", ["", "ca", "ca-key", "../agent", "a b", "-x"])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="is not a name"):
        create(tmp_path, name, HOSTS, now_ms=NOW_MS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("host", ["", "a b", "http://agent1", "a/b", "ä"])
def test_a_host_that_is_none_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="neither the name of a host nor an address"):
        create(tmp_path, "agent1", [host], now_ms=NOW_MS)


def test_an_authority_that_was_broken_is_told(tmp_path: Path) -> None:
    (tmp_path / "ca-key.pem").write_text("nothing")
    with pytest.raises(CertificateError, match="is not what was put there"):
        create(tmp_path, "agent1", HOSTS, now_ms=NOW_MS)
