"""A request on its way through the agent: call, challenges, stalls, slices, what became of proposals.

Pure but for `outcomes` and `slices`, which wait. Imports nothing else of this package, so that every path may
speak of requests. Called by the edge, which makes calls, and by the handlers, which answer them.
"""
