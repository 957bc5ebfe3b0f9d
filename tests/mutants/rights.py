"""Mutants of rights: what is decided, when a change counts, and when it is answered (P8)."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="decision-outlives-the-acls-it-came-from",
        promise="P8",
        before="            self._forget()\n        key = (requester.principal, requester.host, operation, "
        "resource_type, name)\n",
        after="            pass\n        key = (requester.principal, requester.host, operation, "
        "resource_type, name)\n",
        tests=("test_a_change_counts_from_the_next_question_on",),
        why="Whoever was allowed once goes on, whatever is denied later, until the agent restarts.",
    ),
    Mutant(
        name="change-of-rights-is-answered-before-others-have-it",
        promise="P8",
        before="                and self._confirmed.get(each, POSITION_ZERO) < position\n",
        after="                and False\n",
        tests=("test_an_acl_is_in_force_on_every_agent_when_it_is_answered",),
        why="A right is withdrawn, the tool says so, and another agent still grants it.",
    ),
    Mutant(
        name="parked-fetch-does-not-hear-of-rights",
        promise="P8",
        before="                woken |= self.parked.all_unsettled()\n",
        after="                pass\n",
        tests=("test_a_parked_fetch_hears_at_once_that_the_right_was_withdrawn",),
        why="A consumer that waits is given the next records though it may not read them any more.",
    ),
    Mutant(
        name="whoever-is-allowed-is-not-denied",
        promise="P8",
        before="                    elif binding.operation in (operation, Operation.ALL):\n"
        "                        return False\n",
        after="                    elif binding.operation in (operation, Operation.ALL):\n"
        "                        return allowed\n",
        tests=("test_who_is_denied_is_refused_whatever_is_allowed_besides",),
        why="An ACL that denies has no effect beside one that allows.",
    ),
)
