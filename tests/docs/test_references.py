"""The pages of commands and metrics say what parsers and tables say, whole."""

import re

import pytest

from broker.admin import metrics
from iceberg_export.runs import metrics as export_metrics
from tests.docs import references


@pytest.mark.parametrize("name", ["commands", "metrics"])
def test_the_page_in_the_tree_is_current(name: str) -> None:
    page, written = {
        "commands": (references.COMMANDS, references.commands),
        "metrics": (references.METRICS, references.metrics),
    }[name]
    assert page.read_text() == written(), "run python -m tests.docs.references"


def test_every_metric_is_on_its_page() -> None:
    there = set(re.findall(r"^\| `(\w+)`", references.metrics(), re.MULTILINE))
    series = {re.sub(r"_(bucket|count|sum)$", "", name) for name in metrics.NAMES}
    assert there == {*series, *export_metrics.NAMES}


def test_every_command_has_a_heading_and_its_flags() -> None:
    page = references.commands()
    for words in ("frazil dev", "frazil topic create", "frazil export run", "frazil export apply"):
        assert f"\n## {words}\n" in page
    create = page.split("\n## frazil topic create\n")[1].split("\n## ")[0]
    assert "`--partitions`" in create
    assert "`--bootstrap`" not in create
    assert "Also flags of a cluster." in create
