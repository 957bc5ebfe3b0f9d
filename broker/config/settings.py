"""Settings of an agent: defaults < TOML file < environment < flags, parsed once, then frozen. Pure.

One table, `TABLE`, holds every name with its default, its parser and its sentence; the reference
in `docs/settings.md` is generated from it. All mistakes are reported together, each with where it
came from and the nearest right name. Kafka's own broker settings are taken under their own names
(`[kafka]` in the file, `--set`, `FRAZIL_KAFKA_…`) and judged by `broker.config.kafka_settings`.

Left out: reading files and the environment (the command line does), and opening anything.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.config import kafka_settings, values
from broker.config.kafka_settings import KafkaSettings
from coordinator.commands.entries import Listener
from coordinator.tables.incarnations import NODE_NAME_MAX

KiB = 1 << 10
MiB = 1 << 20
GiB = 1 << 30
LONG_MS = 10 * 365 * 86_400_000

STORE_SCHEMES = ("s3", "file", "memory")
LOG_SCHEMES = ("etcd", "etcds", "sqlite", "memory")
WILDCARD_HOSTS = ("0.0.0.0", "::", "*")  # noqa: S104 - Compared with, not bound to.

# Kubernetes puts the addresses of a service called "frazil" into the environment under names
# that look like ours; they are not settings.
_KUBERNETES_LINK = re.compile(r"FRAZIL_(.*_)?(SERVICE_(HOST|PORT.*)|PORT(_\d+_.*)?)")
_LISTENER = re.compile(
    r"(?:(?P<name>[A-Za-z][A-Za-z0-9_-]*)://)?"
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.*-]*)(?::(?P<port>[0-9]{1,5}))?"
)


class SettingsError(Exception):
    """The settings cannot be used. `mistakes` has a sentence for each reason."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = tuple(mistakes)


class Address(NamedTuple):
    """Host and port of a listener of ours; port 0 picks a free one."""

    host: str
    port: int


class NamedAddress(NamedTuple):
    """A Kafka listener: `INTERNAL://10.0.0.1:9092`; the name is PLAINTEXT when not given."""

    name: str
    host: str
    port: int | None
    """None (only when advertised): the port that is listened on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything an agent is told. Times in ms, sizes in bytes."""

    listen: tuple[NamedAddress, ...]
    advertise: tuple[NamedAddress, ...]
    http: Address | None
    cluster_id: str
    node_id: int
    """-1: the one this node name had, else the smallest free."""
    node_name: str
    """Empty: see `name_of`."""
    zone: str
    store_url: str
    store_endpoint: str | None
    store_region: str | None
    store_access_key: str | None
    store_secret_key: str | None = field(repr=False)
    store_ca: str | None
    store_path_style: bool | None
    """None: by the endpoint (path style for an endpoint of one's own)."""
    log_url: str
    log_user: str | None
    log_password: str | None = field(repr=False)
    log_ca: str | None
    log_cert: str | None
    log_key: str | None
    log_compact: bool
    log_bytes_max: int
    cache_bytes: int
    produce_buffer_bytes: int
    chunk_bytes_max: int
    linger_ms: int
    puts_per_second: int
    puts_in_flight_max: int
    lease_ttl_ms: int
    session_deadline_ms: int
    session_read_ms: int
    stall_ms: int
    drain_ms: int
    jobs_enabled: bool
    jobs_start_delay_ms: int
    jobs_bytes_per_second: int
    snapshot_interval_ms: int
    snapshot_log_bytes: int
    merge_interval_ms: int
    merge_age_ms: int
    segment_bytes_max: int
    spill_interval_ms: int
    spill_age_ms: int
    spill_rows: int
    collect_interval_ms: int
    logs_level: str
    logs_format: str
    registry_listen: tuple[Address, ...]
    registry_users: tuple[tuple[str, str], ...] = field(repr=False)
    """Names and passwords; none: nobody is asked."""
    kafka: KafkaSettings


class Setting(NamedTuple):
    """One row: a name, the field it fills, and how its text is read."""

    name: str
    field: str
    default: str
    parse: Callable[[str], Any]
    kind: str
    """What may be written, for the reference."""
    doc: str
    secret: bool = False


class Given(NamedTuple):
    """A value as somebody wrote it."""

    text: str
    origin: str
    """For messages: "frazil.toml", "FRAZIL_ZONE", "--set"."""


class Loaded(NamedTuple):
    settings: Settings
    warnings: tuple[str, ...]


def _text(text: str) -> str:
    return text.strip()


def _optional(text: str) -> str | None:
    return text.strip() or None


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip().lower() not in words:
            raise ValueError(f'"{text}" is none of {", ".join(words)}')
        return text.strip().lower()

    return parse


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text.strip()):
        raise ValueError(f'"{text}" is not a name: 1 to 100 of the characters a-z A-Z 0-9 . _ -')
    return text.strip()


def _optional_name(text: str) -> str:
    return _name(text) if text.strip() else ""


def _number(minimum: int, maximum: int) -> Callable[[str], int]:
    return lambda text: values.whole_number(text, minimum=minimum, maximum=maximum)


def _bytes(minimum: int, maximum: int) -> Callable[[str], int]:
    return lambda text: values.within(values.byte_count(text), minimum=minimum, maximum=maximum)


def _ms(minimum: int, maximum: int) -> Callable[[str], int]:
    return lambda text: values.within(values.milliseconds(text), minimum=minimum, maximum=maximum)


def _optional_boolean(text: str) -> bool | None:
    return None if text.strip().lower() in ("", "auto") else values.boolean(text)


def _url(*schemes: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        scheme, colon, _ = text.strip().partition("://")
        if text.strip() and (not colon or scheme not in schemes):
            examples = ", ".join(f"{scheme}://…" for scheme in schemes)
            raise ValueError(f'"{text}" is not one of {examples}')
        return text.strip()

    return parse


def _http_url(text: str) -> str | None:
    if text.strip() and not re.fullmatch(r"https?://[^\s/]+/?", text.strip()):
        raise ValueError(f'"{text}" is not an address like http://host:9000')
    return text.strip() or None


def _http_address(text: str) -> Address | None:
    if text.strip().lower() in ("", "off"):
        return None
    (address,) = _addresses(text) or (NamedAddress("", "", None),)
    if address.port is None:
        raise ValueError(f'"{text}" has no port (example: 127.0.0.1:9094)')
    return Address(address.host, address.port)


def _http_listeners(text: str) -> tuple[Address, ...]:
    """Confluent's `listeners`: `http://0.0.0.0:8081`, several with commas."""
    if text.strip().lower() in ("", "off"):
        return ()
    addresses = []
    for item in text.split(","):
        match = re.fullmatch(
            r"http://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.*-]*):([0-9]{1,5})/?", item.strip()
        )
        if match is None or int(match[2]) > 65535:
            raise ValueError(f'"{item.strip()}" is not an address (example: http://0.0.0.0:8081)')
        addresses.append(Address(match[1].strip("[]"), int(match[2])))
    return tuple(addresses)


def _users(text: str) -> tuple[tuple[str, str], ...]:
    users: dict[str, str] = {}
    for item in (item.strip() for item in text.split(",") if item.strip()):
        name, colon, password = item.partition(":")
        if not (name and colon and password) or name in users:
            raise ValueError("write it as name:password, several with commas")
        users[name] = password
    return tuple(users.items())


def _listeners(text: str) -> tuple[NamedAddress, ...]:
    addresses = _addresses(text)
    if not addresses:
        raise ValueError("is empty (example: 0.0.0.0:9092)")
    for address in addresses:
        if address.port is None:
            raise ValueError(f'"{address.host}" has no port (example: 0.0.0.0:9092)')
    return addresses


def _addresses(text: str) -> tuple[NamedAddress, ...]:
    addresses: list[NamedAddress] = []
    for item in (item.strip() for item in text.split(",") if item.strip()):
        match = _LISTENER.fullmatch(item)
        port = int(match["port"]) if match is not None and match["port"] else None
        if match is None or (port is not None and port > 65535):
            raise ValueError(f'"{item}" is not an address (examples: host:9092, NAME://host:9092)')
        name = (match["name"] or "PLAINTEXT").upper()
        if any(address.name == name for address in addresses):
            raise ValueError(f"two listeners are called {name}; put names before: NAME://host:9092")
        addresses.append(NamedAddress(name, match["host"].strip("[]"), port))
    return tuple(addresses)


_LEVELS = ("debug", "info", "warning", "error")

TABLE: tuple[Setting, ...] = (
    Setting("listen", "listen", "0.0.0.0:9092", _listeners, "addresses",
            "Where Kafka clients connect: `host:port`, or several `NAME://host:port` with commas."
            " Port 0 picks a free one."),
    Setting("advertise", "advertise", "", _addresses, "addresses",
            "What clients are told to connect to, by listener name. Without a port: the port"
            " listened on. Empty: the listen address, or this machine's name for 0.0.0.0."),
    Setting("http", "http", "127.0.0.1:9094", _http_address, "address or `off`",
            "Metrics, health and the exporter's endpoints. They ask for no password: do not open"
            " them to strangers."),
    Setting("cluster.id", "cluster_id", "frazil", _name, "name",
            "Name of the cluster; store and log are marked with it, and refused when it differs."),
    Setting("node.id", "node_id", "-1", _number(-1, (1 << 31) - 1), "number",
            "This agent's id in Kafka's protocol. -1: the one its name had, else a free one."),
    Setting("node.name", "node_name", "", _optional_name, "name",
            "This agent's name, kept over restarts: a new agent of a name replaces the old one."
            " Empty: the address that clients are told of the first listener, with the machine's"
            " name before it where that is loopback."),
    Setting("zone", "zone", "", _optional_name, "name",
            "Availability zone of this agent. Consumers whose client.rack it is are sent here by Fetch"
            " (KIP-392), and clients whose client.id says it (`app,zone=eu-1a`) by Metadata."),
    Setting("store", "store_url", "", _url(*STORE_SCHEMES), "URL",
            "Object storage: `s3://bucket/prefix` or `file:///directory`."),
    Setting("store.endpoint", "store_endpoint", "", _http_url, "URL",
            "S3 server other than Amazon's: `http://host:9000`."),
    Setting("store.region", "store_region", "", _optional, "text",
            "Region of the bucket; empty: from the environment's AWS configuration."),
    Setting("store.access.key", "store_access_key", "", _optional, "text",
            "Access key; empty: found as AWS tools do (environment, profile, web identity, role)."),
    Setting("store.secret.key", "store_secret_key", "", _optional, "text",
            "Secret of store.access.key.", secret=True),
    Setting("store.ca", "store_ca", "", _optional, "file",
            "Certificates (PEM) to trust for store.endpoint."),
    Setting("store.path.style", "store_path_style", "auto", _optional_boolean,
            "true, false or auto",
            "Bucket in the path instead of the host name; auto: yes with store.endpoint."),
    Setting("log", "log_url", "", _url(*LOG_SCHEMES), "URL",
            "Metadata log: `etcd://h1:2379,h2:2379/prefix`, or `sqlite:///file` for one agent."),
    Setting("log.user", "log_user", "", _optional, "text", "User of etcd."),
    Setting("log.password", "log_password", "", _optional, "text", "Password of log.user.",
            secret=True),
    Setting("log.ca", "log_ca", "", _optional, "file",
            "Certificates (PEM) to trust for etcd; switches TLS on."),
    Setting("log.cert", "log_cert", "", _optional, "file", "Client certificate (PEM) for etcd."),
    Setting("log.key", "log_key", "", _optional, "file", "Key (PEM) of log.cert."),
    Setting("log.compact", "log_compact", "true", values.boolean, "true or false",
            "Compact etcd's history after entries of the log were deleted; false when somebody else"
            " does it, or etcd is shared."),
    Setting("log.bytes.max", "log_bytes_max", "512MiB", _bytes(MiB, 1 << 40), "bytes",
            "Of the log since the older of two snapshots: beyond it, only jobs write, and clients"
            " are refused until the log was cut."),
    Setting("cache.bytes", "cache_bytes", "256MiB", _bytes(MiB, 1 << 44), "bytes",
            "Memory for chunks read and for records just written."),
    Setting("produce.buffer.bytes", "produce_buffer_bytes", "256MiB", _bytes(MiB, 1 << 44), "bytes",
            "Memory for records that wait to become durable; at the bound the agent stops reading"
            " from producers."),
    Setting("chunk.bytes", "chunk_bytes_max", "8MiB", _bytes(64 * KiB, GiB), "bytes",
            "A chunk is written when it has this size."),
    Setting("chunk.linger.ms", "linger_ms", "0", _ms(0, 60_000), "ms",
            "How long a chunk waits for more. 0: no longer than the write before it takes."),
    Setting("puts.per.second", "puts_per_second", "10", _number(1, 10_000), "number",
            "Objects per second that a lightly loaded agent may write (object stores charge per"
            " PUT); chunks of 64 KiB and more are not held back."),
    Setting("puts.in.flight", "puts_in_flight_max", "8", _number(1, 256), "number",
            "Objects being written at the same time."),
    Setting("lease.ttl.ms", "lease_ttl_ms", "3000", _ms(1000, 600_000), "ms",
            "How long the log keeps an agent's session without hearing from it: with session.read.ms"
            " it decides how soon other agents take over what a dead one coordinated."),
    Setting("session.deadline.ms", "session_deadline_ms", "2000", _ms(500, 600_000), "ms",
            "How long an agent itself trusts its session; must be less than lease.ttl.ms."),
    Setting("session.read.ms", "session_read_ms", "500", _ms(100, 600_000), "ms",
            "How often an agent asks the log whether its session lives."),
    Setting("stall.ms", "stall_ms", "1000", _ms(100, 600_000), "ms",
            "After a stall longer than this, changes that clients may have given up are refused."),
    Setting("drain.ms", "drain_ms", "10000", _ms(0, 600_000), "ms",
            "How long a leaving agent waits for requests under way."),
    Setting("jobs.enabled", "jobs_enabled", "true", values.boolean, "true or false",
            "Whether this agent may run the jobs that keep the cluster bounded (snapshots,"
            " retention, merging, compaction, collection). One agent of a cluster does."),
    Setting("jobs.start.delay.ms", "jobs_start_delay_ms", "60000", _ms(0, 86_400_000), "ms",
            "How long the agent that has them waits before it starts the process that runs them."),
    Setting("jobs.bytes.per.second", "jobs_bytes_per_second", "50MiB", _bytes(64 * KiB, 1 << 40),
            "bytes", "How much all jobs together read and write, per second."),
    Setting("snapshot.interval.ms", "snapshot_interval_ms", "600000", _ms(1000, 86_400_000), "ms",
            "A snapshot is made this often, if there is anything new."),
    Setting("snapshot.log.bytes", "snapshot_log_bytes", "128MiB", _bytes(64 * KiB, GiB), "bytes",
            "A snapshot is made after so much of the metadata log, however soon that is."),
    Setting("merge.interval.ms", "merge_interval_ms", "60000", _ms(1000, 86_400_000), "ms",
            "How often small spans of partitions are merged into segments."),
    Setting("merge.age.ms", "merge_age_ms", "60000", _ms(0, LONG_MS), "ms",
            "Only records older than this are merged."),
    Setting("segment.bytes.max", "segment_bytes_max", "8MiB", _bytes(64 * KiB, GiB), "bytes",
            "Of one partition's adjacent records in a segment, about: what a reader fetches at once."),
    Setting("spill.interval.ms", "spill_interval_ms", "60000", _ms(1000, 86_400_000), "ms",
            "How often is looked whether rows of partitions should leave the memory."),
    Setting("spill.age.ms", "spill_age_ms", "600000", _ms(0, LONG_MS), "ms",
            "Only rows of records older than this leave the memory."),
    Setting("spill.rows", "spill_rows", "2000000", _number(1000, 8_000_000), "number",
            "Rows of all partitions that agents keep in memory before the oldest leave it."),
    Setting("collect.interval.ms", "collect_interval_ms", "60000", _ms(1000, 86_400_000), "ms",
            "How often objects that nothing points at any more are deleted."),
    Setting("logs.level", "logs_level", "info", _one_of(*_LEVELS), " / ".join(_LEVELS),
            "What this agent writes to standard error."),
    Setting("logs.format", "logs_format", "text", _one_of("text", "json"), "text / json",
            "`key=value` lines, or a JSON object per line."),
    Setting("schema.registry.listeners", "registry_listen", "", _http_listeners, "addresses",
            "Where the embedded schema registry answers: `http://0.0.0.0:8081`, several with commas."
            " Empty: nowhere. All agents that have it answer alike."),
    Setting("schema.registry.basic.auth.user.info", "registry_users", "", _users,
            "name:password", "Who may use the schema registry, several with commas. Empty:"
            " everybody.", secret=True),
)  # fmt: skip
BY_NAME: dict[str, Setting] = {row.name: row for row in TABLE}

_ALIASES = {"store.url": "store", "log.url": "log"}
"""In TOML a name cannot be both a text and a table, so the tables spell it with `url`."""


def load(
    *,
    defaults: Mapping[str, str],
    toml: tuple[str, str] | None,
    environ: Mapping[str, str],
    flags: Sequence[str],
) -> Loaded:
    """Settings from all sources, later ones winning.

    `defaults` replaces the table's defaults (a command's own), `toml` is (file name, text),
    `flags` are the `name=value` of `--set`. Raises SettingsError with all mistakes.
    """
    mistakes: list[str] = []
    given = {name: Given(text, "default") for name, text in defaults.items()}
    if toml is not None:
        given |= _of_toml(*toml, mistakes)
    given |= _of_environ(environ)
    given |= _of_flags(flags, mistakes)
    ours, kafkas = _sort_out(given, mistakes)
    parsed = kafka_settings.parse({name: item.text for name, item in kafkas.items()})
    mistakes += parsed.mistakes
    fields: dict[str, Any] = {}
    for row in TABLE:
        item = ours.get(row.name, Given(row.default, "default"))
        try:
            fields[row.field] = row.parse(item.text)
        except ValueError as error:
            shown = "the value is not usable" if row.secret else error
            mistakes.append(f"{row.name} (from {item.origin}): {shown}")
    mistakes += _contradictions(fields, parsed.settings)
    if mistakes:
        raise SettingsError(mistakes)
    return Loaded(Settings(kafka=parsed.settings, **fields), tuple(parsed.warnings))


def advertised(
    settings: Settings, *, ports: Mapping[str, int], host_name: str
) -> tuple[Listener, ...]:
    """What clients are told, by listener: `ports` are the ones that were bound."""
    told = {address.name: address for address in settings.advertise}
    listeners = []
    for own in settings.listen:
        address = told.get(own.name, NamedAddress(own.name, own.host, None))
        host = address.host
        if not host or host in WILDCARD_HOSTS:
            host = host_name
        port = address.port or ports[own.name]
        listeners.append(Listener(own.name, host, port))
    return tuple(listeners)


def name_of(settings: Settings, *, listeners: Sequence[Listener], host_name: str) -> str:
    """The agent's name: as it was set, else where clients find it. An address of loopback says that
    only together with the machine's."""
    if settings.node_name:
        return settings.node_name
    _, host, port = listeners[0]
    name = f"{host}:{port}"
    if host in {"localhost", "::1"} or host.startswith("127."):
        name = f"{host_name}/{name}"
    return name[-NODE_NAME_MAX:]


def _contradictions(fields: Mapping[str, Any], kafka: KafkaSettings) -> list[str]:
    """Settings that are right one by one and wrong together, or needed and not there."""
    found = []
    if fields.get("store_url") == "":
        found.append("store is not set (examples: s3://bucket/prefix, file:///var/lib/frazil)")
    if fields.get("log_url") == "":
        found.append("log is not set (examples: etcd://host:2379/prefix, sqlite:///var/lib/f.db)")
    deadline, ttl = fields.get("session_deadline_ms"), fields.get("lease_ttl_ms")
    if deadline is not None and ttl is not None and deadline >= ttl:
        found.append(
            f"session.deadline.ms ({deadline}) must be less than lease.ttl.ms ({ttl}): an agent"
            " must know before the log does that its session may be gone"
        )
    elif deadline is not None and ttl is not None and deadline <= ttl // 3:
        found.append(
            f"session.deadline.ms ({deadline}) must be more than a third of lease.ttl.ms ({ttl}):"
            " the lease is renewed that often"
        )
    buffer, chunk = fields.get("produce_buffer_bytes"), fields.get("chunk_bytes_max")
    if buffer is not None and chunk is not None and buffer < 2 * chunk:
        found.append(
            f"produce.buffer.bytes ({buffer}) must be at least twice chunk.bytes ({chunk}):"
            " one chunk is filled while another is written"
        )
    if kafka.socket_request_max_bytes < kafka.message_max_bytes:
        found.append(
            f"socket.request.max.bytes ({kafka.socket_request_max_bytes}) must not be less than"
            f" message.max.bytes ({kafka.message_max_bytes})"
        )
    names = [address.name for address in fields.get("listen", ())]
    found.extend(
        f"advertise: no listener is called {address.name}; listen has {', '.join(names)}"
        for address in fields.get("advertise", ())
        if names and address.name not in names
    )
    return found


def _sort_out(
    given: Mapping[str, Given], mistakes: list[str]
) -> tuple[dict[str, Given], dict[str, Given]]:
    """Ours and Kafka's. A name without `kafka.` before it is ours first (node.id)."""
    ours: dict[str, Given] = {}
    kafkas: dict[str, Given] = {}
    for name, item in given.items():
        if name.startswith("kafka."):
            kafkas[name.removeprefix("kafka.")] = item
        elif name in BY_NAME:
            ours[name] = item
        elif name in kafka_settings.TABLE:
            kafkas[name] = item
        else:
            hint = values.did_you_mean(name, [*BY_NAME, *kafka_settings.TABLE])
            mistakes.append(f'there is no setting named "{name}" (from {item.origin}){hint}')
    return ours, kafkas


def _of_toml(file_name: str, text: str, mistakes: list[str]) -> dict[str, Given]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = ""
        if re.search(r"Cannot (overwrite|mutate)|Key.*already", str(error)):
            hint = ' (write "store.endpoint" in quotes, or use [store] with url)'
        # What the file would have said is not known, so there is nothing more to judge.
        raise SettingsError([f"{file_name} is not TOML: {error}{hint}"]) from error
    flat: dict[str, Given] = {}
    tables.pop("export", None)  # The exporter's own table; it judges it.
    for name, value in _flattened(tables, ""):
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, list):
            text = ",".join(str(item) for item in value)
        elif isinstance(value, str | int | float):
            text = str(value)
        else:
            mistakes.append(f"{name} (from {file_name}): {value!r} is neither text nor a number")
            continue
        # In the file Kafka's names belong under [kafka], so that a slip is not taken for one.
        if name in kafka_settings.TABLE and name not in BY_NAME:
            mistakes.append(f"{name} (from {file_name}): is Kafka's; put it under [kafka]")
            continue
        flat[_ALIASES.get(name, name)] = Given(text, file_name)
    return flat


def _flattened(table: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    """Leaves of nested tables, names joined by dots."""
    leaves: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            leaves += _flattened(value, f"{prefix}{key}.")
        else:
            leaves.append((f"{prefix}{key}", value))
    return leaves


def _of_environ(environ: Mapping[str, str]) -> dict[str, Given]:
    """`FRAZIL_CLUSTER_ID` is cluster.id, `FRAZIL_KAFKA_NUM_PARTITIONS` num.partitions."""
    flat = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith("FRAZIL_") or _KUBERNETES_LINK.fullmatch(variable):
            continue
        name = variable.removeprefix("FRAZIL_").lower().replace("_", ".")
        if name != "config":
            flat[_ALIASES.get(name, name)] = Given(text, variable)
    return flat


def _of_flags(flags: Sequence[str], mistakes: list[str]) -> dict[str, Given]:
    flat = {}
    for flag in flags:
        name, equals, text = flag.partition("=")
        if not equals or not name.strip():
            mistakes.append(f'--set {flag}: write it as "name=value"')
            continue
        flat[_ALIASES.get(name.strip(), name.strip())] = Given(text, "--set")
    return flat
