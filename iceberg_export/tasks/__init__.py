"""What Spark's tasks do: one split each, from chunks to data files.

The only room that names Spark, but for the data source. Called by runs and verification.
"""
