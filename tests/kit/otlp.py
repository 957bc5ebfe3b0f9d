"""What clients push, made by the library of Protobuf from OTLP's schema: `payload(gauge("a.b", 1.5))`.

The messages are those of opentelemetry/proto (metrics/v1, common/v1, resource/v1), as far as clients of
Kafka use them, and some of what they do not.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DELTA: Final = 1
CUMULATIVE: Final = 2

_TYPES: Final = {
    "double": 1,
    "int64": 3,
    "fixed64": 6,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed64": 16,
}
_SCHEMA: Final = {
    "MetricsData": "1 *ResourceMetrics resource_metrics",
    "ResourceMetrics": "1 Resource resource; 2 *ScopeMetrics scope_metrics; 3 string schema_url",
    "Resource": "1 *KeyValue attributes",
    "ScopeMetrics": "1 Scope scope; 2 *Metric metrics; 3 string schema_url",
    "Scope": "1 string name; 2 string version",
    "Metric": "1 string name; 2 string description; 3 string unit; 5 Gauge gauge; 7 Sum sum;"
    " 9 Histogram histogram; 10 Untold exponential_histogram; 11 Untold summary",
    "Gauge": "1 *NumberDataPoint data_points",
    "Sum": "1 *NumberDataPoint data_points; 2 int64 aggregation_temporality; 3 bool is_monotonic",
    "Histogram": "1 *HistogramDataPoint data_points; 2 int64 aggregation_temporality",
    "Untold": "1 *NumberDataPoint data_points",
    "NumberDataPoint": "7 *KeyValue attributes; 2 fixed64 start_time_unix_nano;"
    " 3 fixed64 time_unix_nano; 4 ?double as_double; 6 ?sfixed64 as_int; 8 uint32 flags",
    "HistogramDataPoint": "9 *KeyValue attributes; 2 fixed64 start_time_unix_nano;"
    " 3 fixed64 time_unix_nano; 4 fixed64 count; 5 ?double sum; 6 *fixed64 bucket_counts;"
    " 7 *double explicit_bounds; 10 uint32 flags",
    "KeyValue": "1 string key; 2 AnyValue value",
    "AnyValue": "1 ?string string_value; 2 ?bool bool_value; 3 ?int64 int_value;"
    " 4 ?double double_value; 7 ?bytes bytes_value",
}
"""Number, type and name of each field; `*` is repeated, `?` says whether it is there."""


def _field(text: str) -> tuple[descriptor_pb2.FieldDescriptorProto, bool]:
    number, kind, name = text.split()
    field = descriptor_pb2.FieldDescriptorProto(name=name, number=int(number))
    repeated, optional = kind.startswith("*"), kind.startswith("?")
    kind = kind.strip("*?")
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if kind in _TYPES:
        field.type = _TYPES[kind]  # type: ignore[assignment]
    else:
        field.type, field.type_name = field.TYPE_MESSAGE, f".otlp.{kind}"
    return field, optional


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package="otlp", syntax="proto3")
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for text in fields.split(";"):
            field, optional = _field(text)
            if optional:
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
            message.field.append(field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL: Final = _pool()


def message(kind: str, /, **fields: Any) -> Any:
    """One of the schema's messages."""
    found = _POOL.FindMessageTypeByName(f"otlp.{kind}")
    return message_factory.GetMessageClass(found)(**fields)


def attributes(values: Mapping[str, Any]) -> list[Any]:
    kinds = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    kinds[bytes] = "bytes_value"
    return [
        message("KeyValue", key=key, value=message("AnyValue", **{kinds[type(value)]: value}))
        for key, value in values.items()
    ]


def number(value: float, flags: int = 0, **labels: Any) -> Any:
    """A point; a whole number is sent as one."""
    told = {"as_int": value} if isinstance(value, int) else {"as_double": value}
    return message("NumberDataPoint", attributes=attributes(labels), flags=flags, **told)


def gauge(name: str, value: float, **labels: Any) -> Any:
    return message(
        "Metric", name=name, gauge=message("Gauge", data_points=[number(value, **labels)])
    )


def total(name: str, *points: Any, temporality: int = DELTA, is_monotonic: bool = True) -> Any:
    """A sum of these points (`number`)."""
    told = {"aggregation_temporality": temporality, "is_monotonic": is_monotonic}
    return message("Metric", name=name, sum=message("Sum", data_points=points, **told))


def histogram(
    name: str,
    bounds: list[float],
    counts: list[int],
    sum_of_all: float,
    *,
    temporality: int = DELTA,
    **labels: Any,
) -> Any:
    point = message(
        "HistogramDataPoint",
        attributes=attributes(labels),
        explicit_bounds=bounds,
        bucket_counts=counts,
        count=sum(counts) % (1 << 64),
        sum=sum_of_all,
    )
    told = message("Histogram", data_points=[point], aggregation_temporality=temporality)
    return message("Metric", name=name, histogram=told)


def payload(*metrics: Any, **resource: Any) -> bytes:
    """MetricsData of one resource with these attributes."""
    scope = message("ScopeMetrics", scope=message("Scope", name="scope"), metrics=metrics)
    of_resource = message(
        "ResourceMetrics",
        resource=message("Resource", attributes=attributes(resource)),
        scope_metrics=[scope],
    )
    serialized: bytes = message("MetricsData", resource_metrics=[of_resource]).SerializeToString()
    return serialized
