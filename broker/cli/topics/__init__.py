"""`frazil topic`: topics of any cluster over Kafka's protocol, where their records lie, and project files.

Speaks to agents over the network. Called by `broker.cli.main` and `broker.cli.agent_arguments`.
"""
