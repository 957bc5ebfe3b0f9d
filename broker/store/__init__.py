"""Checks of the store beside records: identity, truncation of the log, clock, reachability.

Touches the store and the log. Called by the composition root at start and by its periodic tasks.
"""
