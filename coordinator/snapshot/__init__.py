"""Snapshots: the machine as bytes in the object store, and a machine out of them.

The codecs of tables are pure; `store` and `loading` read and write objects. Called by the job that
takes snapshots, and by the replica when an agent starts.
"""
