"""How Frazil's own tools reach a cluster: Kafka's settings of clients, and TLS on the client's side.

Settings are values; only contexts of OpenSSL touch files. Called by `broker.cli`.
"""
