"""Who may import whom, and which modules may wait, read clocks or draw lots, by the tables of `tests.rooms` and `tests.shells`.

Every module that is no shell is pure: it imports neither an impure module nor a shell, so purity holds
through whatever it imports. Imports for the eyes of a type checker count like all others.
(docs/design/README.md says why.)
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.rooms import FOR_ALL, IMPURE, MAY_IMPORT, ROOMS, WINGS
from tests.shells import SHELLS

ROOT = Path(__file__).parent.parent

MODULES_MAX = 22
"""In one folder; `broker/handlers/` has one for each API."""


def _name(file: Path) -> str:
    """`storage.chunk` of storage/chunk.py, `broker.handlers` of its __init__."""
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    _name(file): file for package in MAY_IMPORT for file in sorted(ROOT.glob(f"{package}/**/*.py"))
}


def _imports(file: Path) -> set[str]:
    """Full names of what a file imports; `from a import b` gives a.b when that is a module."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in FILES else node.module)
    return found


IMPORTS = {module: _imports(file) for module, file in FILES.items()}


def _is_shell(module: str) -> bool:
    package, _, rest = module.partition(".")
    return bool(rest) and any(
        rest == shell or rest.startswith(f"{shell}.") for shell in SHELLS[package]
    )


def _room(module: str) -> str:
    """Within its package: the folder, or that whose wing it is, or the module itself when it lies beside
    the folders."""
    file = FILES[module]
    package = file.relative_to(ROOT).parts[0]
    folder = ".".join(file.parent.relative_to(ROOT / package).parts)
    folder = WINGS.get(package, {}).get(folder, folder)
    return folder or module.removeprefix(package).lstrip(".") or "__init__"


@pytest.mark.parametrize("module", sorted(FILES))
def test_packages_import_only_what_lies_below_them(module: str) -> None:
    package = module.partition(".")[0]
    allowed = MAY_IMPORT[package] | {package}
    ours = {name.partition(".")[0] for name in IMPORTS[module]} & {*MAY_IMPORT, "tests", "deploy"}
    assert ours <= allowed, f"{module} imports {sorted(ours - allowed)}"


@pytest.mark.parametrize(
    "module", sorted(name for name in FILES if name.partition(".")[0] in ROOMS and "." in name)
)
def test_rooms_import_only_what_the_table_allows(module: str) -> None:
    package, room = module.partition(".")[0], _room(module)
    everybody = FOR_ALL[package]
    rows = ROOMS[package]
    assert room in rows or room in everybody, f"the room {room} is in no table"
    allowed = {room} | everybody | rows.get(room, set())
    inside = [name for name in IMPORTS[module] & set(FILES) if name.startswith(f"{package}.")]
    refused = {name for name in inside if _room(name) not in allowed}
    assert not refused, f"{module} imports {sorted(refused)}"


def test_rooms_are_in_rising_order() -> None:
    """So there is no circle: a room may import only what stands above it in the table."""
    for package, rows in ROOMS.items():
        lower = set(FOR_ALL[package])
        for room, allowed in rows.items():
            assert allowed <= lower, f"{package}.{room} may import {sorted(allowed - lower)}"
            lower.add(room)


def test_modules_import_each_other_in_no_circle() -> None:
    below = {module: imported & set(FILES) - {module} for module, imported in IMPORTS.items()}
    TopologicalSorter(below).prepare()


def test_no_row_of_the_table_of_rooms_is_superfluous() -> None:
    for package, rows in ROOMS.items():
        for room, allowed in rows.items():
            modules = [name for name in FILES if name.startswith(f"{package}.")]
            here = [name for name in modules if _room(name) == room]
            assert here, f"{package}.{room} does not exist"
            used = {_room(name) for module in here for name in IMPORTS[module] & set(modules)}
            assert allowed <= used, f"{package}.{room} imports nothing of {sorted(allowed - used)}"


def test_every_wing_in_the_table_exists_and_is_no_room() -> None:
    for package, wings in WINGS.items():
        for wing, room in wings.items():
            assert (ROOT / package / wing.replace(".", "/")).is_dir()
            assert wing not in ROOMS[package]
            assert room in ROOMS[package]


FOLDERS = sorted({file.parent for file in FILES.values()})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_no_folder_holds_more_than_about_twenty_modules(folder: Path) -> None:
    count = len([file for file in folder.glob("*.py") if file.stem != "__init__"])
    assert count <= MODULES_MAX or folder.name == "handlers"


@pytest.mark.parametrize(
    "folder",
    [folder for folder in FOLDERS if folder.parent != ROOT],
    ids=lambda folder: str(folder.relative_to(ROOT)),
)
def test_every_room_says_who_calls_it(folder: Path) -> None:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    assert "Called by" in docstring.replace("\n", " ")


@pytest.mark.parametrize("module", sorted(name for name in FILES if not _is_shell(name)))
def test_modules_that_are_not_shells_are_pure(module: str) -> None:
    imported = IMPORTS[module]
    # Descriptors and messages of Protobuf are values; all else of google.* talks to somebody.
    impure = {
        name
        for name in imported
        if name.partition(".")[0] in IMPURE and not name.startswith("google.protobuf")
    }
    shells = {name for name in imported & set(FILES) if _is_shell(name)}
    assert not impure, f"{module} is not listed as a shell and imports {sorted(impure)}"
    assert not shells, f"{module} is not listed as a shell and imports the shells {sorted(shells)}"


def test_every_shell_in_the_table_exists() -> None:
    missing = [
        f"{package}.{shell}"
        for package, shells in SHELLS.items()
        for shell in sorted(shells)
        if f"{package}.{shell}" not in FILES
    ]
    assert not missing


def test_the_three_pure_packages_have_no_shells() -> None:
    assert not SHELLS["protocol"]
    assert not SHELLS["txn"]
