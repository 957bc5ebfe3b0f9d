"""`frazil schema`: subjects, schemas and rules of a schema registry, Frazil's or Confluent's, by its REST API.

Speaks to registries over HTTP. Called by `broker.cli.main`, and by `broker.cli.records` for the schemas of records.
"""
