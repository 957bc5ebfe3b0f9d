"""Every order in which frames, agents and the log can do things, for one client (exhaustive).

The rule about EndTxn (docs/design/transactions.md §7, KAFKA-17754) is about frames that are late:
held in the buffers of connections that the client has given up, in agents that are slow, in
appends whose fate is unknown. `explore` goes through all the worlds that can come of a client's
plan, and says where a transaction is ended by a frame that meant an earlier one: `Ended`.

A world is a client, up to three connections, agents, and one transactional id (the decisions under
test, `txn.transactions`). What may happen next, in any order:

    client   sends what is next; gives up a connection it waits on and sends again on a new one,
             or (`resends`) once on the same
    network  the next frame of a connection arrives in the kernel's buffer of its agent, at last;
             on TLS its record begins to arrive there, and later is whole
    agent    begins with the next frame of a connection when the one before is answered (P10), notes
             the position it has applied; then, behind a barrier, answers 51 or appends
    log      an append is applied; or first its agent answers "try again", and it is applied later

An answer on a connection that the client has given up goes nowhere. Agents cannot know, so it
counts as written. A client may use KIP-890 for some transactions and not for others. Left out:
batches (the instance they name is decided likewise), timeouts, other producers of the name.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from protocol.errors import ErrorCode
from protocol.types import Incarnation, Position
from txn import transactions
from txn.transactions import Connection, Proof, State, TransactionMetadata, Transition

PRODUCER, EPOCH = 1000, 0
CONNECTIONS_MAX = 3


class Planned(NamedTuple):
    """A transaction that the client means to do."""

    adds: int
    commit: bool
    pipelined: bool = False
    """Its EndTxn is sent behind the last add without waiting (librdkafka, only aborts)."""
    tv2: bool = False
    """By KIP-890: batches add themselves, and its end brings the next epoch."""


class Frame(NamedTuple):
    transaction: int
    """Which of the plan it means: what no EndTxn says."""
    end: bool
    epoch: int = EPOCH
    challenges: frozenset[int] | None = None
    """Instances for which a 51 had been written when it arrived; None: it has not arrived."""
    whole: frozenset[int] | None = None
    """The same when all of it had arrived: on TLS that is later than when its record began to."""


class Doing(NamedTuple):
    """What an agent is at with the first frame of a connection, or an append left behind."""

    frame: Frame
    connection: int
    clock: int
    proposal: Proof | int | None = None
    """Of an EndTxn, or the instance that an add names; None: it was only read."""


class Link(NamedTuple):
    frames: tuple[Frame, ...] = ()
    doing: Doing | None = None
    challenges: frozenset[int] = frozenset()
    """Instances for which a 51 was written here."""


class Client(NamedTuple):
    transaction: int = 0
    adds_done: int = 0
    epoch: int = EPOCH
    link: int = 0
    waits: int = 0
    """Frames whose answers it waits for, on its newest connection."""
    ignores: int = 0
    """Answers before those, for which it has waited too long."""
    resends: int = 0
    stopped: bool = False


class World(NamedTuple):
    client: Client
    links: tuple[Link, ...]
    txn_metadata: TransactionMetadata
    position: int
    newest: int = -1
    """The latest transaction of the plan that has an add in the newest instance."""
    behind: tuple[Doing, ...] = ()
    """Appends whose agents have already answered "try again"."""
    left_behind: int = 0


class Ended(NamedTuple):
    """A transaction was ended by a frame that meant an earlier one."""

    frame: Frame
    proof: Proof
    path: tuple[str, ...]
    """What happened, in short."""
    documented: bool
    """What docs/design/transactions.md §10 leaves over: the second of two EndTxn of one connection
    arrived after the challenge had been written, and no other connection has made an add since it
    was read."""


@dataclass(frozen=True)
class Rules:
    """What may happen, and which challenge counts."""

    plan: Sequence[Planned]
    connections: int = CONNECTIONS_MAX
    resends: int = 0
    left_behind: int = 1
    counts: Callable[[int, frozenset[int]], bool] = lambda instance, written: instance in written
    """A token is for one instance."""
    records: bool = False
    """The connections are of TLS: a frame can be read when its record has arrived whole."""
    whole_counts: bool = False
    """Planted error: frames count whose record was whole after the challenge was written."""
    in_buffer_counts: bool = False
    """Planted error: frames that had arrived when the challenge was written count."""


def begin(rules: Rules) -> World:
    return World(Client(), (Link(),), TransactionMetadata(PRODUCER, EPOCH), 0)


@dataclass(frozen=True)
class Explored:
    worlds: dict[World, tuple[World, str] | None]
    """All that can be, each with one before it, and what happened then."""
    wrong: list[Ended]

    def path(self, world: World, *last: str) -> tuple[str, ...]:
        """What happened until then."""
        names = list(reversed(last))
        while (before := self.worlds[world]) is not None:
            world, name = before
            names.append(name)
        return tuple(reversed(names))


def explore(rules: Rules, *, enough: int | None = None) -> Explored:
    """All the worlds; or only until so many wrong endings were found."""
    explored = Explored({begin(rules): None}, [])
    stack = list(explored.worlds)
    while stack and (enough is None or len(explored.wrong) < enough):
        world = stack.pop()
        for name, after in steps(world, rules):
            if isinstance(after, Ended):
                explored.wrong.append(after._replace(path=explored.path(world, name)))
            elif after not in explored.worlds:
                explored.worlds[after] = (world, name)
                stack.append(after)
    return explored


def steps(world: World, rules: Rules) -> Iterator[tuple[str, World | Ended]]:
    """All that may happen next. Nothing, once the client is done: all later ends are its own."""
    if world.client.stopped or world.client.transaction == len(rules.plan):
        return
    yield from _client_steps(world, rules)
    for at, link in enumerate(world.links):
        yield from _link_steps(world, at, link, rules)
    for at, doing in enumerate(world.behind):
        without = world._replace(behind=world.behind[:at] + world.behind[at + 1 :])
        yield f"append of {_name(doing)} applied late", _applied(without, doing, rules)[0]


def _name(doing: Doing) -> str:
    kind = "end" if doing.frame.end else "add"
    return f"{kind} {doing.frame.transaction} of connection {doing.connection}"


# The client.


def _client_steps(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    client = world.client
    if client.waits == 0:
        yield "client sends", _sent(world, rules)
        return
    if len(world.links) < rules.connections:
        moved = client._replace(link=len(world.links), waits=0, ignores=0)
        reconnected = world._replace(client=moved, links=(*world.links, Link()))
        yield "client reconnects and sends again", _sent(reconnected, rules)
        planned = rules.plan[client.transaction]
        if planned.pipelined and client.adds_done == planned.adds - 1:
            only_end = _queued(reconnected, end=True)
            yield "client reconnects and sends its end again", only_end
    if client.resends < rules.resends:
        ignores = client.ignores + client.waits
        again = client._replace(resends=client.resends + 1, waits=0, ignores=ignores)
        yield (
            "client sends again on the same connection",
            _sent(world._replace(client=again), rules),
        )


def _sent(world: World, rules: Rules) -> World:
    """What is next, or again what has no answer."""
    client = world.client
    planned = rules.plan[client.transaction]
    if client.adds_done == planned.adds:
        return _queued(world, end=True)
    world = _queued(world, end=False)
    if planned.pipelined and client.adds_done == planned.adds - 1:
        world = _queued(world, end=True)
    return world


def _queued(world: World, *, end: bool) -> World:
    client = world.client
    frame = Frame(client.transaction, end, client.epoch)
    link = world.links[client.link]
    world = _linked(world, client.link, link._replace(frames=(*link.frames, frame)))
    return world._replace(client=client._replace(waits=client.waits + 1))


def _linked(world: World, at: int, link: Link) -> World:
    return world._replace(links=(*world.links[:at], link, *world.links[at + 1 :]))


def _answered(world: World, at: int, frame: Frame, code: ErrorCode, rules: Rules) -> World:
    """The agent has written an answer; it may be read by the client at once, or by nobody."""
    link = world.links[at]
    world = _linked(world, at, link._replace(frames=link.frames[1:], doing=None))
    client = world.client
    if client.link != at:
        return world
    if client.ignores:
        return world._replace(client=client._replace(ignores=client.ignores - 1))
    client = client._replace(waits=client.waits - 1)
    if frame.transaction == client.transaction and not client.stopped:
        client = _told(client, rules.plan[client.transaction], frame, code)
        if frame.end and code is ErrorCode.NONE:
            client = client._replace(epoch=world.txn_metadata.epoch)
    return world._replace(client=client)


FATAL = (ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTION_ABORTABLE)


def _told(client: Client, planned: Planned, frame: Frame, code: ErrorCode) -> Client:
    if code in FATAL:
        return client._replace(stopped=True)
    if not frame.end:
        done = code is ErrorCode.NONE and client.adds_done < planned.adds
        return client._replace(adds_done=client.adds_done + done)
    # A commit that cannot be is fatal. An abort of what was never begun is no harm.
    if code is ErrorCode.INVALID_TXN_STATE and planned.commit:
        return client._replace(stopped=True)
    if code in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE):
        return client._replace(transaction=client.transaction + 1, adds_done=0)
    return client


# Network, agents, log.


def _link_steps(
    world: World, at: int, link: Link, rules: Rules
) -> Iterator[tuple[str, World | Ended]]:
    waiting = next((i for i, frame in enumerate(link.frames) if frame.challenges is None), None)
    if waiting is not None:
        whole = None if rules.records else link.challenges
        arrived = link.frames[waiting]._replace(challenges=link.challenges, whole=whole)
        yield f"a frame arrives on {at}", _replaced(world, at, waiting, arrived)
    partial = next((i for i, frame in enumerate(link.frames) if frame.whole is None), None)
    if partial is not None and link.frames[partial].challenges is not None:
        whole_one = link.frames[partial]._replace(whole=link.challenges)
        yield f"a record is whole on {at}", _replaced(world, at, partial, whole_one)
    if link.doing is None:
        if link.frames and link.frames[0].whole is not None:
            yield f"frame read on {at}", _read(world, at, link)
    elif link.doing.proposal is None:
        yield f"{_name(link.doing)} judged", _judged(world, at, link, link.doing, rules)
    else:
        doing = link.doing
        after, code = _applied(world, doing, rules)
        if not isinstance(after, Ended):
            after = _written(after, at, doing, code, rules)
        yield f"{_name(doing)} applied: {code.name}", after
        if world.left_behind < rules.left_behind:
            behind = world._replace(
                behind=(*world.behind, doing), left_behind=world.left_behind + 1
            )
            yield (
                f"{_name(doing)} left behind",
                _answered(behind, at, doing.frame, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, rules),
            )


def _replaced(world: World, at: int, index: int, frame: Frame) -> World:
    link = world.links[at]
    frames = (*link.frames[:index], frame, *link.frames[index + 1 :])
    return _linked(world, at, link._replace(frames=frames))


def _read(world: World, at: int, link: Link) -> World:
    """The position is noted; an add names at once the instance that it joins or starts."""
    frame = link.frames[0]
    txn_metadata = world.txn_metadata
    instance = txn_metadata.instance + (txn_metadata.state is not State.ONGOING)
    doing = Doing(frame, at, world.position, None if frame.end else instance)
    return _linked(world, at, link._replace(doing=doing))


def _judged(world: World, at: int, link: Link, doing: Doing, rules: Rules) -> World:
    """Behind a barrier: the agent sends away what cannot be, and appends the rest."""
    txn_metadata = world.txn_metadata
    written = doing.frame.whole if rules.whole_counts else doing.frame.challenges
    if rules.in_buffer_counts:
        written = link.challenges
    proof = Proof(
        instance=txn_metadata.instance,
        connection=_connection(at),
        clock=Position(doing.clock),
        challenged=rules.counts(txn_metadata.instance, written or frozenset()),
    )
    tv1 = not rules.plan[doing.frame.transaction].tv2
    if (
        tv1
        and txn_metadata.state is State.ONGOING
        and not transactions.proof_holds(proof, txn_metadata)
    ):
        refused = doing._replace(proposal=proof)
        return _written(world, at, refused, ErrorCode.CONCURRENT_TRANSACTIONS, rules)
    return _linked(world, at, link._replace(doing=doing._replace(proposal=proof)))


def _written(world: World, at: int, doing: Doing, code: ErrorCode, rules: Rules) -> World:
    """An answer, and if it is 51 to an EndTxn, the token for the instance it was about."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and isinstance(doing.proposal, Proof):
        link = world.links[at]
        challenges = link.challenges | {doing.proposal.instance}
        world = _linked(world, at, link._replace(challenges=challenges))
    return _answered(world, at, doing.frame, code, rules)


def _connection(at: int) -> Connection:
    return Connection(Incarnation(1), at)


def _applied(world: World, doing: Doing, rules: Rules) -> tuple[World | Ended, ErrorCode]:
    """At its position in the log."""
    frame, position = doing.frame, Position(world.position + 1)
    planned = rules.plan[frame.transaction]
    who = {"producer_id": PRODUCER, "epoch": frame.epoch}
    if not isinstance(doing.proposal, Proof):
        added = (
            transactions.begin(world.txn_metadata, **who)
            if planned.tv2
            else transactions.add(
                world.txn_metadata,
                **who,
                instance=doing.proposal or 0,
                by=_connection(doing.connection),
                at=position,
            )
        )
        if isinstance(added, ErrorCode):
            return world, added
        begun = added.instance != world.txn_metadata.instance
        newest = frame.transaction if begun else max(world.newest, frame.transaction)
        return world._replace(txn_metadata=added, position=position, newest=newest), ErrorCode.NONE
    who["commit"] = planned.commit
    ended = (
        transactions.end_bumping(world.txn_metadata, **who, fresh_id=-1)
        if planned.tv2
        else transactions.end(world.txn_metadata, **who, proof=doing.proposal)
    )
    if not isinstance(ended, Transition):
        return world, ended
    if ended.markers is not None and world.newest > frame.transaction:
        return _wrong(world, doing, doing.proposal), ErrorCode.NONE
    return world._replace(txn_metadata=ended.after, position=position), ErrorCode.NONE


def _wrong(world: World, doing: Doing, proof: Proof) -> Ended:
    newest = world.txn_metadata.adds.newest_but_by(proof.connection)
    documented = (
        proof.challenged
        and proof.instance == world.txn_metadata.instance
        and proof.instance in (doing.frame.challenges or ())
        and newest <= proof.clock
    )
    return Ended(doing.frame, proof, (), documented)
