"""`frazil backup`: the snapshots in a store, and whether they could be gone back to (`list`, `verify`).

Reads the store alone: it is for clusters that have lost their agents, or their log, and for those that have not yet.
Called by `broker.cli.main`.
"""
