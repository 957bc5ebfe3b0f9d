"""Values and keys to typed columns: Avro, JSON and Protobuf, by the schemas of a registry.

`protocol.schemas` parses, `*_schema` gives types their columns. `fields` says which columns a
schema gives, `decode_values` makes them of a column of bytes and names the values that cannot be
decoded, and why. All of it is pure and knows neither Spark nor Iceberg, but for `registry_client`
and `topic_types`. Called by tasks, runs, dead_letters, verify and source.
"""
