"""A request on its way through the agent: the call, challenges, stalls, and what became of proposals.

Pure but for `outcomes`, which waits. Imports nothing else of this package, so that every path may
speak of requests. Called by the edge, which makes calls, and by the handlers, which answer them.
"""
