"""The report of all benchmarks keeps what a run did not measure."""

from tests.bench.report import with_section


def test_a_run_replaces_its_own_section_and_no_other():
    text = with_section("", "Exports", "| a |\n|---|")
    text = with_section(text, "Brokers", "first")
    text = with_section(text, "Brokers", "second")
    assert "first" not in text
    assert text.endswith("## Brokers\n\nsecond\n\n## Exports\n\n| a |\n|---|\n")


def test_sections_stay_as_they_are_when_another_is_written_again():
    text = with_section(with_section("", "Exports", "a"), "Brokers", "b")
    assert with_section(text, "Brokers", "b") == text
