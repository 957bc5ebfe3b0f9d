"""`spark.read.format("frazil")`: topics as DataFrames, read from object storage, seconds old.

An agent is asked for one plan and for nothing else: executors read chunks themselves.
`read_options` and `filters` are pure; `planning` asks the agent and the catalog; `reading` is
what tasks do; `data_source` is what Spark sees. With a table, what is exported comes from the
table at one snapshot and the rest from chunks, so that each record is there once.

Left out: writing (produce to the topic), and tables in upsert mode (newest per key cannot be
told from a table and a log side by side without reading both whole). Called by Spark.
"""
