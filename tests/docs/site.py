"""A hook of mkdocs (mkdocs.yml): pages and files from outside of docs/ become part of the site, and links lead to them.

In the repository links are paths from file to file. On the site a page of `PAGES` stands at its top, and any other file
that a page links to lies below `source/`. What a link leads to must be there: `mkdocs build --strict` fails otherwise.
Lists are written as GitHub reads them, and changed into what Python-Markdown reads the same way.
"""

import itertools
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs/"
PAGES: Final = {
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "BENCHMARKS.md": "BENCHMARKS.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "GLOSSARY.md": "GLOSSARY.md",
    "deploy/README.md": "deploy.md",
}
"""Where a page of the repository is on the site. README is what docs/index.md is there."""
LINK: Final = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
LIST_IN_LIST: Final = re.compile(r"^(?: {2}){1,3}(?=[*-] )", re.MULTILINE)
LIST_BEHIND_TEXT: Final = re.compile(r"(^(?![*\-#| \n]|\d+\. ).*\n)(?=[*-] |1\. )", re.MULTILINE)
FENCE: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def site_uri(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path == "README.md":
        return "index.md"
    if (ROOT / path).is_dir():
        path = f"{path}/README.md"
    return PAGES.get(path) or (path[len(DOCS) :] if path.startswith(DOCS) else f"source/{path}")


def in_repository(uri: str) -> str:
    """Where a page of the site is in the repository."""
    return next((path for path, there in PAGES.items() if there == uri), DOCS + uri)


def linked(text: str, path: str) -> Iterator[str]:
    """The files of the repository that the page at `path` links to."""
    for target in LINK.findall(FENCE.sub("", text)):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def for_site(text: str, path: str) -> str:
    """The page at `path` with links as they are on the site."""
    folder = posixpath.dirname(site_uri(path)) or "."

    def there(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1]))
        return posixpath.relpath(site_uri(target), folder)

    ends = [0, *(at for block in FENCE.finditer(text) for at in block.span()), len(text)]
    parts = [text[begin:end] for begin, end in itertools.pairwise(ends)]
    return "".join(
        part if number % 2 else _lists(LINK.sub(there, part)) for number, part in enumerate(parts)
    )


def _lists(text: str) -> str:
    """A list within one is indented by four, and a blank line stands before one."""
    text = LIST_IN_LIST.sub(lambda match: 2 * match[0], text)
    return LIST_BEHIND_TEXT.sub(r"\1\n", text)


def on_files(files: Files, config: Any) -> Files:
    """Add what is outside of docs/: pages, and files that pages link to."""
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for page in list(files.documentation_pages()):
        for path in linked(page.content_string, in_repository(page.src_uri)):
            uri = site_uri(path)
            if uri.startswith("source/") and uri not in files.src_uris and (ROOT / path).is_file():
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page, as the site has it."""
    return for_site(markdown, in_repository(page.file.src_uri))
