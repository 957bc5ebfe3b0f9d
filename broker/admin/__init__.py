"""The admin listener: metrics, health, and what operators and the exporter ask, over HTTP.

Touches sockets. Called by the composition root; reads everything and changes next to nothing.
"""
