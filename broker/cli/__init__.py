"""The command line: `frazil dev`, `serve`, and the tools, which speak to agents over the network.

Touches terminals, sockets and processes. Called by `broker.__main__` and by nobody else.
"""
