"""docs/tools.md names each difference that the tests beside Kafka expect, and no other."""

from pathlib import Path

from tests.clients import (
    test_tools_side_by_side_clients,
    test_tools_side_by_side_cluster,
    test_tools_side_by_side_options,
    test_tools_side_by_side_topics,
)

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
STORIES = [
    *test_tools_side_by_side_clients.STORIES.values(),
    *test_tools_side_by_side_cluster.STORIES.values(),
    *test_tools_side_by_side_options.STORIES.values(),
    *test_tools_side_by_side_topics.STORIES.values(),
]
ASKED = [asked for story in STORIES for asked in story]
NORMALISED = {
    "| kafka-log-dirs, kafka-reassign-partitions | log dirs |",
    "| kafka-cluster, kafka-metadata-quorum | cluster ids |",
}
"""What the tests hide, as it differs between any two clusters; the page says it all the same."""


def rows_of_page() -> set[str]:
    """The first two cells of each row."""
    section = PAGE.read_text().split("## 2.")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| kafka-")]
    return {"|".join(line.split("|")[:3]) + "|" for line in lines}


def test_a_command_that_tells_something_else_says_which_row_of_the_page_tells_why() -> None:
    assert [
        asked.words for asked in ASKED if bool(asked.kafka or asked.frazil) != bool(asked.row)
    ] == []


def test_the_page_has_a_row_for_each_difference_and_none_for_what_is_alike() -> None:
    assert rows_of_page() == {asked.row for asked in ASKED if asked.row} | NORMALISED


def test_the_page_tells_of_each_api_that_kafka_serves_and_frazil_does_not() -> None:
    absent = PAGE.read_text().split("## 1.")[1].split("\n## ")[0]
    for api in test_tools_side_by_side_cluster.ABSENT:
        name, _, key = api.removesuffix(")").partition("(")
        assert f"{name} {key}" in absent
