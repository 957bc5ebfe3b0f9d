"""Requests of every API and version as bytes, by Kafka's schemas: well-formed, but for what is meant to hurt.

How hostile a request is, is drawn once for it, so that many are wholly in order and get far. Values
come from what a cluster has (`Names`), by the name of their field, else from edges. Wrong are now and then: lengths,
nulls where none may be, elements many times over, tagged fields that nobody knows, ends.
"""

import functools
import random
import struct
from collections.abc import Sequence
from typing import NamedTuple

from protocol import apis
from protocol.consumer_protocol import Subscription, write_assignment, write_subscription
from protocol.framing import request_frame
from protocol.primitives import array_count, nullable_string, uvarint
from tests.fuzz import batches
from tests.fuzz.mutation import edge
from tests.protocol import kio_schemas as schemas
from tests.protocol.kio_schemas import Field

VERSIONS = [
    (api.key, version)
    for api in apis.APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    if apis.is_served(api.key, version)
]
TEXTS = [
    *(
        "",
        "t",
        "a",
        ".",
        "..",
        "a" * 249,
        "a" * 250,
        "x" * 4000,
        "é",
        "日本",
        "\0",
        "a b",
        "\n\x1b[31m",
        "%s",
    ),
    *(
        "\U0001d54f",
        "\ufeff",
        "__consumer_offsets",
        "t.t",
        "t_t",
        "-1",
        "NaN",
        "true",
        "{}",
        "9" * 400,
    ),
]
CONFIGS = [
    *("retention.ms", "retention.bytes", "max.message.bytes", "cleanup.policy", "compression.type"),
    *(
        "message.timestamp.type",
        "segment.ms",
        "min.insync.replicas",
        "delete.retention.ms",
        "log.retention.ms",
    ),
    *(
        "consumer.session.timeout.ms",
        "message.timestamp.after.max.ms",
        "max.compaction.lag.ms",
        "nothing",
    ),
]
VALUES = ["-1", "0", "1", "1000", "compact", "delete", "compact,delete", "zstd", "gzip", "producer"]
VALUES += ["LogAppendTime", "CreateTime", str((1 << 63) - 1), "1e3", "", "9" * 5000]
PATTERNS = ["t.*", ".*", "(a+)+$", "[", "a{1000}", "a{1000000}", "(" * 200, "\\p{L}+", "t|" * 500]
DURATIONS = [0, 1, 100, 1000, 10_000, 45_000]


class Names(NamedTuple):
    """What there is in a cluster."""

    topics: Sequence[str] = ("t", "logs", "compacted")
    topic_ids: Sequence[bytes] = (bytes(16),)
    groups: Sequence[str] = ("classic", "modern", "empty", "fresh")
    members: Sequence[str] = ("",)
    transactional_ids: Sequence[str] = ("begun", "idle", "fresh")
    producers: Sequence[int] = (0, 1, 2)
    node_ids: Sequence[int] = (0, 1)


class Writer:
    """One request. `hostility`: how often a value is an odd one, 0 to 1."""

    def __init__(self, rng: random.Random, names: Names, *, hostility: float) -> None:
        self.rng = rng
        self.names = names
        self.hostility = hostility

    def request(self, key: int, version: int) -> bytes:
        """The body."""
        self.key, self.flexible = key, apis.is_flexible(key, version)
        out = bytearray()
        self._struct(out, schemas.message_class(apis.APIS[key].name, version, "Request"), 0)
        if self._hostile(0.1):
            del out[self.rng.randrange(len(out) + 1) :]
        if self._hostile(0.1):
            out += self.rng.randbytes(self.rng.randrange(20))
        return bytes(out)

    def frame(self, key: int, version: int, number: int) -> bytes:
        """The whole of it, with its length."""
        client_id = None if self._hostile(0.3) else self._text("client_id", ["client"])
        return request_frame(key, version, number, client_id, self.request(key, version))

    def _hostile(self, times: float = 1.0) -> bool:
        return self.rng.random() < self.hostility * times

    def _struct(self, out: bytearray, shape: type, depth: int) -> None:
        tagged: list[tuple[int, bytes]] = []
        for field in _fields(shape):
            if field.tag is None:
                self._field(out, field, shape, depth)
            elif self.rng.random() < 0.5:
                inner = bytearray()
                self._field(inner, field, shape, depth)
                tagged.append((field.tag, bytes(inner)))
        if self.flexible:
            self._tagged(out, tagged)

    def _tagged(self, out: bytearray, tagged: list[tuple[int, bytes]]) -> None:
        if self._hostile(0.2):
            size = self.rng.choice((0, 1, 5, 200))
            tagged.append(
                (self.rng.choice((0, 1, 99, 9999, (1 << 31) - 1)), self.rng.randbytes(size))
            )
        if tagged and self._hostile(0.2):
            tagged.append(self.rng.choice(tagged))
        out += uvarint(len(tagged) if not self._hostile(0.05) else self._lie(len(tagged)))
        for tag, value in tagged:
            out += uvarint(tag) + uvarint(len(value) if not self._hostile(0.05) else self._lie(1))
            out += value

    def _lie(self, count: int) -> int:
        return self.rng.choice((count + 1, 0, 127, 1 << 16, (1 << 31) - 1, (1 << 32) - 1))

    def _count(self, out: bytearray, count: int) -> None:
        if self._hostile(0.05):
            lie = self._lie(count)
            out += uvarint(lie) if self.flexible else struct.pack(">I", lie)
        else:
            out += array_count(count, flexible=self.flexible)

    def _field(self, out: bytearray, field: Field, shape: type, depth: int) -> None:
        rng = self.rng
        if field.is_array:
            if (field.is_nullable and rng.random() < 0.15) or self._hostile(0.05):
                out += array_count(-1, flexible=self.flexible)
                return
            count = rng.choice((0, 1, 1, 1, 2, 3))
            elements = [self._element(field, shape, depth) for _ in range(count)]
            if elements and self._hostile(0.3):
                elements += [rng.choice(elements)] * rng.choice((1, 2, 10, 300 >> 2 * depth))
            self._count(out, len(elements))
            out += b"".join(elements)
            return
        out += self._element(field, shape, depth)

    def _element(self, field: Field, shape: type, depth: int) -> bytes:
        out = bytearray()
        if field.struct is not None:
            if field.is_nullable and not field.is_array:
                if self.rng.random() < 0.5:
                    return b"\xff"
                out += b"\x01"
            self._struct(out, field.struct, depth + 1)
            return bytes(out)
        match field.kafka_type:
            case "string":
                return self._string(field, shape)
            case "bytes" | "records":
                data = self._bytes(field)
                self._count(out, len(data))
                return bytes(out + data)
            case "uuid":
                known = self.rng.random() < 0.9
                return self.rng.choice(self.names.topic_ids) if known else self.rng.randbytes(16)
            case "bool":
                return bytes((self.rng.choice((0, 1)) if not self._hostile() else 0xFF,))
            case "float64":
                return struct.pack(
                    ">d", self.rng.choice(_FLOATS if self._hostile() else _FLOATS[:3])
                )
            case kind:
                assert kind is not None
                return self._number(field.name, _BITS[kind], unsigned=kind == "uint16")

    def _number(self, name: str, bits: int, *, unsigned: bool) -> bytes:
        value = edge(self.rng, bits) if self._hostile() else self._known_number(name)
        size = bits // 8
        value %= 1 << bits
        if not unsigned and value >> bits - 1:
            value -= 1 << bits
        return value.to_bytes(size, "big", signed=not unsigned)

    def _known_number(self, name: str) -> int:
        choice, names = self.rng.choice, self.names
        if name.endswith("_ms"):
            return choice(DURATIONS)
        if name == "producer_id":
            return choice(names.producers)
        if "node" in name or "broker" in name or name in ("partition_leader_epoch", "replica_id"):
            return choice((-1, *names.node_ids))
        if name in _KNOWN:
            return choice(_KNOWN[name])
        if "bytes" in name:
            return choice((0, 1, 1000, 1 << 20, (1 << 31) - 1))
        return choice((0, 0, 1, 2, 3, -1))

    def _string(self, field: Field, shape: type) -> bytes:
        if (field.is_nullable and not field.is_array and self.rng.random() < 0.3) or self._hostile(
            0.03
        ):
            return nullable_string(None, flexible=self.flexible)
        text = self._text(field.name, self._known_texts(field.name, shape.__name__))
        data = text.encode()[: (1 << 15) - 1]
        if self._hostile(0.05):
            data += self.rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80"))
        length = (
            len(data) if not self._hostile(0.03) else len(data) + self.rng.choice((1, 100, 30_000))
        )
        return (
            uvarint(length + 1) if self.flexible else struct.pack(">h", min(length, 32767))
        ) + data

    def _text(self, _name: str, known: Sequence[str]) -> str:
        return self.rng.choice(TEXTS if self._hostile() else known)

    def _known_texts(self, name: str, shape: str) -> Sequence[str]:
        names = self.names
        if name in _TEXTS_OF:
            return _TEXTS_OF[name]
        if ("group" in name and "instance" not in name) or name in ("key", "coordinator_keys"):
            return [*names.groups, *names.transactional_ids]
        if "transactional" in name:
            return names.transactional_ids
        if name in ("resource_name", "resource_pattern"):
            return [*names.topics, *names.groups, "0", ""]
        if "member" in name:
            return names.members
        if name == "name" and "Protocol" in shape:
            return ["range", "cooperative-sticky"]
        if name == "name" and "Config" in shape:
            return CONFIGS
        return names.topics if "topic" in name or name == "name" else TEXTS

    def _bytes(self, field: Field) -> bytes:
        if field.kafka_type == "records":
            return batches.generate(
                self.rng, hostility=self.hostility, producers=self.names.producers
            )
        if self._hostile():
            return self.rng.randbytes(self.rng.choice((0, 1, 30, 1000)))
        topics = self.rng.sample(self.names.topics, self.rng.randrange(len(self.names.topics) + 1))
        if field.name == "assignment":
            return write_assignment({topic: [0, 1] for topic in topics})
        return write_subscription(Subscription(topics, None, {}))


def generated(rng: random.Random, names: Names, key: int, version: int, number: int) -> bytes:
    """The frame of a request, with its length."""
    hostility = rng.choice((0.0, 0.02, 0.02, 0.1, 0.4))
    return Writer(rng, names, hostility=hostility).frame(key, version, number)


@functools.cache
def _fields(shape: type) -> list[Field]:
    return schemas.fields(shape)


_BITS = {
    "int8": 8,
    "int16": 16,
    "uint16": 16,
    "int32": 32,
    "int64": 64,
    "error_code": 16,
    "timedelta_i32": 32,
    "timedelta_i64": 64,
    "datetime_i64": 64,
}
_FLOATS = (1.0, 0.5, 1024.0, 0.0, -1.0, 5e-324, 1e308, float("inf"), float("nan"))
_KNOWN: dict[str, Sequence[int]] = {
    "acks": (-1, -1, 1, 0),
    "producer_epoch": (0, 0, 1, -1),
    "generation_id": (1, 1, 2, -1),
    "generation_id_or_member_epoch": (1, 2, -1),
    "member_epoch": (0, 1, 2, -1, -2),
    "fetch_offset": (0, 0, 1, 3, -1),
    "committed_offset": (0, 1, 5, -1),
    "timestamp_ms": (-1, -2, 0, 1_700_000_000_000),
    "session_id": (0, 1, 2),
    "session_epoch": (-1, 0, 1, 2),
    "resource_type": (2, 2, 4, 32, 0),
    "replication_factor": (-1, 1, 1, 3),
    "num_partitions": (-1, 1, 2, 5),
    "count": (1, 2, 4, 8),
    "config_operation": (0, 1, 2, 3),
    "key_type": (0, 1, 2),
    "isolation_level": (0, 1),
    "partition": (0, 0, 1, 2, -1),
    "partition_index": (0, 0, 1, 2, -1),
    "index": (0, 0, 1, 2),
    "partitions": (0, 1, 2),
    "response_partition_limit": (1, 2, 2000),
    "resource_pattern_type": (3, 3, 4),
    "pattern_type_filter": (1, 2, 3, 4),
    "resource_type_filter": (1, 2, 3, 4, 5),
    "permission_type": (2, 3, 3, 1),
    "mechanism": (1, 2, 2, 0),
    "iterations": (4096, 8192, 1, 16384),
}
_TEXTS_OF: dict[str, Sequence[str]] = {
    "protocol_type": ["consumer", "connect", ""],
    "protocol_name": ["range", "cooperative-sticky"],
    "group_instance_id": ["static", "other"],
    "instance_id": ["static", "other"],
    "server_assignor": ["uniform", "range", "none"],
    "subscribed_topic_regex": PATTERNS,
    "states_filter": ["Empty", "Stable", "Dead", "nothing"],
    "types_filter": ["classic", "consumer", "nothing"],
    "transactional_id_pattern": PATTERNS,
    "value": VALUES,
    "configuration_keys": CONFIGS,
    "client_software_name": ["a-client", "a client!"],
    "client_software_version": ["1", "1.0.0", "ü"],
    "feature": ["metadata.version", "group.version", "transaction.version", "none"],
    "reason": ["why", ""],
    "metadata": ["", "said", "m" * 5000],
    "rack_id": ["", "zone"],
    "principal": ["User:alice", "User:*", "User:bob", "Group:x", "alice"],
    "principal_filter": ["User:alice", "User:*", ""],
    "host": ["*", "127.0.0.1", "::1"],
    "host_filter": ["*", "127.0.0.1"],
    "mechanism": ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "GSSAPI"],
}
