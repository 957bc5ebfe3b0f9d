"""Schemas of values: Avro, JSON Schema and Protobuf: text to trees, and bytes by them.

    avro            text -> types, fields, defaults
    json_schema     text -> JSON values, and where each $ref leads
    protobuf        text, or a descriptor in base64 -> descriptors; proto_text reads the language
    frames          which schema a key or value is of; the values themselves are looked at by
    avro_values, avro_read, avro_write, json_values, protobuf_values; json_readers: JSON of a value, whatever its schema

Pure, and the only parsers of the three languages. Called by the registry (`broker/registry`), which
makes canonical text of the trees and compares them, by the exporter (`iceberg_export/typed`), which
makes columns of them, and by the command line (`broker/cli/records`), which shows values as JSON.
Whatever is no schema is refused with a `SchemaError`.
"""


class SchemaError(ValueError):
    """A text is no schema of its kind, or none that serves. The message is one sentence."""
