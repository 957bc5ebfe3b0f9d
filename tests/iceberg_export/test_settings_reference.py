"""The page of the exporter's settings."""

import pytest

from iceberg_export import settings_reference
from iceberg_export.settings import TABLE


def test_the_page_in_the_tree_is_current() -> None:
    written = settings_reference.PAGE.read_text(encoding="utf-8")
    command = "run python -m iceberg_export.settings_reference"
    assert written == settings_reference.page(), command


@pytest.mark.parametrize("name", TABLE)
def test_every_setting_says_what_it_is(name: str) -> None:
    assert TABLE[name].text.endswith(".")
    assert f"| `{name}` |" in settings_reference.page()
