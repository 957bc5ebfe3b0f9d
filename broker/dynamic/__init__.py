"""What of an agent changes while it runs: settings of Kafka's (KIP-226), and levels of loggers (KIP-412).

Settings are set in the log (`coordinator.tables.administration.dynamic_configs`), levels in the process.
Touches configs and the tables of the log. Called by composition, handlers and the worker of the jobs.
"""
