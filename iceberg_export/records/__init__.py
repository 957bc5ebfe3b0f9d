"""Records out of chunks: bytes read, batches decoded by compiled code, rows with their offsets.

`read_chunks` touches the object store. Called by tasks, verification and the data source.
"""
