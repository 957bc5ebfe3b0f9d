"""Schemas of values: Avro, JSON Schema and Protobuf, text to trees.

    avro            text -> types, fields, defaults
    json_schema     text -> JSON values, and where each $ref leads
    protobuf        text, or a descriptor in base64 -> descriptors; proto_text reads the language

Pure, and the only parsers of the three languages. Called by the registry (`broker/registry`), which
makes canonical text of the trees and compares them, and by the exporter (`iceberg_export/typed`),
which makes columns of them.
Whatever is no schema is refused with a `SchemaError`.
"""


class SchemaError(ValueError):
    """A text is no schema of its kind, or none that serves. The message is one sentence."""
