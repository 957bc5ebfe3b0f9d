"""Runs of the export: one topic from plan to commit (`job`), and all topics in a loop.

Called by the command line.
"""
