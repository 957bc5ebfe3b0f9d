"""Kafka on the wire: framing, the API table, messages, record batches, compression; schemas.

Pure: bytes in, values out. Nothing here waits, reads a clock or opens a socket, and nothing
here knows of chunks, logs or agents; but `fault_codes` has words about all of them, since every package
tells of some.
"""
