"""Periodic tasks of an agent: old offsets and transactional ids expire, rows
of deleted topics go. Before it serves, the first users are made.

Touches the metadata log by way of the node. Called by the composition root. What is heavy is no
upkeep but a job (`broker.jobs`).
"""
