"""How Frazil's own tools reach a cluster: Kafka's settings of clients, TLS on the client's side, tokens.

Settings are values; only contexts of OpenSSL touch files, and `bearer_tokens` asks who issues tokens. Called
by `broker.cli`.
"""
