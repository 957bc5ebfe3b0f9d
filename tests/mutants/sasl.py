"""Mutants of SASL: who is let in, what may be sent before, and what is told of users (P15)."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="requests-are-served-before-authentication",
        promise="P15",
        before="        return self.is_complete or api_key in ADMITTED[self.state]",
        after="        return self.is_complete or api_key in ADMITTED[self.state] or api_key == 3",
        tests=("test_nothing_else_is_served_before_and_the_connection_is_closed[Metadata]",),
        why="A stranger learns the names of all topics.",
    ),
    Mutant(
        name="who-does-not-exist-is-told-at-once",
        promise="P15",
        before="            is_made_up = known is None\n",
        after="            is_made_up = known is None\n"
        '            if is_made_up:\n                return Refused("no such user")\n',
        tests=(
            "test_a_user_that_does_not_exist_is_refused_as_late_and_in_the_same_words_as_a_password",
        ),
        why="Names of users can be found out one by one.",
    ),
    Mutant(
        name="a-nonce-is-taken-for-another",
        promise="P15",
        before='        if not hmac.compare_digest(found["nonce"], first.nonce):',
        after="        if False:",
        tests=("test_a_nonce_that_is_not_the_whole_one_is_refused",),
        why="What was overheard once logs in again.",
    ),
    Mutant(
        name="the-user-changes-when-it-authenticates-again",
        promise="P15",
        before="        if self._user not in {None, user}:",
        after="        if False:",
        tests=("test_another_user_is_refused_in_kafkas_words",),
        why="Requests of one user are answered with the rights of another.",
    ),
    Mutant(
        name="who-was-refused-goes-on",
        promise="P15",
        before='        self._ending, self._ending_kind = reason, "authentication"\n',
        after="        del reason\n",
        tests=("test_a_refusal_is_told_a_while_later_and_the_connection_closed_behind_it",),
        why="Passwords are tried one after the other on a connection that is open already.",
    ),
    Mutant(
        name="a-token-is-taken-after-its-end",
        promise="P15",
        before="    if ends_ms + rules.skew_ms <= now_ms:\n",
        after="    if False:\n",
        tests=("test_why_a_token_is_not_taken_is_told_before_the_refusal",),
        why="Whoever has left an organisation keeps his rights, by a token of long ago.",
    ),
    Mutant(
        name="a-session-outlives-its-token",
        promise="P15",
        before="            lifetime_ms = min(lifetime_ms or left_ms, left_ms)\n",
        after="            del left_ms\n",
        tests=("test_a_session_by_a_token_ends_with_the_token",),
        why="A connection that never closes has the rights of its first minute for ever.",
    ),
    Mutant(
        name="a-delegation-token-never-ends",
        promise="P15",
        before="        if token is None or token.has_ended(self._now_ms()):\n",
        after="        if token is None:\n",
        tests=("test_a_token_that_has_ended_is_refused",),
        why="A job's token that leaked opens the cluster until the next sweep, or longer.",
    ),
)
