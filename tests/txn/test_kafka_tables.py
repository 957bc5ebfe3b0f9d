"""Kafka's own tables of EndTxn, InitProducerId and adds, and where we differ on purpose.

Transcribed from Kafka (`TransactionCoordinator`, `TransactionMetadata`;
docs/design/kafka-semantics.md §5.2, §5.3, §5.5), by state and request; not written by the code
under test, other than the scripts. There are no Prepare states here: their rows have no
counterpart.
"""

import pytest

from protocol.errors import ErrorCode
from tests.txn.script import TransactionalId, at_epoch
from txn.transactions import Markers, State, end_bumping, exhausted


def _after(*requests, start=None):
    id = start or TransactionalId()
    for request in requests:
        id, answer = id.ask(request)
        assert answer.startswith("ok"), (request, answer)
    return id


STATES_TV1 = {
    "Ongoing": _after("init", "add"),
    "CompleteCommit": _after("init", "add", "end commit"),
    "CompleteAbort": _after("init", "add", "end abort"),
    "Empty": _after("init"),
}

TV1 = """
    Ongoing         commits         aborts
    CompleteCommit  0               48
    CompleteAbort   48              0
    Empty           48              48
"""


def _ended(id, request):
    """`commits`, `aborts`, `bumps`, 0 (nothing changes), or the code of an error."""
    after, answer = id.ask(request)
    if not answer.startswith("ok"):
        return answer.rpartition("(")[2].rstrip(")")
    if "COMMIT by" in answer:
        return "commits"
    if "ABORT by" in answer:
        return "aborts"
    if after.txn_metadata == id.txn_metadata:
        return "0"
    assert after.txn_metadata.epoch == id.txn_metadata.epoch + 1
    return "bumps"


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("row", TV1.strip().split("\n"))
def test_endtxn_of_tv1_is_as_in_kafka(row, version):
    state, *expected = row.split()
    asked = [f"end {kind} v{version}" for kind in ("commit", "abort")]
    assert [_ended(STATES_TV1[state], request) for request in asked] == expected


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("state", STATES_TV1)
def test_endtxn_of_tv1_judges_the_producer_first(state, version):
    for kind in ("commit", "abort"):
        assert _ended(STATES_TV1[state], f"end {kind} stranger v{version}") == "49"
        fenced = "47" if version < 2 else "90"
        assert _ended(STATES_TV1[state], f"end {kind} before v{version}") == fenced
        assert _ended(STATES_TV1[state], f"end {kind} next v{version}") == fenced


STATES_TV2 = {
    "Ongoing": _after("init", "init current", "batch v12"),
    "Empty": _after("init", "init current"),
    "CompleteAbort": _after("init", "batch v12", "end abort v5"),
    "CompleteCommit": _after("init", "batch v12", "end commit v5"),
}
START = at_epoch("1000:32766")
STATES_TV2_OVERFLOWN = {
    "Ongoing": _after("batch v12", "end commit v5", "batch v12", start=START),
    "Empty": _after("init current", start=START),
    "CompleteAbort": _after("batch v12", "end abort v5", start=START),
    "CompleteCommit": _after("batch v12", "end commit v5", start=START),
}

TV2 = """
    State           abort retry     abort current   commit retry    commit current
    Ongoing         90              aborts          90              commits
    Empty           90              bumps           90              48
    CompleteAbort   0               bumps           48              48
    CompleteCommit  48              bumps           0               48
"""


@pytest.mark.parametrize(
    ("states", "retry"), [(STATES_TV2, "before"), (STATES_TV2_OVERFLOWN, "previous")]
)
@pytest.mark.parametrize("row", TV2.strip().split("\n")[1:])
def test_endtxn_of_tv2_is_as_in_kafka(row, states, retry):
    state, *expected = row.split()
    asked = [
        f"end abort {retry} v5",
        "end abort current v5",
        f"end commit {retry} v5",
        "end commit current v5",
    ]
    assert [_ended(states[state], request) for request in asked] == expected


@pytest.mark.parametrize("state", STATES_TV2)
def test_endtxn_of_tv2_judges_the_producer_first(state):
    for kind in ("commit", "abort"):
        assert _ended(STATES_TV2[state], f"end {kind} stranger v5") == "49"
        for who in ("older", "next"):
            assert _ended(STATES_TV2[state], f"end {kind} {who} v5") == "90"


def test_markers_of_an_exhausted_producer_have_the_last_epoch_and_the_next_one_a_new_id():
    before = _after("batch v12", start=START).txn_metadata
    assert exhausted(before)
    changed = end_bumping(before, producer_id=1000, epoch=32_766, commit=True, fresh_id=7)
    assert changed.markers == Markers(1000, 32_767)
    assert changed.after[:4] == (7, 0, 32_766, 1000)


BEGUN = {
    "never begun": _after("init"),
    "open": _after("init", "add"),
    "committed": _after("init", "add", "end commit"),
    "aborted": _after("init", "add", "end abort"),
    "exhausted": at_epoch("1000:32766"),
    "exhausted, open": _after("add", start=at_epoch("1000:32766")),
}


@pytest.mark.parametrize("state", BEGUN)
@pytest.mark.parametrize("who", ["nobody", "current"])
def test_initproducerid_bumps_the_epoch_or_takes_a_new_id(state, who):
    before = BEGUN[state].txn_metadata
    after, _ = BEGUN[state].ask(f"init {who}")
    expected = (1001, 0) if exhausted(before) else (1000, before.epoch + 1)
    assert (after.txn_metadata.producer_id, after.txn_metadata.epoch) == expected
    assert after.txn_metadata.last_epoch == (before.epoch if who == "current" else -1)
    assert after.txn_metadata.state is State.EMPTY
    assert after.txn_metadata.instance == before.instance


@pytest.mark.parametrize("state", BEGUN)
@pytest.mark.parametrize("version", range(3, 6))
def test_initproducerid_of_others_is_fenced(state, version):
    code = 47 if version < 4 else 90
    for who in ("stranger", "previous", "before", "older", "next"):
        _, answer = BEGUN[state].ask(f"init {who} v{version}")
        assert answer.endswith(f"({code})"), who


@pytest.mark.parametrize("start", [TransactionalId(), at_epoch("1000:32765"), START])
def test_a_repeated_initproducerid_gets_the_same_epoch_until_it_was_used(start):
    id = _after("init", start=start) if start.txn_metadata is None else start
    exhausted_before = exhausted(id.txn_metadata)
    bumped, _ = id.ask("init current")
    again = "init previous" if exhausted_before else "init before"
    assert bumped.ask(again)[0].txn_metadata == bumped.txn_metadata
    used = _after("add", "end commit", start=bumped)
    assert used.ask(again)[1] == "PRODUCER_FENCED (90)"


@pytest.mark.parametrize("word", ["add", "add-group"])
@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("state", [None, *BEGUN])
def test_adds_judge_id_then_epoch(word, version, state):
    id = BEGUN[state] if state else TransactionalId()
    fenced = "(47)" if version < 2 else "(90)"
    for who, code in (("stranger", "(49)"), ("before", fenced), ("next", fenced)):
        _, answer = id.ask(f"{word} {who} v{version}")
        assert answer.endswith(code if state else "(49)")
    _, answer = id.ask(f"{word} current v{version}")
    assert answer.startswith("ok") if state else answer.endswith("(49)")


@pytest.mark.parametrize(
    ("word", "versions", "told"),
    [
        ("batch", range(3, 11), 48),
        ("batch", [11], 120),
        ("offsets", range(4), 48),
        ("offsets", [4], 120),
    ],
)
@pytest.mark.parametrize("state", ["never begun", "committed", "aborted"])
def test_what_belongs_to_no_transaction_is_abortable_where_the_version_knows_that(
    word, versions, told, state
):
    for version in versions:
        _, answer = BEGUN[state].ask(f"{word} v{version}")
        assert answer.endswith(f"({told})")


# On purpose other than Kafka.


def test_a_takeover_costs_one_epoch_and_no_concurrent_transactions():
    after, answer = _after("init", "add").ask("init nobody")
    assert answer.startswith("ok: ABORT by 1000:1")
    assert after.txn_metadata.epoch == 1


def test_a_zombie_is_not_told_that_its_aborted_transaction_was_committed():
    """Kafka compares epochs alone: its successor's commit would pass for the zombie's."""
    id = _after("init", "batch v12", "init nobody", "add", "end commit")
    assert _ended(id, "end commit before v5") == "90"
    overflown = _after("batch v12", "init nobody", "add", "end commit", start=START)
    assert _ended(overflown, "end commit previous v5") == "90"


def test_a_tv1_producer_that_timed_out_may_recover():
    """Kafka forgets its epoch: it would be fenced for good."""
    id = _after("init", "add", "give-up", "init before", "add", "end commit")
    assert id.txn_metadata.state is State.COMPLETE_COMMIT


def test_a_tv2_producer_that_timed_out_is_told_to_abort():
    """Kafka tells its commit 48, which is fatal."""
    id = _after("init", "batch v12", "give-up")
    assert id.ask("batch before v12")[1] == f"TRANSACTION_ABORTABLE ({ErrorCode(120).value})"
    assert _ended(id, "end commit before v5") == "120"
    assert _ended(id, "end abort before v5") == "0"
    fenced = _after("init nobody", start=id)
    assert _ended(fenced, "end commit older v5") == "90"
    assert fenced.ask("batch older v12")[1] == "INVALID_PRODUCER_EPOCH (47)"
