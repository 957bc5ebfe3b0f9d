"""Whom the exporter trusts and what it shows, by files that change."""

from pathlib import Path

import pytest

from iceberg_export.errors import SettingsError
from iceberg_export.settings import DEFAULTS
from iceberg_export.tls_files import AGENT, REGISTRY, TlsFiles, TlsNames
from tests.kit.certificates import Authority

BOTH = pytest.mark.parametrize("names", [AGENT, REGISTRY], ids=["agent", "registry"])


def files(names: TlsNames, *paths: Path | str) -> TlsFiles:
    """Of the authorities, the certificate, and the key, as far as they are given."""
    given = {name: str(path) for name, path in zip(names, paths, strict=False)}
    return TlsFiles(DEFAULTS | given, names)


@BOTH
def test_without_a_file_the_system_is_trusted(names: TlsNames) -> None:
    assert files(names).context() is None


@BOTH
def test_the_file_is_read_again_and_a_context_made_when_it_is_another(
    names: TlsNames, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(Authority("one").pem)
    authorities = files(names, file)
    first = authorities.context()
    assert first is not None
    assert authorities.context() is first
    file.write_text(Authority("two").pem)
    second = authorities.context()
    assert second is not None
    assert second is not first
    (trusted,) = second.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "two"),),)


@BOTH
@pytest.mark.parametrize("text", [None, "", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_file_without_certificates_is_refused_and_nobody_else_trusted_instead(
    names: TlsNames, text: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=f"{names.ca}: "):
        files(names, file).context()


def test_a_certificate_and_its_key_may_be_in_two_files_or_in_one(tmp_path: Path) -> None:
    own = Authority().sign("exporter")
    (tmp_path / "own.pem").write_text(own.certificate_pem)
    (tmp_path / "key.pem").write_text(own.key_pem())
    (tmp_path / "both.pem").write_text(own.pem)
    assert files(AGENT, "", tmp_path / "own.pem", tmp_path / "key.pem").context() is not None
    both = files(AGENT, "", tmp_path / "both.pem")
    first = both.context()
    (tmp_path / "both.pem").write_text(Authority().sign("exporter").pem)
    assert both.context() is not first


@pytest.mark.parametrize("kind", ["no key", "another's key", "an encrypted key", "no file"])
def test_a_certificate_that_cannot_be_shown_is_a_mistake(kind: str, tmp_path: Path) -> None:
    own = Authority().sign("exporter")
    texts = {
        "no key": own.certificate_pem,
        "another's key": Authority().sign().key_pem() + own.certificate_pem,
        "an encrypted key": own.key_pem("secret") + own.certificate_pem,
    }
    file = tmp_path / "own.pem"
    if kind in texts:
        file.write_text(texts[kind])
    with pytest.raises(SettingsError, match=r"agent\.cert: .* cannot be used: "):
        files(AGENT, "", file).context()


def test_a_key_without_a_certificate_is_a_mistake() -> None:
    with pytest.raises(SettingsError, match=r"agent\.key is set, but agent\.cert is not"):
        files(AGENT, "", "", "key.pem")
