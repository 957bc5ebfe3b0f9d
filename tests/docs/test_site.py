"""The site is built without a link that leads nowhere, and loads nothing from elsewhere."""

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.building import ROOT, build
from tests.docs.site import for_site

pytestmark = pytest.mark.integration

ELSEWHERE = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*(?:src|href)=\"?(?:https?:)?//")
STYLES = re.compile(r"url\(\s*[\"']?(?:https?:)?//|@import\s+[\"']?(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_docs_is_on_the_site(site: Path) -> None:
    wanted = {
        str(page.relative_to(ROOT / "docs").with_suffix("")).replace("README", "index")
        for page in (ROOT / "docs").rglob("*.md")
    }
    there = {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")}
    assert wanted <= there


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert not [page for page, text in pages.items() if ELSEWHERE.search(text)]
    styles = {file: file.read_text(encoding="utf-8") for file in site.rglob("*.css")}
    assert not [file for file, text in styles.items() if STYLES.search(text)]
    assert len(pages) > 40
    assert styles


def test_a_diagram_that_the_theme_would_load_a_program_for_is_on_no_page(site: Path) -> None:
    assert not [page for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text()]


def test_links_that_lead_nowhere_are_a_failure(tmp_path: Path) -> None:
    lost = ("nowhere.md", "tables.md#nowhere", "../nowhere.py")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for file in ("mkdocs.yml", "deploy", "tests/docs", *(page.name for page in ROOT.glob("*.md"))):
        to = tmp_path / file
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / file).is_dir() else shutil.copy)(ROOT / file, to)
    with (tmp_path / "docs" / "clients.md").open("a") as page:
        page.writelines(f"\n[lost]({link})\n" for link in lost)
    done = build(tmp_path / "site", root=tmp_path)
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if "'clients.md'" in line]
    assert all(any(link.removeprefix("../") in line for line in told) for link in lost), told


def test_a_link_leads_to_a_page_of_the_site_and_to_a_file_that_is_brought_along() -> None:
    text = "[a](../GLOSSARY.md#agent) [b](../deploy/compose.yaml) [c](tables.md) [d](../README.md) [e](https://x.org)"
    assert for_site(text, "docs/clients.md") == (
        "[a](GLOSSARY.md#agent) [b](source/deploy/compose.yaml) [c](tables.md) [d](index.md) [e](https://x.org)"
    )
    assert for_site("[a](docs/design/admin.md)", "GLOSSARY.md") == "[a](design/admin.md)"
    assert for_site("[a](../../deploy/)", "docs/design/admin.md") == "[a](../deploy.md)"


def test_what_looks_like_a_link_in_a_block_of_code_stays() -> None:
    text = "[a](../GLOSSARY.md)\n\n```text\n[a](../GLOSSARY.md)\n```\n"
    assert for_site(text, "docs/clients.md").splitlines()[::3] == [
        "[a](GLOSSARY.md)",
        "[a](../GLOSSARY.md)",
    ]


def test_lists_are_lists_for_whoever_reads_them_otherwise() -> None:
    text = "Two:\n* one\n  * in it\n  goes on\n* two\n"
    assert for_site(text, "docs/clients.md") == "Two:\n\n* one\n    * in it\n  goes on\n* two\n"
    assert for_site("* one\n  goes on\n* two\n", "docs/clients.md") == "* one\n  goes on\n* two\n"
