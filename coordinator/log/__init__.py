"""The metadata log: the port (`metadata_log`), and its adapters on etcd, on SQLite and in memory.

The adapters touch networks and disks and know nothing of commands: an entry is bytes to them.
Nobody but `open_log` names an adapter. Called by the proposer, the replica and the session.
"""
