"""The agent: settings, composition, the Kafka listener, handlers, admin HTTP, command line.

Everything meets here and nothing imports it.
"""
