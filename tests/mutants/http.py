"""Mutants of the HTTP listeners: who is who there, and who may ask for what (P15)."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="a-remembered-password-outlives-its-credential",
        promise="P15",
        before="            if credential is not None and self._right.get(mark) == credential:",
        after="            if credential is not None and mark in self._right:",
        tests=("test_what_was_right_is_remembered_until_the_credential_is_another",),
        why="Who has lost a password's right goes on with it until the agent is restarted.",
    ),
    Mutant(
        name="a-token-that-was-replaced-is-one-for-ever",
        promise="P15",
        before="                file.digests = digests\n",
        after="                file.digests += digests\n",
        tests=("test_what_a_file_has_no_more_is_no_token_any_more",),
        why="A token that became known cannot be taken back.",
    ),
    Mutant(
        name="whoever-has-some-role-has-all",
        promise="P15",
        before="        if any(principal in self.holders.get(each, ()) for each in _ENOUGH[role]):",
        after="        if any(principal in each for each in self.holders.values()):",
        tests=("test_who_has_a_role_may_and_others_are_told_what_is_missing",),
        why="Whoever may scrape metrics reads the log and runs jobs.",
    ),
    Mutant(
        name="a-schema-is-read-by-its-id-without-a-right",
        promise="P15",
        before="    if not _sees(request, library, row.schema_id):",
        after="    if False:",
        tests=("test_a_schema_by_its_id_is_for_who_sees_a_subject_that_has_it",),
        why="Ids are counted up, and with them everybody's schemas read.",
    ),
    Mutant(
        name="an-acl-of-a-subjects-own-name-means-nothing",
        promise="P15",
        before="    if not acls.names(ResourceType.TOPIC, subject):",
        after="    if True:",
        tests=("test_an_acl_of_the_very_name_of_a_subject_counts_instead",),
        why="A subject that was closed by an ACL is as open as its topic.",
    ),
)
