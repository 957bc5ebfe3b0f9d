"""What is tried and told when something is wrong: an agent's advertised addresses, and what a code means.

Connects to agents. Called by `broker.cli.main` and `broker.cli.doctor`.
"""
