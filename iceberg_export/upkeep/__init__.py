"""Upkeep of tables: compaction, expiry of snapshots, and setting where an export goes on.

Called by the command line.
"""
