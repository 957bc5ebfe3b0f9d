"""The interface of a live group of any protocol: requests in, effects out (answers, writes).

Pure. The border between the protocols, which decide, and the shell in `broker.groups`, which waits.
Called by both.
"""
