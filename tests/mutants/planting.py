"""Where a mutant goes in a tree, where its tests are, and how it is planted and taken out again."""

import re
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

from tests.mutants.mutant import Mutant

DEFINED = re.compile(r"^(?:async )?def (\w+)\(", re.MULTILINE)
LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "build", "dist", "frazil-data", "node_modules", "*.egg-info", "*.log"
)


class MisfitError(Exception):
    """The catalogue says what is not so in this tree."""


class Tree:
    """A checkout whose texts are read once; asked for what is not there it raises MisfitError."""

    def __init__(self, root: Path) -> None:
        told = tomllib.loads((root / "pyproject.toml").read_text())
        packages = told["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        self.root = root
        self._product = _texts(root, packages, "*.py")
        self._tests: dict[str, list[Path]] = {}
        """The files that define a test, by its name."""
        for file, text in _texts(root, ["tests"], "test_*.py").items():
            for name in dict.fromkeys(DEFINED.findall(text)):
                self._tests.setdefault(name, []).append(file)

    def file_of(self, mutant: Mutant) -> Path:
        """The product's file that holds what the mutant replaces, relative to the root."""
        found = {
            file: count
            for file, text in self._product.items()
            if (count := text.count(mutant.before))
        }
        if sum(found.values()) != 1:
            places = ", ".join(f"{file} ({count})" for file, count in found.items()) or "nowhere"
            raise MisfitError(
                f"{mutant.name}: the text to replace must be in the product once; it is in: {places}"
            )
        return next(iter(found))

    def test_ids(self, mutant: Mutant) -> list[str]:
        """The mutant's tests as pytest knows them; all that have one of the names."""
        return [test_id for test in mutant.tests for test_id in self._test_ids(mutant, test)]

    def _test_ids(self, mutant: Mutant, test: str) -> list[str]:
        found = self._tests.get(test.partition("[")[0])
        if not found:
            raise MisfitError(f"{mutant.name}: there is no test {test}")
        return [f"{file}::{test}" for file in found]


def _texts(root: Path, folders: list[str], pattern: str) -> dict[Path, str]:
    files = sorted(file for folder in folders for file in root.glob(f"{folder}/**/{pattern}"))
    return {file.relative_to(root): file.read_text() for file in files}


def copy_tree(root: Path, to: Path) -> None:
    """All that tests need, without what tools left there."""
    shutil.copytree(root, to, ignore=LEFT_OUT)


@contextmanager
def planted(mutant: Mutant, file: Path) -> Iterator[None]:
    """The mutant is in `file`, which is of a copy, while this lasts."""
    text = file.read_text()
    assert text.count(mutant.before) == 1
    _write(file, text.replace(mutant.before, mutant.after))
    try:
        yield
    finally:
        _write(file, text)


def _write(file: Path, text: str) -> None:
    """Python takes a compiled file for current if time (in seconds) and size agree: it must go."""
    file.write_text(text)
    Path(cache_from_source(str(file))).unlink(missing_ok=True)
