"""The language of the scripts about one transactional id: requests in text, answers in text.

    init WHO               InitProducerId
    add WHO [of N] [by C]  AddPartitionsToTxn (also add-group: AddOffsetsToTxn)
    batch WHO [of N]       Produce (also offsets: TxnOffsetCommit); implicit from v12 (v5) on
    end commit|abort WHO [of N] [by C] [at P] [challenged]     EndTxn; bumps the epoch in v5
    give-up WHO [of N]     a timeout, or an admin's wish

    state NAME: REQUEST; REQUEST; ...     what was before, for `grid`
    use FILE               the states of another script
    grid REQUEST           the request in every state and version; states after their answers

WHO is `current` (which may be left out), `before` and `older` (one epoch less, and two), `next`,
`previous` (id and epoch 32766 of the producer id before), `stranger`, `nobody` (-1 and -1) or
ID:EPOCH. N is a transaction's number, or `newest` (as is assumed), `older`, `next`; adds name what
an up-to-date agent would. C is a connection, a if it is not said; P the position that was applied
when the frame was read, counted in steps (0: none), else all. A version is said by vN; unsaid, it
is the newest of TV1 clients. `id ID:EPOCH` begins anew with a producer that is at that epoch.
Lines that begin with # are comments; lines that are indented are answers: the metadata that came
of it, or an error under the name and number that the version is told.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from textwrap import wrap

from protocol.errors import ErrorCode
from protocol.types import Incarnation, Position
from tests.kit.script import runs
from txn import error_codes
from txn.transactions import (
    EPOCH_EXHAUSTED,
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
    give_up,
    init,
)

FOLDER = Path(__file__).parent / "scripts"
FIRST_ID = 1000
STRANGER = 7777

VERSIONS = {
    "init": range(6),
    "add": range(4),
    "add-group": range(5),
    "batch": range(3, 14),
    "offsets": range(6),
    "end": range(6),
    "give-up": range(1),
}
USUAL = {"init": 4, "add": 3, "add-group": 3, "batch": 11, "offsets": 4, "end": 4, "give-up": 0}
BUMPING_FROM = 5
IMPLICIT_FROM = {"batch": 12, "offsets": 5}

Outcome = Transition | TransactionMetadata | ErrorCode


@dataclass(frozen=True)
class TransactionalId:
    """One id as it stands, and what time it is. Changed by making another."""

    txn_metadata: TransactionMetadata | None = None
    fresh_id: int = FIRST_ID
    at: int = 0

    def ask(self, text: str) -> tuple["TransactionalId", str]:
        """A request; what is then, and the answer."""
        word, *words = text.split()
        version = USUAL[word]
        if words and words[-1][0] == "v":
            version = int(words.pop()[1:])
        now = replace(self, at=self.at + 1)
        outcome = now._judged(word, version, _Words(now, words))
        if isinstance(outcome, ErrorCode):
            return now, _error(_told(word)(outcome, version))
        after = outcome if isinstance(outcome, TransactionMetadata) else outcome.after
        fresh_id = self.fresh_id + (after.producer_id == self.fresh_id)
        return replace(now, txn_metadata=after, fresh_id=fresh_id), _answer(
            self.txn_metadata, outcome
        )

    def _judged(self, word: str, version: int, words: "_Words") -> Outcome:
        before, commit = self.txn_metadata, words.take("commit")
        words.take("abort")
        who = words.who()
        if word == "init":
            return init(before, **who, fresh_id=self.fresh_id)
        if word == "give-up":
            return give_up(before, **who, instance=words.instance(), fresh_id=self.fresh_id)
        if word in ("add", "add-group"):
            at = Position(self.at)
            return add(before, **who, instance=words.instance(add=True), by=words.by(), at=at)
        if word == "end":
            if version >= BUMPING_FROM:
                return end_bumping(before, **who, commit=commit, fresh_id=self.fresh_id)
            proof = Proof(
                instance=words.instance(),
                connection=words.by(),
                clock=words.clock(),
                challenged=words.take("challenged"),
            )
            return end(before, **who, commit=commit, proof=proof)
        if version >= IMPLICIT_FROM[word]:
            return begin(before, **who)
        refused = check(before, **who, instance=words.instance())
        if refused is not ErrorCode.NONE:
            return refused
        assert before is not None
        return before


@dataclass
class _Words:
    """The arguments of a request, each taken away when it is asked for."""

    id: TransactionalId
    left: list[str]

    def take(self, word: str) -> bool:
        if word in self.left:
            self.left.remove(word)
            return True
        return False

    def _after(self, word: str) -> str | None:
        if word not in self.left:
            return None
        at = self.left.index(word)
        _, value = self.left[at : at + 2]
        del self.left[at : at + 2]
        return value

    def instance(self, *, add: bool = False) -> int:
        now = self.id.txn_metadata
        newest = now.instance if now else 0
        open_now = now is not None and now.state is State.ONGOING
        named = self._after("of") or ("next" if add and not open_now else "newest")
        numbers = {"newest": newest, "older": newest - 1, "next": newest + 1}
        return numbers[named] if named in numbers else int(named)

    def by(self) -> Connection:
        return Connection(Incarnation(1), ord(self._after("by") or "a"))

    def clock(self) -> Position:
        return Position(int(self._after("at") or self.id.at - 1))

    def who(self) -> dict[str, int]:
        now = self.id.txn_metadata or TransactionMetadata(FIRST_ID, 0)
        name = self.left.pop(0) if self.left and _is_who(self.left[0]) else "current"
        named = {
            "current": (now.producer_id, now.epoch),
            "before": (now.producer_id, now.epoch - 1),
            "older": (now.producer_id, now.epoch - 2),
            "next": (now.producer_id, now.epoch + 1),
            "previous": (max(now.previous_id, 1), EPOCH_EXHAUSTED),
            "stranger": (STRANGER, now.epoch),
            "nobody": (-1, -1),
        }.get(name)
        producer_id, epoch = named or map(int, name.split(":"))
        return {"producer_id": producer_id, "epoch": epoch}


WHO = ("current", "before", "older", "next", "previous", "stranger", "nobody")


def _is_who(word: str) -> bool:
    return word in WHO or ":" in word


def _told(word: str) -> Callable[[ErrorCode, int], ErrorCode]:
    return {
        "init": error_codes.for_init,
        "add": error_codes.for_add,
        "add-group": error_codes.for_add,
        "batch": error_codes.for_produce,
        "offsets": error_codes.for_txn_offset_commit,
        "end": error_codes.for_end,
        "give-up": lambda code, _: code,
    }[word]


def _error(code: ErrorCode) -> str:
    return f"{code.name} ({code.value})"


def _answer(before: TransactionMetadata | None, outcome: Transition | TransactionMetadata) -> str:
    after = outcome if isinstance(outcome, TransactionMetadata) else outcome.after
    if isinstance(outcome, Transition) and outcome.markers:
        kind = "COMMIT" if after.state is State.COMPLETE_COMMIT else "ABORT"
        ended = f"{kind} by {outcome.markers.producer_id}:{outcome.markers.epoch}, "
    else:
        ended = ""
    if after == before:
        return f"ok: {after.producer_id}:{after.epoch}, nothing changes"
    words = [f"{after.producer_id}:{after.epoch} {after.state.name} #{after.instance}"]
    if after.state is State.ONGOING:
        words.append(f"owned by {_name(after.adds.owner)}")
    if after.last_epoch != -1:
        words.append(f"after {after.last_epoch}")
    if after.given_up:
        words.append("given up")
    return "ok: " + ended + ", ".join(words)


def _name(connection: Connection | None) -> str:
    return chr(connection.number) if connection else "nobody"


@dataclass
class Script:
    id: TransactionalId = field(default_factory=TransactionalId)
    states: dict[str, list[str]] = field(default_factory=dict)

    def step(self, line: str) -> Iterator[str]:
        """Carry out one line; what is answered."""
        word, _, rest = line.partition(" ")
        if word == "state":
            name, _, requests = rest.partition(":")
            self.states[name] = [request.strip() for request in requests.split(";")]
        elif word == "use":
            for other in (FOLDER / f"{rest}.txt").read_text().splitlines():
                if other.startswith("state "):
                    yield from self.step(other)
        elif word == "grid":
            yield from self._grid(rest)
        elif word == "id":
            self.id = at_epoch(rest)
        else:
            self.id, answer = self.id.ask(line)
            yield answer

    def _grid(self, request: str) -> Iterator[str]:
        """The answers, of all versions together, and under each the states that give it."""
        found: dict[str, list[str]] = {}
        for name, requests in self.states.items():
            id = _led_to(requests)
            word, *_ = request.split(maxsplit=1)
            answers = [(version, id.ask(f"{request} v{version}")[1]) for version in VERSIONS[word]]
            told = "; ".join(
                f"v{','.join(runs(version for version, _ in same))} {answer}"
                for answer, same in groupby(answers, lambda pair: pair[1])
            )
            found.setdefault(told, []).append(name)
        for told, names in found.items():
            yield told
            yield from (f"    {line}" for line in wrap(" | ".join(names), 90))


def _led_to(requests: list[str]) -> TransactionalId:
    id = TransactionalId()
    for request in requests:
        if request.startswith("id "):
            id = at_epoch(request.removeprefix("id "))
        elif request:
            id, answer = id.ask(request)
            assert answer.startswith("ok"), (requests, request, answer)
    return id


def at_epoch(text: str) -> TransactionalId:
    """A producer that has just got this id and epoch."""
    producer_id, epoch = map(int, text.split(":"))
    return TransactionalId(TransactionMetadata(producer_id, epoch), producer_id + 1)
