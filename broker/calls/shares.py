"""Shares of what is bounded: no client uses up what all need, and one alone gets nearly all of it.

The rule (`may_take`): of a bound, whoever holds `held` may take one more while `held` is less than
nine times what is free. It follows that

* nobody is refused before nine tenths of the whole are taken, whoever has how much of it;
* one owner alone gets nine tenths, two that want all get 9/19 each, n of them 9/(9n + 1) each;
* who holds nothing gets something as long as anything is free;
* a bound of less than ten is anybody's: a tenth of it is nothing that could be kept for others.

An *owner* is who a share is counted for: a client's address (`owner_of`), of IPv6 its network of 64
bits, since one host has all of that. Clients behind one proxy are one owner, which they notice
only when nearly everything is taken, and most of it by them.

The whole may be the cluster's. `apply` judges it alone, and knows no addresses; so an agent keeps
a `Ledger` of what was made through it by whom, and refuses before it proposes. A client that goes
to k agents has k shares, and still leaves something; an agent that starts anew knows of nothing
that was made before, and then a tenth of what is free stays free. Both slow an attacker down; what
bounds the cluster is `apply`.

Pure. Left out: what is bounded, and what is said when it is full (docs/design/shares.md has both).
"""

import functools
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final, Generic, NewType, TypeVar

from protocol.errors import ErrorCode, KafkaError

Owner = NewType("Owner", str)

TIMES_FREE: Final = 9
LOOKS: Final = 2
"""Things that are looked at again whenever one is noted, so that what is gone is forgotten."""
LOOKS_BEFORE_REFUSAL: Final = 100
OWNERS_MAX: Final = 10_000
"""Of a `Flow`, about: each counts little then."""

_IPV6_NETWORK_BITS: Final = 64

Thing = TypeVar("Thing", bound=Hashable)


def owner_of(peer: str) -> Owner:
    """Who a client is, of its `address:port` (`broker.calls.call.Connection.peer`)."""
    return _owner_at(peer.rpartition(":")[0])


@functools.lru_cache(maxsize=4096)
def _owner_at(address: str) -> Owner:
    if ":" not in address:
        return Owner(address)
    try:
        network = ipaddress.ip_network(
            (address.partition("%")[0], _IPV6_NETWORK_BITS), strict=False
        )
    except ValueError:
        return Owner(address)
    return Owner(str(network))


def is_nearly_full(used: int, most: int) -> bool:
    """Whether the rule can bind at all. Before that nobody need be asked what he holds."""
    return used >= TIMES_FREE * (most - used)


def may_take(held: int, wanted: int = 1, *, used: int, most: int) -> bool:
    """Whether who holds `held` may take so many more of `most`, of which `used` are taken.

    Many are judged as if they were taken one by one.
    """
    return held + wanted - 1 < TIMES_FREE * (most - used - wanted + 1)


class _Holding(Generic[Thing]):
    """What one owner has."""

    __slots__ = ("begun", "held", "things")

    def __init__(self) -> None:
        self.things: OrderedDict[Thing, int] = OrderedDict()
        """Sizes as they were when last looked at; those looked at longest ago come first. A dict
        would walk over what was taken from its front, each time."""
        self.held = 0
        """Their sum."""
        self.begun = 0
        """Of what is on its way, and no thing yet."""


class Ledger(Generic[Thing]):
    """What clients have made through this agent, by owner.

    A thing is named as the machine names it, and `size_of` tells how much of the bound it takes
    now; 0: it is gone. So nobody has to say when one goes: a few are looked at again whenever one
    is noted, and many before an owner is refused. The ledger names at most about twice what there is.
    """

    def __init__(
        self,
        most: int,
        nouns: str,
        *,
        size_of: Callable[[Thing], int],
        used: Callable[[], int] | None = None,
    ) -> None:
        """`nouns`: what there are `most` of; `used`: of the whole, if others than the ledger's
        owners have some of it."""
        self._most = most
        self._nouns = nouns
        self._size_of = size_of
        self._used = used
        self._holdings: OrderedDict[Owner, _Holding[Thing]] = OrderedDict()
        self._held = 0
        self._begun = 0

    def __len__(self) -> int:
        """Things that it names."""
        return sum(len(holding.things) for holding in self._holdings.values())

    def names(self, owner: Owner, thing: Thing) -> bool:
        """Whether the thing is known to be the owner's; how large it is now may not be."""
        holding = self._holdings.get(owner)
        return holding is not None and thing in holding.things

    def held_by(self, owner: Owner) -> int:
        """What the owner holds as far as was looked, and what it has on its way."""
        holding = self._holdings.get(owner)
        return 0 if holding is None else holding.held + holding.begun

    def is_plenty(self, wanted: int = 1) -> bool:
        """Whether anybody may have so much more."""
        return not is_nearly_full(self._taken() + wanted - 1, self._most)

    def admits(self, owner: Owner, wanted: int = 1) -> bool:
        """Whether the owner may have so much more."""
        if self.is_plenty(wanted):
            return True
        holding = self._holdings.get(owner)
        if holding is not None:
            self._look(owner, holding, LOOKS_BEFORE_REFUSAL)
        return may_take(self.held_by(owner), wanted, used=self._taken(), most=self._most)

    def require(
        self, owner: Owner, wanted: int = 1, *, code: ErrorCode = ErrorCode.POLICY_VIOLATION
    ) -> None:
        """As `admits`. Raises KafkaError(code)."""
        if not self.admits(owner, wanted):
            raise KafkaError(code, self.refusal(owner))

    def refusal(self, owner: Owner) -> str:
        """What an owner is told that is not admitted."""
        return (
            f"The client's address has {self.held_by(owner)} {self._nouns} of at most {self._most},"
            " which are nearly used up: remove some first."
        )

    def begin(self, owner: Owner, size: int = 1) -> None:
        """So much is on its way, and counts as taken until it is `settle`d."""
        self._holding(owner).begun += size
        self._begun += size

    def settle(self, owner: Owner, thing: Thing, size: int = 1, *, made: bool) -> None:
        """What was begun has come to be as `thing`, or was not `made`."""
        self.end(owner, size)
        if made:
            self.note(owner, thing)

    def end(self, owner: Owner, size: int = 1) -> None:
        """So much is not on its way any more."""
        holding = self._holding(owner)
        holding.begun -= size
        self._begun -= size
        assert holding.begun >= 0
        self._look(owner, holding, LOOKS)

    def note(self, owner: Owner, thing: Thing) -> None:
        """The owner has made the thing, or made it grow."""
        holding = self._holding(owner)
        self._weigh(holding, thing)
        self._look(owner, holding, LOOKS)
        # Those of others too, who may never come again.
        for other in list(islice(self._holdings, 1)):
            self._holdings.move_to_end(other)
            self._look(other, self._holdings[other], LOOKS)

    def _taken(self) -> int:
        return self._begun + (self._held if self._used is None else self._used())

    def _holding(self, owner: Owner) -> _Holding[Thing]:
        holding = self._holdings.get(owner)
        if holding is None:
            holding = self._holdings[owner] = _Holding()
        return holding

    def _look(self, owner: Owner, holding: _Holding[Thing], most: int) -> None:
        for thing in list(islice(holding.things, most)):
            self._weigh(holding, thing)
        if not holding.things and not holding.begun:
            del self._holdings[owner]

    def _weigh(self, holding: _Holding[Thing], thing: Thing) -> None:
        before = holding.things.pop(thing, 0)
        size = self._size_of(thing)
        if size > 0:
            holding.things[thing] = size
        holding.held += size - before
        self._held += size - before


class Flow:
    """Who has put how much into what is emptied from time to time: the log between snapshots.

    Whose the rest is when some has gone nobody knows, so everybody's part is halved then.
    """

    def __init__(self, most: int, *, used: Callable[[], int]) -> None:
        self._most = most
        self._used = used
        self._seen = 0
        self._put: dict[Owner, int] = {}

    def __len__(self) -> int:
        """Owners that are known."""
        return len(self._put)

    def put(self, owner: Owner, byte_count: int) -> bool:
        """The owner puts in so much; False: he has no share left, and must not."""
        used = self._used()
        if used < self._seen or len(self._put) >= OWNERS_MAX:
            self._put = {each: part // 2 for each, part in self._put.items() if part > 1}
        self._seen = used
        held = self._put.get(owner, 0)
        if is_nearly_full(used, self._most) and not may_take(held, used=used, most=self._most):
            return False
        self._put[owner] = held + byte_count
        return True
