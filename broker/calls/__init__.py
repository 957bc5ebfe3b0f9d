"""A request on its way through the agent: challenges, stalls, and the clock that leaves stalls out.

Pure. Imports nothing else of this package, so that every path may speak of requests. Called by the
edge, which makes calls, and by the handlers, which answer them.
"""
