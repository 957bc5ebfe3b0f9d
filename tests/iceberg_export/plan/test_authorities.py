"""Whom the exporter trusts, by a file that changes."""

from pathlib import Path

import pytest

from iceberg_export.errors import SettingsError
from iceberg_export.plan.authorities import Authorities
from tests.kit.certificates import Authority


def test_without_a_file_the_system_is_trusted() -> None:
    assert Authorities("").context() is None


def test_the_file_is_read_again_and_a_context_made_when_it_is_another(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(Authority("one").pem)
    authorities = Authorities(str(file))
    first = authorities.context()
    assert first is not None
    assert authorities.context() is first
    file.write_text(Authority("two").pem)
    second = authorities.context()
    assert second is not None
    assert second is not first
    (trusted,) = second.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "two"),),)


@pytest.mark.parametrize("text", [None, "", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_file_without_certificates_is_refused_and_nobody_else_trusted_instead(
    text: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=r"agent\.ca: "):
        Authorities(str(file)).context()
