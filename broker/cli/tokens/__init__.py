"""`frazil token`: delegation tokens, made, listed, renewed and ended.

Speaks to agents over the network. Called by `broker.cli.main`.
"""
