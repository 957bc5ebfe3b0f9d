"""`frazil group`: consumer groups of any cluster over Kafka's protocol.

Speaks to agents over the network. Called by `broker.cli.main`; `broker.cli.topics` asks its tool for offsets.
"""
