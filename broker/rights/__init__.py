"""Who somebody is, and what they may do, as Kafka's authenticators and authorizer say it.

Pure; touches nothing of the agent. Called by `broker.edge`.
"""
