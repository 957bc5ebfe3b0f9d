"""Mutants of the way in: chunks, the commit queue, acknowledgements (P1, P2, P4, P11)."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="chunk-counts-as-durable-before-its-put",
        promise="P1",
        before="self._puts[chunk.chunk_id] = self._tasks.create_task(self._put(chunk))",
        after="self._puts[chunk.chunk_id] = self._tasks.create_task(self._put(chunk))\n"
        "        chunk.durable = True\n        self._propose()",
        tests=("test_no_record_is_acknowledged_before_its_chunk_is_durable",),
        why="Records are acknowledged, and the store never gets them.",
    ),
    Mutant(
        name="queue-gives-out-chunks-that-are-not-durable",
        promise="P1",
        before="while ready < len(self._unproposed) and self._unproposed[ready].durable:",
        after="while ready < len(self._unproposed):",
        tests=("test_chunks_are_proposed_in_the_order_of_closing_once_durable",),
        why="A chunk whose PUT fails is in the log all the same.",
    ),
    Mutant(
        name="answer-leaves-when-the-entry-is-proposed",
        promise="P1",
        before="self._proposals[chunk.chunk_id] = future",
        after="self._proposals[chunk.chunk_id] = future\n"
        "        for batch in chunk.live_batches():\n"
        "            done = refusal(batch, ErrorCode.NONE, log_start=0)\n"
        "            ticket_of(batch).settle(done)",
        tests=("test_no_record_is_acknowledged_before_its_entry_is_applied",),
        why="A record is acknowledged that the log refuses later.",
    ),
    Mutant(
        name="given-up-chunk-is-proposed-all-the-same",
        promise="P1",
        before="            later = self._unproposed[at + 1 :]\n            del self._unproposed[at]",
        after="            later = self._unproposed[at + 1 :]",
        tests=("test_a_chunk_given_up_lets_the_next_one_pass",),
        why="A batch that was said to have failed holds up those behind it, or is appended.",
    ),
    Mutant(
        name="offset-of-a-batch-is-that-of-its-item",
        promise="P2",
        before="result.base_offset + records_before,",
        after="result.base_offset,",
        tests=("test_offsets_come_from_the_outcome_and_errors_have_none",),
        why="Of neighbouring plain batches all are told the offset of the first.",
    ),
    Mutant(
        name="duplicate-is-told-the-offset-of-now",
        promise="P2",
        before="base_offset=verdict.base_offset,",
        after="base_offset=offset,",
        tests=(
            "test_an_idempotent_batch_is_appended_once",
            "test_a_repeated_batch_is_answered_with_its_first_offset",
        ),
        why="A producer that repeats a batch is told an offset of somebody else's record.",
    ),
    Mutant(
        name="refused-batch-is-told-an-offset",
        promise="P2",
        before="        error,\n        log_start_offset=-1 if error in WITHOUT_LOG_START else log_start,",
        after="        error,\n        base_offset=max(log_start, 0),\n"
        "        log_start_offset=-1 if error in WITHOUT_LOG_START else log_start,",
        tests=("test_a_failed_batch_has_no_offset_whatever_the_reason",),
        why="A client takes a record that failed for one that is there.",
    ),
    Mutant(
        name="refused-item-takes-offsets",
        promise="P2",
        before="                results.append(refusal)\n                at += length",
        after="                results.append(refusal)\n                at += length\n"
        "                offset += records",
        tests=("test_a_refused_batch_gets_no_offset_and_refuses_those_that_follow_it",),
        why="Offsets are acknowledged that no record has.",
    ),
    Mutant(
        name="window-knows-its-newest-batch-only",
        promise="P2",
        before="for at in range(3 * count, 2, -3):",
        after="for at in range(3 * count, 3 * count - 1, -3):",
        tests=("test_all_five_batches_are_remembered",),
        why="A repetition of one of five batches in flight is refused instead of recognised.",
    ),
    Mutant(
        name="gap-of-one-in-sequences-is-taken",
        promise="P2",
        before="if first_sequence == (fields[1] + 1) & SEQUENCE_MASK:",
        after="if first_sequence - fields[1] in (1, 2):",
        tests=("test_a_gap_is_out_of_order",),
        why="A batch of one record is lost, and those behind it are taken.",
    ),
    Mutant(
        name="fate-that-is-open-is-called-failed",
        promise="P4",
        before="            # Its fate stays open: the requests' own time will tell them so (P4).",
        after="            if (chunk := self._queue.proposed(chunk_id)) is not None:\n"
        '                self._give_up(chunk, ErrorCode.NOT_LEADER_OR_FOLLOWER, "failed")',
        tests=("test_an_append_in_doubt_when_the_agent_ends_is_not_called_failed",),
        why="A plain producer sends again what is in the log: duplicates.",
    ),
    Mutant(
        name="proposal-in-doubt-is-called-not-done",
        promise="P4",
        before='raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"it may still happen: {error}") from error',
        after='raise KafkaError(code, f"it may still happen: {error}") from error',
        tests=("test_a_proposal_in_doubt_is_said_to_have_timed_out",),
        why="An admin is told that a topic was not created, and it is.",
    ),
    Mutant(
        name="later-chunks-overtake-one-that-was-given-up",
        promise="P11",
        before="failed.extend(batch for batch in other.live_batches() if order_key(batch) in keys)",
        after="pass",
        tests=("test_what_would_overtake_a_lost_batch_fails_with_it",),
        why="A producer's later batch is appended before the one it sends again.",
    ),
    Mutant(
        name="open-chunk-overtakes-one-that-was-given-up",
        promise="P11",
        before="withdrawn = self._accumulator.withdraw(lambda batch: order_key(batch) in keys)",
        after="withdrawn = self._accumulator.withdraw(lambda batch: False)",
        tests=("test_a_batch_in_the_open_chunk_does_not_overtake_one_that_was_lost",),
        why="What was just read of a producer is appended before what it sends again.",
    ),
    Mutant(
        name="plain-producers-share-one-order",
        promise="P11",
        before="return ticket_of(batch).sender, batch.topic_id, batch.partition",
        after="return batch.producer_id, batch.topic_id, batch.partition",
        tests=("test_a_later_batch_of_a_connection_does_not_overtake_one_that_was_lost",),
        why="When one connection's batch is lost, batches of all others fail with it.",
    ),
    Mutant(
        name="gap-of-a-first-batch-is-forgotten",
        promise="P11",
        before="        self._failed_batches.note(batches, self._now_ms())\n",
        after="",
        tests=("test_batches_behind_the_lost_first_one_of_a_producer_wait_for_it_to_come_again",),
        why="A new partition takes a producer's second batch, and refuses its first for ever.",
    ),
    Mutant(
        name="refused-proposals-are-learnt-of-late",
        promise="P11",
        before="        self._watch_proposal(chunk, self._log_client.propose("
        "command, chunk.chunk_id.incarnation))\n"
        "        self._reap()",
        after="        self._watch_proposal(chunk, self._log_client.propose("
        "command, chunk.chunk_id.incarnation))",
        tests=("test_a_commit_that_is_refused_takes_later_ones_of_its_sender_with_it",),
        why="A chunk is proposed although the one before it was refused.",
    ),
    Mutant(
        name="chunks-pass-one-that-the-log-puts",
        promise="P11",
        before="        if self._sent is not None:\n            return []\n",
        after="",
        tests=("test_a_later_chunk_does_not_overtake_one_that_has_to_be_put_again",),
        why="A chunk is proposed while the one before it may still have to be put again.",
    ),
    Mutant(
        name="the-log-puts-a-chunk-again",
        promise="P3",
        before="        if self._done:\n            return\n",
        after="",
        tests=("test_an_append_without_an_answer_is_repeated_and_the_chunk_put_once",),
        why="A PUT that fails the second time says that an entry is not in that may be in.",
    ),
    Mutant(
        name="open-chunk-survives-the-session",
        promise="P3",
        before="withdrawn = self._accumulator.withdraw(lambda _batch: True)",
        after="withdrawn = self._accumulator.withdraw(lambda _batch: False)",
        tests=("test_what_waits_for_its_linger_when_the_session_ends_fails_and_never_comes",),
        why="Records that were taken before a lapse of any length are appended after it.",
    ),
    Mutant(
        name="chunk-is-given-up-when-clients-have-gone",
        promise="P4",
        before="            deadline = self._loop.time() + PUT_SECONDS_MAX",
        after="            deadline = self._loop.time() + 2 * PUT_SECONDS_MAX",
        tests=("test_a_chunk_that_the_store_never_takes_fails_for_certain_and_is_never_appended",),
        why="While the store is away clients hear nothing for certain, and give records up.",
    ),
)
