"""The cluster as one agent sees it: who is there, what is placed where, what time it is.

Pure. Called by handlers, groups, transactions and jobs, and by the composition
root.
"""
