"""Formats of objects: chunks, segments, index objects, pages, archives of the log, checkpoints and
the marker, as bytes.

Pure but for `cluster_identity`, which reads and writes the one object it describes. Bytes that are stored
stay readable: each format carries its version. Called by the writer and the reader, by the
metadata log for its rows, by the jobs and by the exporter.
"""
