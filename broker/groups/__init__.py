"""Consumer groups: the decisions of a coordinator (pure), and the shell that carries them out.

    classic        a group of the classic protocol: who joins, who leads, when a rebalance ends
    consumer       a group of KIP-848: epochs, target assignment, reconciliation
    migration      a group changes its protocol while its members stay
    commits        whether an offset may be committed, fetched, forgotten
    coordinator    the shell: claims, timers, parked requests, writes to the log

Hard state is what the log holds: rows of `coordinator.groups`. Soft state is the rest: timers,
joins in progress, parked requests. A live group is made from its row when its shard is claimed,
or when it is first heard of, and dropped when the shard is lost or a write failed; its members
then find the group, elsewhere or here, as the row has it.
"""
