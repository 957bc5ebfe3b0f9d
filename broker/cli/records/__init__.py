"""Records on the command line: `frazil produce` and `frazil consume`, by librdkafka.

Speaks to agents over the network. Called by `broker.cli.main`.
"""
