"""docs/tutorial.md, typed line by line in an empty folder; what is printed is what the page says.

Only where the cluster is differs, since ports are free ones: commands find it in a context, programs and the exporter
by an address in the text. Packages that a step installs are there already, DuckDB's extension too.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks
from tests.parts import install
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "tutorial.md"
START = "make run\n"


def expected(text: str) -> re.Pattern[str]:
    """A line of `…` alone is any lines; elsewhere it is anything within a line."""
    wanted = ""
    for line in text.splitlines():
        one = "(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + " *\n"
        wanted += one
    return re.compile(wanted)


class Newcomer:
    """An empty folder beside an agent, with the environment that `make run` makes."""

    def __init__(self, folder: Path, agent: FrazilDev) -> None:
        self._folder, self._agent = folder, agent
        (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
        self._env = {**agent.child.env, "HOME": str(folder / "home")}
        file = folder / "here.properties"
        file.write_text(f"bootstrap.servers=localhost:{agent.port}\n")
        self.types(".venv/bin/frazil context create here --use --command-config here.properties")

    def types(self, text: str) -> str:
        """What a block prints, with the addresses of the page."""
        at = f"http://127.0.0.1:{self._agent.http_port}"
        here = text.replace("localhost:9092", f"localhost:{self._agent.port}")
        here = re.sub(r"(frazil export \w+)", rf"\1 --agent {at}", here)
        here = re.sub(r"^\.venv/bin/pip install .*\n", "", here, flags=re.MULTILINE)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", here],
            cwd=self._folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return self.as_page(done.stdout)

    def as_page(self, printed: str) -> str:
        """With the ports that the page has, and no empty lines at the end."""
        printed = f"{printed.rstrip()}\n" if printed.strip() else ""
        for port, usual in ((self._agent.port, "9092"), (self._agent.http_port, "9094")):
            printed = printed.replace(f":{port}", f":{usual}")
        return printed


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    install.java()
    with FrazilDev(tmp_path / "agent") as agent:
        typing = Newcomer(tmp_path, agent)
        typing.types(EXTENSIONS)
        yield typing


EXTENSIONS = """
.venv/bin/python - <<'END_OF_FILE'
import duckdb, duckdb_extension_avro, duckdb_extension_iceberg
from pathlib import Path
for package in (duckdb_extension_avro, duckdb_extension_iceberg):
    (extension,) = Path(package.__file__).parent.glob("extensions/*/*.duckdb_extension")
    duckdb.sql(f"INSTALL '{extension}'")
END_OF_FILE
"""
"""What `INSTALL iceberg` would download."""


def steps() -> list[tuple[Block, str]]:
    """Each block to be typed, with what it is to print."""
    found = blocks(PAGE)
    assert {block.language for block in found} == {"sh", "text"}
    after = [*found[1:], None]
    told = {
        one: two.text if two and two.language == "text" else ""
        for one, two in zip(found, after, strict=True)
    }
    return [(one, told[one]) for one in found if one.language == "sh"]


def test_each_output_follows_what_prints_it() -> None:
    assert blocks(PAGE)[0].language == "sh"
    assert ("text", "text") not in {
        (one.language, two.language) for one, two in pairwise(blocks(PAGE))
    }


def test_what_is_typed_prints_what_the_page_says(newcomer: Newcomer, tmp_path: Path) -> None:
    typed = 0
    for block, wanted in steps():
        if block.text == START:
            printed = newcomer.as_page((tmp_path / "agent" / "frazil.log").read_text())
        else:
            printed = newcomer.types(block.text)
        assert expected(wanted).fullmatch(printed), f"{block} prints\n{printed}"
        typed += 1
    assert typed == len(steps()) > 8


@pytest.mark.parametrize("printed", ["a 1 c\n", "a 12 c\nx\ny\nz\n"])
def test_what_differs_each_time_is_left_open(printed: str) -> None:
    assert expected("a … c\n…\n").fullmatch(printed)


@pytest.mark.parametrize("printed", ["a 1 d\n", "x\na 1 c\n", "a 1 c\nmore\n"])
def test_what_the_page_does_not_say_is_noticed(printed: str) -> None:
    assert not expected("a … c\n").fullmatch(printed)
