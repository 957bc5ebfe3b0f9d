"""`make test` says what it does: each of its steps when it begins, and all of them before."""

import re
import subprocess
from pathlib import Path

from tests import steps

ROOT = Path(__file__).parent.parent


def test_make_test_says_what_it_is_going_to_do_and_then_each_step_in_order(tmp_path: Path) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", f"VENV={tmp_path / 'venv'}", "test"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.findall(r"-m tests\.steps (\w+)", shown.stdout) == ["plan", *steps.STEPS]


def test_a_first_run_is_told_what_it_downloads_and_that_it_does_so_once() -> None:
    told = steps.plan(["exporter"], ["etcd", "trino"])
    assert "1 packages: up to 630 MB to download, " in told
    assert re.search(r"4 .*: etcd, trino: about \d+ MB to download and .* this once", told)


def test_a_later_run_has_fewer_minutes_and_nothing_to_download() -> None:
    told = steps.plan([], [])
    assert "download" not in told
    assert f"about {steps.MINUTES} minutes" in told
    assert f"about {steps.MINUTES} minutes" not in steps.plan(["tests"], [])


def test_a_step_that_begins_says_which_of_how_many_it_is() -> None:
    assert steps.begins("style") == f"[2 of {len(steps.STEPS)}] format and lint"
