"""constraints.txt pins all that Frazil and its tests need, with hashes, and pyproject.toml agrees."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
AGAIN = "run `make constraints`"


def pinned() -> dict[str, tuple[str, list[str]]]:
    """Version and hashes by name."""
    pins: dict[str, tuple[str, list[str]]] = {}
    text = (ROOT / "constraints.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = re.fullmatch(r"([a-z0-9-]+)==([^ ]+)(?: ; [^\\]*?)?((?: +--hash=[^ ]+)+)", line)
        assert found, line[:100]
        name, version, hashes = found.groups()
        assert name not in pins
        pins[name] = (version, hashes.split())
    return pins


PINNED = pinned()


def asked_for() -> list[Requirement]:
    """All that pyproject.toml names."""
    project = PROJECT["project"]
    groups = PROJECT["dependency-groups"].values()
    texts = [
        *project["dependencies"],
        *project["optional-dependencies"]["export"],
        *PROJECT["build-system"]["requires"],
        *(each for group in groups for each in group if isinstance(each, str)),
    ]
    return [Requirement(text) for text in texts]


def test_every_pin_has_hashes() -> None:
    for name, (_, hashes) in PINNED.items():
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), name


def test_what_is_asked_for_is_pinned_to_a_version_that_is_allowed() -> None:
    for requirement in asked_for():
        name = canonicalize_name(requirement.name)
        assert name in PINNED, f"{name}: {AGAIN}"
        allowed = requirement.specifier.contains(PINNED[name][0], prereleases=True)
        assert allowed, f"{requirement}: {AGAIN}"


def test_what_is_needed_by_what_is_asked_for_is_pinned() -> None:
    """As far as it is installed here: on other platforms others may be."""
    waiting = [canonicalize_name(each.name) for each in asked_for()]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            needed = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:
            continue  # For another platform, or to build with.
        assert name in PINNED, f"{name}: {AGAIN}"
        waiting += [
            canonicalize_name(each.name)
            for each in map(Requirement, needed)
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    assert len(seen) > 80


def test_nothing_is_fetched_from_elsewhere() -> None:
    assert "://" not in (ROOT / "constraints.txt").read_text()
