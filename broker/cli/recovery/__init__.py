"""`frazil recover`: a lost log, from what the object store has of it.

Called by the command line. Touches store and log, as `broker.recovery` does, which decides.
"""
