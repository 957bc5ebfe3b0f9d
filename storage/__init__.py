"""Bytes in object storage: the chunk format, what goes into a chunk, what to read back.

The format, the accumulator and the fetch planner are pure; the `ObjectStore` port has a memory,
a local-disk and an S3 adapter; the writer, reader and cache are shells around them.
"""
