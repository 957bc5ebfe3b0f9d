"""Pages, and the code that refers to them, name files and sections that are there."""

import re
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("broker", "coordinator", "iceberg_export", "protocol", "storage", "txn", "tests")
DESIGN = ROOT / "docs" / "design"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")])
NAMING_CODE = [page for page in PAGES if page.name not in {"CHANGELOG.md", "settings.md"}]
"""A changelog names what was there then, and names of settings look like those of modules."""
SUFFIXES = (".py", ".txt", ".yaml", ".yml", ".toml", ".sh")
SOURCES = [
    file
    for folder in ("", *PACKAGES, "deploy")
    for file in sorted(ROOT.glob(f"{folder}/**/*" if folder else "*"))
    if (file.suffix in SUFFIXES or file.name == "Makefile") and file != Path(__file__)
]

ARCHITECTURE_LINES_MAX = 250
"""One read of a quarter of an hour; what is longer belongs into docs/design."""

_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
_SECTIONS = r"§\d+(?:\.\d+)?(?:(?:,| and| to) §\d+(?:\.\d+)?)*"
_REFERENCE = re.compile(
    rf"(?:\[[^\]]*\]\((?P<link>[^)#\s]+\.md)\)|(?P<name>[\w/-]+\.md))? ?(?P<sections>{_SECTIONS})"
)
_PACKAGE = "|".join(PACKAGES)
_PATH = re.compile(rf"`((?:{_PACKAGE})/[\w/*]*?(?:\.py|/))`")
_BARE_FILE = re.compile(r"`([\w*]+\.py)`")
_DOTTED = re.compile(rf"`((?:{_PACKAGE})\.[\w.]+)`")


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


@cache
def text_of(file: Path) -> str:
    """Returns the text on one line, so that no reference is torn by the end of a line."""
    return re.sub(r"\s*\n\s*(?:#\s*)?", " ", file.read_text())


@cache
def sections(page: Path) -> frozenset[str]:
    headings = re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", page.read_text(), re.MULTILINE)
    return frozenset(f"§{number}" for number in headings)


def dead_sections(page: Path, text: str) -> list[str]:
    """Returns the references to sections in the text of a page that lead nowhere."""
    dead = []
    for match in _REFERENCE.finditer(text):
        link, name = match["link"], match["name"]
        target = page.parent / link if link else DESIGN / Path(name).name if name else page
        there = sections(target) if target.is_file() else frozenset()
        dead += [
            f"{named(target)} {one}"
            for one in re.findall(r"§[\d.]*\d", match["sections"])
            if one not in there
        ]
    return dead


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_of_pages_lead_to_files_that_are_there(page: Path) -> None:
    assert not [to for to in _LINK.findall(page.read_text()) if not (page.parent / to).exists()]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_sections_that_pages_name_are_there(page: Path) -> None:
    assert not dead_sections(page, text_of(page))


@pytest.mark.parametrize("page", NAMING_CODE, ids=named)
def test_code_that_pages_name_is_there(page: Path) -> None:
    text = text_of(page)
    names = [file.name for file in SOURCES]
    dead = [path for path in _PATH.findall(text) if not any(ROOT.glob(path.rstrip("/")))]
    dead += [
        bare for bare in _BARE_FILE.findall(text) if not any(fnmatch(name, bare) for name in names)
    ]
    dead += [dotted for dotted in _DOTTED.findall(text) if not is_in_code(dotted)]
    assert not dead


def is_in_code(dotted: str) -> bool:
    """Whether `package.module.name` is a module, or a name in the text of one."""
    path = ROOT
    parts = dotted.split(".")
    for at, part in enumerate(parts):
        path /= part
        if path.with_suffix(".py").is_file():
            text = path.with_suffix(".py").read_text()
            return all(re.search(rf"\b{name}\b", text) for name in parts[at + 1 :])
    return path.is_dir()


def test_code_refers_to_sections_by_their_page_and_all_of_them_are_there() -> None:
    """So there is no "design §5", and no section that a page has lost."""
    dead = []
    for source in SOURCES:
        text = text_of(source)
        dead += [
            f"{named(source)}: {match[0]}"
            for match in _REFERENCE.finditer(text)
            if not (match["name"] or "").startswith("docs/design/")
        ]
        dead += [f"{named(source)}: {section}" for section in dead_sections(source, text)]
        dead += [
            f"{named(source)}: {page}"
            for page in re.findall(r"\b(?:docs|facts)/[\w/-]+\.md", text)
            if not (ROOT / page).is_file()
        ]
    assert not dead


def test_architecture_is_one_read() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    assert len(lines) <= ARCHITECTURE_LINES_MAX


README_LINES_MAX = 120
"""A page and a half; what is longer belongs onto a page of docs/."""
PICTURE_BYTES_MAX = 150_000


def test_readme_is_a_page_and_a_half_with_the_two_commands_and_both_images() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= README_LINES_MAX
    assert "\nmake run " in text
    assert "\nmake test " in text
    images = [ROOT / path for path in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)]
    assert [image.name for image in images] == ["architecture.svg", "console.png"]
    assert all(image.stat().st_size <= PICTURE_BYTES_MAX for image in images)


def test_readme_says_why_each_package_is_there() -> None:
    """Of those that an agent or the exporter asks for; some stand together in a row."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["export"]]
    names = {re.split(r"[\[>=<;]", text)[0] for text in asked} - {"typing-extensions"}
    rows = re.findall(
        r"^\| ([\w., -]+?)(?: \(in [^)]*\))? \| ", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    told = {name for row in rows for name in row.split(", ")}
    assert names - told == set()
