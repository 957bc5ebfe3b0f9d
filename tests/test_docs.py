"""Pages refer to files and sections that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)\s]*)?\)(?:\s+§(\d+))?")
_FILE = re.compile(
    r"`((?:broker|coordinator|iceberg_export|protocol|storage|txn|tests)/[\w/]+\.py)`"
)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_pages_and_sections_that_are_there(page: Path) -> None:
    dead = []
    for target, section in _LINK.findall(page.read_text()):
        file = page.parent / target
        if not file.exists():
            dead.append(target)
        elif section and not re.search(rf"^## {section}\. ", file.read_text(), re.MULTILINE):
            dead.append(f"{target} §{section}")
    assert not dead


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_of_the_code_that_pages_name_are_there(page: Path) -> None:
    assert not [name for name in _FILE.findall(page.read_text()) if not (ROOT / name).is_file()]
