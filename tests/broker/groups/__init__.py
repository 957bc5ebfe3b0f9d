"""Groups through whole agents: their requests, their offsets, their administration."""
