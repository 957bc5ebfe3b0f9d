"""Mutants of exports: each record once in its table, whatever catalogs answer (P3, P4, P7)."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="commit-demands-no-head",
        promise="P3",
        before="                AssertRefSnapshotId.model_validate(\n"
        '                    {"ref": "main", "snapshot-id": head.snapshot_id if head else None}\n'
        "                ),\n",
        after="",
        tests=("test_every_commit_demands_the_head_that_was_looked_at",),
        why="Two exporters bring the same records into a table.",
    ),
    Mutant(
        name="lost-answer-to-a-commit-is-sent-again",
        promise="P3",
        before="            if pending.is_committed(view):\n                return\n",
        after="",
        tests=("test_a_commit_that_is_not_answered_well_at_first_lands_once",),
        why="After a lost answer the exporter fences itself, or doubles records.",
    ),
    Mutant(
        name="unknown-commit-is-called-refused",
        promise="P4",
        before="            unknown, reason = True, error",
        after="            reason = error",
        tests=("test_a_catalog_that_never_answers_leaves_the_outcome_open",),
        why="Files are deleted as unused that a table names.",
    ),
    Mutant(
        name="fenced-run-deletes-files-that-may-be-in",
        promise="P4",
        before="files_unused=found.seq == expected.seq + 1 and not unknown,",
        after="files_unused=found.seq == expected.seq + 1,",
        tests=("test_files_whose_fate_the_catalog_never_told_are_not_deleted_when_fenced",),
        why="A commit without an answer lands later, and its files are gone.",
    ),
    Mutant(
        name="second-exporter-is-not-fenced",
        promise="P3",
        before="    if found._replace(last_records={}) == expected._replace(last_records={}):",
        after="    if True:",
        tests=("test_a_second_exporter_is_fenced",),
        why="Two exporters at once double every record.",
    ),
    Mutant(
        name="last-records-are-not-compared",
        promise="P7",
        before="        if found.get(span.partition) != last_records[span.partition].digest:",
        after="        if False:",
        tests=(
            "test_an_export_is_refused_when_the_log_has_grown_past_the_table_in_all_that_counts",
        ),
        why="A table goes on over a log that was put back: records are missing, others stay.",
    ),
    Mutant(
        name="hole-in-a-plan-is-stepped-over",
        promise="P7",
        before="        if span.offset_from > at:\n            break",
        after="        if False:\n            break",
        tests=("test_a_hole_between_spans_is_refused",),
        why="Offsets that no span holds are counted as exported.",
    ),
    Mutant(
        name="pieces-of-a-plan-are-joined-over-a-gap",
        promise="P7",
        before="    if more.log_start > part.end:\n        return part",
        after="    if False:\n        return part",
        tests=("test_a_plan_ends_where_records_went_before_its_next_piece_was_asked_for",),
        why="An export that retention overtakes is refused as a whole instead of ending at the gap.",
    ),
    Mutant(
        name="offsets-of-a-batch-that-nobody-can-read-are-outside",
        promise="P7",
        before="    tally = Tally(len(wanted), outside=offsets - inside, unreadable=inside - len(wanted))",
        after="    tally = Tally(len(wanted), outside=offsets - len(wanted))",
        tests=("test_a_batch_that_nobody_can_read_is_one_row_between_the_records_around_it",),
        why="Who counts offsets does not know that a row stands for many.",
    ),
    Mutant(
        name="batch-that-nobody-can-read-has-no-row",
        promise="P7",
        before="    wanted = [one for one in batches if span.offset_from <= one.last_offset < span.offset_to]",
        after="    wanted = list(batches[:0])",
        tests=("test_a_batch_of_garbage_becomes_one_dead_letter_and_the_export_goes_on",),
        why="A batch of garbage stops the export of its topic, or is in no table.",
    ),
)
