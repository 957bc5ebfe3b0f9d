"""Groups of the consumer protocol (KIP-848): epochs, target assignments, reconciliation, assignors.

Pure. Called by the shell in `broker.groups`, and by `broker.groups.migration.protocol_change`.
"""
