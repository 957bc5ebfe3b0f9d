"""Kafka on the wire: framing, the API table, messages, record batches, compression; schemas.

Pure: bytes in, values out. Nothing here waits, reads a clock or opens a socket, and nothing
here knows of chunks, logs or agents.
"""
