"""Producers of one name against a ten-line model of what they may expect.

Producers come, take over, use TV1 and TV2 as they like, lose answers and repeat their requests on
other connections, time out and recover, at epochs near their end. The model knows no epochs,
numbers or connections: only who may write, what is open, and what became of each batch.
"""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from protocol.errors import ErrorCode
from protocol.types import Incarnation, Position
from txn.transactions import (
    EPOCH_EXHAUSTED,
    EPOCH_LAST,
    Connection,
    Proof,
    State,
    TransactionMetadata,
    Transition,
    add,
    begin,
    check,
    end,
    end_bumping,
    exhausted,
    give_up,
    init,
    proof_holds,
)


@dataclass
class Model:
    """Who may write, what is open, and what became of it."""

    writer: object = None
    timed_out: bool = False
    """The writer has yet to learn it."""
    open: list[int] | None = None
    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)

    def may(self, producer: object) -> bool:
        return producer is self.writer and not self.timed_out

    def ends(self, *, commit: bool) -> None:
        (self.committed if commit else self.aborted).extend(self.open or ())
        self.open = None


@dataclass
class Producer:
    """What a client knows of itself."""

    id: int
    epoch: int
    connection: int

    @property
    def who(self):
        return {"producer_id": self.id, "epoch": self.epoch}

    def learns(self, txn_metadata):
        self.id, self.epoch = txn_metadata.producer_id, txn_metadata.epoch


REFUSED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
TIMED_OUT = REFUSED | {ErrorCode.TRANSACTION_ABORTABLE}

producers = st.integers(0, 3)
lost = st.booleans()


class Life(RuleBasedStateMachine):
    """One transactional id, and all who go by its name."""

    def __init__(self):
        super().__init__()
        self.model = Model()
        self.txn_metadata = None
        self.batches = {}
        """By the number of a transaction, what was written into it."""
        self.ended = {}
        """By the number of a transaction, how."""
        self.producers = []
        self.position = 0
        self.connections = 0
        self.batch = 0
        self.fresh = 10

    @initialize(epoch=st.sampled_from([0, 5, EPOCH_EXHAUSTED - 3, EPOCH_EXHAUSTED]))
    def starts(self, epoch):
        self.txn_metadata = TransactionMetadata(1, epoch)
        self.producers.append(Producer(1, epoch, self._connected()))
        self.model.writer = self.producers[-1]

    # Helpers.

    def _connected(self):
        self.connections += 1
        return self.connections

    def _fresh(self):
        self.fresh += 1
        return self.fresh

    def _takes(self, outcome):
        """A request was carried out, or not; its position is the next in any case."""
        self.position += 1
        if isinstance(outcome, TransactionMetadata):
            self.txn_metadata = outcome
        elif isinstance(outcome, Transition):
            before, self.txn_metadata = self.txn_metadata, outcome.after
            if outcome.markers:
                how = outcome.after.state is State.COMPLETE_COMMIT
                assert before.state is State.ONGOING
                assert before.instance not in self.ended
                self.ended[before.instance] = how
                assert outcome.markers.producer_id == before.producer_id
                assert before.epoch <= outcome.markers.epoch <= EPOCH_LAST
        return outcome

    def _by(self, producer):
        return Connection(Incarnation(1), producer.connection)

    def _pick(self, number):
        return self.producers[number % len(self.producers)]

    # What happens.

    @rule()
    def another_takes_over(self):
        before = self.txn_metadata
        changed = self._takes(init(before, producer_id=-1, epoch=-1, fresh_id=self._fresh()))
        assert isinstance(changed, Transition)
        self.model.ends(commit=False)
        newcomer = Producer(0, 0, self._connected())
        newcomer.learns(changed.after)
        self.producers.append(newcomer)
        self.model.writer, self.model.timed_out = newcomer, False

    @rule(number=producers, answer_lost=lost)
    def goes_on_with_a_new_epoch(self, number, answer_lost):
        producer = self._pick(number)
        outcome = self._takes(init(self.txn_metadata, **producer.who, fresh_id=self._fresh()))
        if producer is not self.model.writer:
            assert outcome is ErrorCode.PRODUCER_FENCED
            return
        self.model.ends(commit=False)
        if answer_lost:
            again = self._takes(init(self.txn_metadata, **producer.who, fresh_id=self._fresh()))
            assert again.after == outcome.after
        producer.learns(outcome.after)
        self.model.timed_out = False

    @rule(number=producers)
    def adds(self, number):
        producer = self._pick(number)
        open_now = self.txn_metadata.state is State.ONGOING
        instance = self.txn_metadata.instance + (not open_now)
        self.position += 1
        outcome = add(
            self.txn_metadata,
            **producer.who,
            instance=instance,
            by=self._by(producer),
            at=Position(self.position),
        )
        if not self.model.may(producer):
            assert outcome in REFUSED
            return
        self.txn_metadata = outcome
        self.model.open = self.model.open or []
        self.batches.setdefault(instance, [])

    @rule(number=producers, named=st.integers(-1, 1), implicit=st.booleans())
    def writes(self, number, named, implicit):
        producer = self._pick(number)
        self.batch += 1
        if implicit:
            self._writes_implicitly(producer)
            return
        instance = self.txn_metadata.instance + named
        outcome = check(self.txn_metadata, **producer.who, instance=instance)
        if not self.model.may(producer):
            assert outcome in REFUSED
        elif self.model.open is None:
            assert outcome is ErrorCode.TRANSACTION_ABORTABLE
        elif named:
            assert outcome is ErrorCode.NOT_ENOUGH_REPLICAS
        else:
            assert outcome is ErrorCode.NONE
            self._written()

    def _writes_implicitly(self, producer):
        outcome = begin(self.txn_metadata, **producer.who)
        if self.model.may(producer):
            self._takes(outcome)
            self.model.open = self.model.open or []
            self._written()
        elif producer is self.model.writer:
            assert outcome is ErrorCode.TRANSACTION_ABORTABLE
        else:
            assert outcome in REFUSED

    def _written(self):
        self.model.open.append(self.batch)
        self.batches.setdefault(self.txn_metadata.instance, []).append(self.batch)

    @rule(number=producers, commit=st.booleans(), answer_lost=lost, reconnects=st.booleans())
    def ends_in_the_old_way(self, number, commit, answer_lost, reconnects):
        producer = self._pick(number)
        if reconnects:
            producer.connection = self._connected()
        outcome = self._ends_in_the_old_way(producer, commit)
        if not self.model.may(producer):
            assert outcome in REFUSED
            return
        if self.model.open is None:
            assert isinstance(outcome, Transition) or outcome is ErrorCode.INVALID_TXN_STATE
            return
        assert isinstance(outcome, Transition)
        self.model.ends(commit=commit)
        if answer_lost:
            producer.connection = self._connected()
            assert self._ends_in_the_old_way(producer, commit).after == outcome.after
            other = self._ends_in_the_old_way(producer, not commit)
            assert other is ErrorCode.INVALID_TXN_STATE

    def _ends_in_the_old_way(self, producer, commit):
        """At most one challenge."""
        for challenged in (False, True):
            proof = Proof(
                self.txn_metadata.instance, self._by(producer), Position(self.position), challenged
            )
            outcome = self._takes(
                end(self.txn_metadata, **producer.who, commit=commit, proof=proof)
            )
            if outcome is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return outcome
            assert self.txn_metadata.adds.owner != self._by(producer)
        raise AssertionError("challenged twice")

    @rule(number=producers, commit=st.booleans(), answer_lost=lost)
    def ends_in_the_new_way(self, number, commit, answer_lost):
        producer = self._pick(number)
        outcome = self._ends_in_the_new_way(producer, commit)
        if producer is not self.model.writer:
            assert outcome in REFUSED
            return
        if self.model.timed_out:
            self._learns_of_the_timeout(producer, outcome, commit)
            return
        if self.model.open is None and commit:
            assert outcome is ErrorCode.INVALID_TXN_STATE
            return
        self.model.ends(commit=commit)
        if answer_lost:
            assert self._ends_in_the_new_way(producer, commit).after == outcome.after
            other = self._ends_in_the_new_way(producer, not commit)
            assert other is ErrorCode.INVALID_TXN_STATE
        producer.learns(outcome.after)

    def _learns_of_the_timeout(self, producer, outcome, commit):
        if commit:
            assert outcome is ErrorCode.TRANSACTION_ABORTABLE
        else:
            producer.learns(outcome.after)
            self.model.timed_out = False

    def _ends_in_the_new_way(self, producer, commit):
        return self._takes(
            end_bumping(self.txn_metadata, **producer.who, commit=commit, fresh_id=self._fresh())
        )

    @precondition(lambda self: self.txn_metadata and self.txn_metadata.state is State.ONGOING)
    @rule()
    def takes_too_long(self):
        now = self.txn_metadata
        who = {"producer_id": now.producer_id, "epoch": now.epoch, "instance": now.instance}
        changed = self._takes(give_up(now, **who, fresh_id=self._fresh()))
        assert isinstance(changed, Transition)
        self.model.ends(commit=False)
        self.model.timed_out = True
        again = give_up(self.txn_metadata, **who, fresh_id=self._fresh())
        assert again in REFUSED | {ErrorCode.INVALID_TXN_STATE}

    @precondition(lambda self: self.txn_metadata and self.txn_metadata.state is State.ONGOING)
    @rule(commit=st.booleans(), age=st.integers(1, 3))
    def an_end_of_an_earlier_transaction_comes_late(self, commit, age):
        """Whatever its agent believes: it is of a connection that did not start this one."""
        now = self.txn_metadata
        who = {"producer_id": now.producer_id, "epoch": now.epoch}
        stranger = Connection(Incarnation(1), self._connected())
        for challenged in (False, True):
            proof = Proof(now.instance - age, stranger, Position(self.position), challenged)
            assert not proof_holds(proof, now)
            outcome = end(now, **who, commit=commit, proof=proof)
            assert outcome is ErrorCode.CONCURRENT_TRANSACTIONS
        unchallenged = Proof(now.instance, stranger, Position(self.position), challenged=False)
        assert not proof_holds(unchallenged, now)

    # What always holds.

    @invariant()
    def every_batch_is_where_the_model_has_it(self):
        if self.txn_metadata is None:
            return
        assert (self.txn_metadata.state is State.ONGOING) == (self.model.open is not None)
        committed, aborted = (
            sorted(
                batch
                for instance, batches in self.batches.items()
                if self.ended.get(instance) is how
                for batch in batches
            )
            for how in (True, False)
        )
        assert committed == sorted(self.model.committed)
        assert aborted == sorted(self.model.aborted)

    @invariant()
    def numbers_only_grow_and_epochs_stay_below_the_last(self):
        if self.txn_metadata is None:
            return
        assert self.txn_metadata.epoch <= EPOCH_EXHAUSTED
        assert exhausted(self.txn_metadata) == (self.txn_metadata.epoch == EPOCH_EXHAUSTED)
        ended = self.txn_metadata.instance - (self.txn_metadata.state is State.ONGOING)
        assert set(self.ended) == set(range(1, ended + 1))

    @invariant()
    def who_may_write_is_who_knows_the_epoch(self):
        if self.txn_metadata is None:
            return
        current = (self.txn_metadata.producer_id, self.txn_metadata.epoch)
        for producer in self.producers:
            knows = (producer.id, producer.epoch) == current
            assert knows == self.model.may(producer)

    @invariant()
    def whoever_was_replaced_hears_no_to_everything(self):
        now = self.txn_metadata
        for producer in self.producers:
            if producer is self.model.writer:
                continue
            who, fresh = producer.who, self.fresh + 1
            by, at = self._by(producer), Position(self.position)
            proof = Proof(now.instance, by, at, challenged=True)
            answers = [
                init(now, **who, fresh_id=fresh),
                begin(now, **who),
                check(now, **who, instance=now.instance),
                give_up(now, **who, instance=now.instance, fresh_id=fresh),
                *(add(now, **who, instance=now.instance + next, by=by, at=at) for next in (0, 1)),
            ]
            for commit in (True, False):
                answers.append(end(now, **who, commit=commit, proof=proof))
                answers.append(end_bumping(now, **who, commit=commit, fresh_id=fresh))
            assert set(answers) <= REFUSED


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
