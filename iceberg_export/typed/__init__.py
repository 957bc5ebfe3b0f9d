"""Values and keys to typed columns: Avro, JSON and Protobuf, by the schemas of a registry.

`fields` says which columns a schema gives, `decode_values` makes them of a column of bytes and says
which records are poison and why. Everything here is pure and knows neither Spark nor Iceberg.
"""
