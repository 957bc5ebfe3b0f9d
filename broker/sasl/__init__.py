"""SASL (RFC 4422): the mechanisms, and the states of a connection that has to authenticate itself.

Pure: bytes in, bytes out or a refusal; time, chance and users are arguments; but for `key_sets`, which
fetches the keys of token issuers, and `decisions`, which has a thread. It may touch settings and the
tables of credentials and delegation tokens. Called by `broker.edge` for connections, by `broker.handlers` for the APIs,
and by `broker.cli` to make users.
"""
