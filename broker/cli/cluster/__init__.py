"""`frazil cluster` and `frazil config`: a cluster's agents, and the configs of whatever has some.

Speaks to agents over the network. Called by `broker.cli.main`.
"""
