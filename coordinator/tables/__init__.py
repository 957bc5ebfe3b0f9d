"""The tables of the machine: partitions, topics, groups, transactions, objects and the like.

Pure. A table changes only by the commands it is handed, in the order of the log, and reads no
clock. Called by the machine to change them, and by anybody to read them.
"""
