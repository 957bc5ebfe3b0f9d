"""One order for everything: the metadata log, the machine it drives, and an agent's hold on both.

Commands, codec and machine are pure; `MetadataLog` is the port, with memory, SQLite and etcd
adapters; replica, proposer, membership and barrier are the shells an agent runs.
"""
