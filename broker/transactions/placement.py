"""Which agent coordinates a transactional id. Pure.

By rendezvous hashing of the id over the node ids of live agents, so when one comes or goes only
its ids move. Nothing depends on agents agreeing: any of them serves every id.
"""

from collections.abc import Iterable
from hashlib import blake2b

from broker.cluster.placement import best_rank


def coordinator(transactional_id: str, node_ids: Iterable[int]) -> int | None:
    """The node id of the id's coordinator; None when there are no agents."""
    candidates = sorted(node_ids)
    return best_rank(_seed(transactional_id), candidates) if candidates else None


def turn(transactional_id: str, node_ids: Iterable[int], node_id: int) -> int:
    """How many agents come before this one: 0 for the coordinator, 1 for who is next, …

    As many as there are, for an agent that is not among them.
    """
    seed = _seed(transactional_id)
    left = sorted(node_ids)
    count = 0
    while left and (best := best_rank(seed, left)) != node_id:
        left.remove(best)
        count += 1
    return count


def _seed(transactional_id: str) -> int:
    digest = blake2b(transactional_id.encode(), digest_size=8, person=b"transactional id")
    return int.from_bytes(digest.digest())
