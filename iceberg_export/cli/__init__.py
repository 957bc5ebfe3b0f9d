"""The command line of the exporter, `frazil export`: arguments to calls, errors to one sentence.

Called by `iceberg_export.__main__` and by nobody else.
"""
