"""Consumer groups: the decisions of a coordinator (pure), and the shell that carries them out.

    the shell       coordinator ─▶ claims (shards), hosting (hosted, timers, loading); expiring
    what all share  live, kinds, effects, writes, settings, group_configs, clock, stats
    classic         classic ─▶ classic_joins ─▶ classic_phases ─▶ classic_members;
                    classic_rows, classic_views
    KIP-848         consumer ─▶ consumer_steps ─▶ reconciliation, assignors (uniform);
                    consumer_requests, consumer_changes, consumer_picture, consumer_members,
                    consumer_topics (subscriptions), consumer_rows, consumer_description, deadlines
    in between      migration ─▶ classic_in_consumer, migrated_members
    offsets         commits, expiry

Hard state is what the log holds: rows of `coordinator.tables.groups`. Soft state is the rest: timers,
joins in progress, parked requests. A live group is made from its row when its shard is claimed,
or when it is first heard of, and dropped when the shard is lost or a write failed; its members
then find the group, elsewhere or here, as the row has it.

In reading order: `effects`, `live`, then one of the protocols from its first module on; `hosting`
and `claims` for what happens around them.
"""
