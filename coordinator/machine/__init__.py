"""The machine: all tables together, and the appliers of commands that change several of them.

Pure: a function of the log alone, the same on every agent. Called by the replica, which applies
entries; read by handlers, jobs and the exporter's plans (`plan_view`).
"""
