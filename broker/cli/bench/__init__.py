"""`frazil bench`: what a cluster takes and gives, as clients of librdkafka see it, in a minute.

Starts processes and speaks to agents over the network. Called by `broker.cli.main`.
"""
