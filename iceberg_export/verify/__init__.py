"""The proof that a table has every committed record exactly once.

Called by the command line.
"""
