"""Consumer groups: the decisions of a coordinator (pure), and the shell that executes them.

    the shell       coordinator ─▶ claims (shards), coordinator_runtime (group_context, timers, loading)
    group/          what every group is, whatever its protocol: live, effects, change_commands, bodies, deadlines
    classic/        group ─▶ joins ─▶ phases ─▶ members; requests, rows, views
    consumer/       KIP-848: group ─▶ steps ─▶ reconciliation, assignors (uniform); requests,
                    delta, image, members, topics (subscriptions), rows, description
    migration/      between both: protocol_change ─▶ classic_in_consumer, members
    offsets         commits, expiry

Hard state is what the log holds: rows of `coordinator.tables.groups`. Soft state is the rest: timers,
joins in progress, parked requests. A live group is made from its row when its shard is claimed,
or when it is first heard of, and dropped when the shard is lost or a write failed; its members
then find the group, elsewhere or here, as the row has it.

In reading order: `group/`, then one of the protocols from its module `group` on; `coordinator_runtime` and
`claims` for what happens around them. Touches the log by proposals and the loop by timers. Called
by the handlers of the APIs of groups, and by the upkeep.
"""
