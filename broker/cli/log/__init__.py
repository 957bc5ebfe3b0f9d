"""`frazil log`: the metadata log, as an agent tells it (`tail`), and what an operator does to it (`void`).

`void` reads and writes the log itself, since it is for clusters whose agents have all stopped. Called by
`broker.cli.main`.
"""
