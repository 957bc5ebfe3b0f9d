"""Transactions: the agent's part of them, between the requests and the log.

    coordinator  the shell: proposals and what is told when their fate is open; instances of adds;
                 the job that ends what has timed out; what was counted
    placement    which agent coordinates a transactional id (pure)
    timeouts     which open transactions have timed out, and whose turn it is (pure)
    stats        what was counted (pure)

Transactions belong to no agent: any serves every transactional id, and the position in the log
decides (`txn.transactions`, `coordinator.commands.transaction_commands`). A handler reads where the id
stands, names what it saw in a command, and tells what `apply` made of that. The *coordinator* of
an id is only whom clients are told to ask (FindCoordinator), who lists it (ListTransactions), and
who ends its transactions when they have timed out.

Handlers: init_producer_id, add_partitions_to_txn, add_offsets_to_txn, txn_offset_commit, end_txn,
write_txn_markers. The connection's part of EndTxn, the challenge, is `broker.calls.challenges`. Called
by them, by the produce path (`batch_transactions`) and by the upkeep (`expiry`).
"""
