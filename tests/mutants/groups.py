"""Mutants of groups: who coordinates, who may commit, and what order writes keep (P3, P5, P6, P10)."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="group-is-served-before-what-was-in-doubt-is-settled",
        promise="P3",
        before="if me is None or (runtime.incarnation is None and runtime.in_doubt):",
        after="if me is None:",
        tests=(
            "test_what_was_in_doubt_before_a_lapse_is_settled_before_the_group_is_served_again",
        ),
        why="A group is answered for by a row that an entry in doubt changes afterwards.",
    ),
    Mutant(
        name="shard-that-is-given-away-is-served",
        promise="P5",
        before="frozenset(self._held_by(me)) - given_away)",
        after="frozenset(self._held_by(me)))",
        tests=("test_a_shard_that_is_being_given_away_is_served_no_more_though_the_replica_lags",),
        why="Two agents coordinate one group.",
    ),
    Mutant(
        name="groups-are-served-without-proof",
        promise="P5",
        before="return self.incarnation is not None and self._log_client.incarnation() == self.incarnation",
        after="return self.incarnation is not None",
        tests=(
            "test_at_the_very_deadline_nothing_is_answered_any_more_though_nobody_has_noticed_yet",
        ),
        why="An agent whose session has lapsed tells members that all is well.",
    ),
    Mutant(
        name="anybody-may-change-a-group",
        promise="P5",
        before="return None if self._holders[shard_of(group_id)] == writer else _NOT_HELD",
        after="return None",
        tests=("test_a_command_by_a_writer_that_does_not_hold_the_shard_changes_nothing",),
        why="A coordinator that was replaced overwrites what its successor wrote.",
    ),
    Mutant(
        name="held-shard-can-be-claimed",
        promise="P5",
        before="            if self._holders[shard] is None:\n",
        after="            if True:\n",
        tests=("test_the_table_agrees_with_a_model_of_plain_dicts",),
        why="A shard is taken away from a coordinator that lives.",
    ),
    Mutant(
        name="commit-of-an-older-generation-is-taken",
        promise="P5",
        before="        if member.epoch == command.epoch:\n            return None",
        after="        if member.epoch >= command.epoch:\n            return None",
        tests=("test_a_commit_under_another_epoch_than_the_members_changes_nothing",),
        why="A member that was fenced sets the offsets of its partitions back.",
    ),
    Mutant(
        name="change-of-a-group-names-no-epoch",
        promise="P5",
        before="        if epoch != command.epoch_before:",
        after="        if False:",
        tests=("test_the_table_agrees_with_a_model_of_plain_dicts",),
        why="Two rebalances of one group are mixed.",
    ),
    Mutant(
        name="stall-of-the-agent-counts-for-its-members",
        promise="P6",
        before="return now_ms - watch.stalled_ms",
        after="return now_ms",
        tests=("test_a_stall_of_the_agent_expires_nobody",),
        why="An agent that stood still throws all members out of their groups.",
    ),
    Mutant(
        name="offset-expires-by-the-proposers-word",
        promise="P6",
        before="is_old = row is not None and max(row.committed_ms, empty_since_ms) <= old_ms",
        after="is_old = row is not None",
        tests=("test_the_machines_time_decides_and_not_the_clock_of_one_agent",),
        why="One agent with a wild clock lets offsets go that are young.",
    ),
    Mutant(
        name="request-overtakes-the-write-of-its-group",
        promise="P10",
        before="        if context.writing or context.queue:\n            self._enqueue(context, request)",
        after="        if context.queue:\n            self._enqueue(context, request)",
        tests=("test_what_comes_while_a_group_is_written_waits_and_keeps_its_order",),
        why="A member is answered by a state that the log may yet refuse.",
    ),
    Mutant(
        name="queue-of-a-group-is-not-bounded",
        promise="P15",
        before="        if len(context.queue) >= QUEUE_MAX:",
        after="        if False:",
        tests=("test_the_queue_of_a_group_is_bounded",),
        why="Requests for one group fill the agent's memory while the log is away.",
    ),
)
