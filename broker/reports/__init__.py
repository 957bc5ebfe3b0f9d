"""Reports of topics, groups, transactions, jobs and the log, as JSON and as tables.

Pure. Called by the admin listener and by the command line.
"""
