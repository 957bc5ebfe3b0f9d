"""What is told while parts are made, and which of them are made at all."""

import contextlib
import io
import threading
from pathlib import Path

import pytest

from tests.parts import __main__ as entry
from tests.parts import cache, install, tools
from tests.screen import CLEAR, Screen


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def touched(name: str) -> Path:
    return cache.made_once(name, lambda result, _: result.touch())


def test_who_only_looks_makes_nothing(tmp_path: Path) -> None:
    with cache.only_looking(), pytest.raises(cache.AbsentError, match="wheel"):
        touched("wheel")
    assert not (tmp_path / "frazil" / "wheel").exists()
    made = touched("wheel")
    with cache.only_looking():
        assert touched("wheel") == made


def test_who_only_looks_asks_no_package_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.subprocess, "run", pytest.fail)
    with cache.only_looking(), pytest.raises(cache.AbsentError, match="maven"):
        tools.system_packages(debian=["maven"], brew=["maven"])


def test_only_parts_that_are_not_there_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"old": lambda: touched("old"), "new": lambda: touched("new")}
    touched("old")
    monkeypatch.setattr(install, "PARTS", parts)
    assert install.missing(["old", "new"]) == ["new"]
    monkeypatch.setattr(entry, "PARTS", parts)
    monkeypatch.setattr(entry, "DOWNLOADS_MB", {"new": 7})
    out = io.StringIO()
    entry.main([], out)
    assert out.getvalue().splitlines() == [
        "1 of 2 parts are to be made, once for this user, from about 7 MB of downloads: new",
        "making new (once for this user) …",
        "new: ready (1 of 1)",
    ]
    again = io.StringIO()
    entry.main([], again)
    assert again.getvalue() == "all 2 parts are there\n"


def test_the_last_line_says_what_is_made_and_how_much_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry, "LOOK_EVERY_S", 0.001)
    seen = threading.Event()

    class Watched(Screen):
        def show(self, line: str) -> None:
            super().show(line)
            if line.startswith("making etcd and java"):
                seen.set()

    out = io.StringIO()
    screen = Watched(out, rewrites=True, clock=lambda: 0.0)
    used = iter([1_000_000_000, *[1_234_000_000] * 100_000])
    with contextlib.redirect_stdout(screen):
        entry.make({"etcd": seen.wait, "java": seen.wait}, screen, lambda: next(used))
    assert f"{CLEAR}making etcd and java: 234 MB on disk{CLEAR}" in out.getvalue()
    assert out.getvalue().endswith("ready (2 of 2)\n")


def test_a_part_that_cannot_be_made_is_told() -> None:
    def fails() -> None:
        raise SystemExit("mvn failed")

    screen = Screen(io.StringIO(), rewrites=True, clock=lambda: 0.0)
    with pytest.raises(SystemExit, match="mvn failed"):
        entry.make({"kafka": fails}, screen, lambda: 0)


def test_every_part_says_how_much_it_downloads() -> None:
    assert set(install.DOWNLOADS_MB) == {**install.PARTS, **install.RIVALS}.keys()


def test_what_is_printed_takes_the_place_of_the_last_line() -> None:
    out = io.StringIO()
    screen = Screen(out, rewrites=True, clock=lambda: 0.0)
    screen.show("making etcd")
    print("etcd: ready", file=screen)
    screen.clear()
    assert out.getvalue() == f"{CLEAR}making etcd{CLEAR}etcd: ready\n"


def test_where_lines_cannot_be_rewritten_one_is_told_now_and_then() -> None:
    now_s = [0.0]
    out = io.StringIO()
    screen = Screen(out, rewrites=False, clock=lambda: now_s[0])
    for second in range(61):
        now_s[0] = float(second)
        screen.show(f"{second} MB")
    assert out.getvalue() == "30 MB\n60 MB\n"
