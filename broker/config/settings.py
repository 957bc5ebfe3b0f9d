"""Settings of an agent: defaults < file < environment < flags, parsed once, then frozen. Pure.

A field of `Settings` is the row of a setting: its name, its default, its type and its sentence. What
may be written, what is checked, and the reference in `docs/settings.md` follow from it. All mistakes
are reported together, each with where it came from and the nearest right name. Kafka's own broker
settings are taken under their own names (`[kafka]` in the file, `--set`, `FRAZIL_KAFKA_…`) and judged
by `broker.config.kafka_settings`.

Left out: reading files and the environment (the command line does), and opening anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

from broker.config import kafka_settings, listeners, sources, values
from broker.config.addresses import WILDCARD_HOSTS, Address, NamedAddress
from broker.config.first_users import FirstUser
from broker.config.kafka_settings import KafkaSettings
from broker.config.listeners import HttpListenerSettings, ListenerSettings
from broker.config.sources import Given
from broker.config.value_types import (
    ADDRESS_OR_OFF,
    ADDRESSES,
    BOOLEAN,
    BOOLEAN_OR_AUTO,
    FILE,
    FIRST_USERS,
    HOST_NAMES,
    HTTP_ENDPOINT,
    HTTP_HEADERS,
    HTTP_LISTENERS,
    HTTP_URL,
    LISTENERS,
    NAME,
    NODE_COUNT,
    OPTIONAL_NAME,
    PRINCIPALS,
    TEXT,
    TOKEN,
    TOKEN_FILES,
    USERS,
    WORKERS,
    ValueType,
    byte_count,
    milliseconds,
    number,
    number_or_auto,
    one_of,
    tokens_in,
    url,
)
from broker.config.values import SettingsError
from coordinator.commands.entries import Listener
from coordinator.snapshot.keeping import RETENTION_MS_MAX
from coordinator.tables.incarnations import NODE_NAME_MAX

T = TypeVar("T")

KiB = 1 << 10
MiB = 1 << 20
GiB = 1 << 30
LONG_MS = 10 * 365 * 86_400_000

STORE_SCHEMES = ("s3", "file", "memory")
LOG_SCHEMES = ("etcd", "etcds", "sqlite", "memory")
ONE_AGENT = ("sqlite:", "memory:")
"""What URLs of logs and stores begin with that only one process can have."""


class Setting(NamedTuple):
    """One row."""

    name: str
    default: str
    type: ValueType[Any]
    doc: str
    secret: bool


def _setting(
    name: str, default: str, value_type: ValueType[T], doc: str, *, secret: bool = False
) -> T:
    """A field of `Settings`."""
    row = Setting(name, default, value_type, doc, secret)
    return field(default=value_type.parse(default), repr=not secret, metadata={"row": row})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything an agent is told, a row each. Times in ms, sizes in bytes.

    None is what was left empty, `off` or `auto`.
    """

    # fmt: off
    listen: tuple[NamedAddress, ...] = _setting("listen", "0.0.0.0:9092", LISTENERS,
        "Where Kafka clients connect: `host:port`, or several `NAME://host:port` with commas."
        " Port 0 picks a free one. All are PLAINTEXT; for TLS set Kafka's `listeners` instead.")
    advertise: tuple[NamedAddress, ...] = _setting("advertise", "", ADDRESSES,
        "What clients are told to connect to, by listener name. Without a port: the port"
        " listened on. Empty: the listen address, or this machine's name for 0.0.0.0.")
    http: Address | None = _setting("http", "127.0.0.1:9094", ADDRESS_OR_OFF,
        "Metrics, health, and what the exporter and `frazil job` ask; with TLS `https://host:port`."
        " Bound to anything but loopback it answers health and metrics only, unless http.token,"
        " http.token.file or http.roles.… is set.")
    http_token: str | None = _setting("http.token", "", TOKEN,
        "Who says it (`Authorization: Bearer …`) may ask the http listener for all there is. Empty:"
        " whoever is on this machine may, where http is bound to loopback.", secret=True)
    http_token_file: str | None = _setting("http.token.file", "", FILE,
        "A file that has http.token in it, as Kubernetes mounts secrets; each line is one. It is read"
        " again when it changes.")
    http_tokens: tuple[tuple[str, str], ...] = _setting("http.tokens", "", TOKEN_FILES,
        "Users of the http listener that say a token: `name:file`, several with commas. Files are"
        " as http.token.file.")
    http_roles_exporter: frozenset[str] = _setting("http.roles.exporter", "", PRINCIPALS,
        "Who may ask the http listener what exporters ask: `User:name`, several with semicolons.")
    http_roles_metrics: frozenset[str] = _setting("http.roles.metrics", "", PRINCIPALS,
        "Who may ask for metrics. Empty: whoever reaches the http listener.")
    http_roles_operator: frozenset[str] = _setting("http.roles.operator", "", PRINCIPALS,
        "Who may ask the http listener for all there is, as whoever says http.token.")
    http_roles_reader: frozenset[str] = _setting("http.roles.reader", "", PRINCIPALS,
        "Who may look at the console and at records in it. Where there is an authorizer, it takes the right to"
        " READ a topic besides, as for operators.")
    http_roles_viewer: frozenset[str] = _setting("http.roles.viewer", "", PRINCIPALS,
        "Who may look at the console, which shows topics, groups and transactions, and change nothing.")
    http_hosts: tuple[str, ...] = _setting("http.hosts", "", HOST_NAMES,
        "Names by which HTTP clients may call this agent (Host), besides addresses, localhost, names"
        " without a dot, Kubernetes' names (`….svc`) and those of its listeners: of an ingress, for"
        " example. `*.name` is all below a name, `*` any, which lets web pages in.")
    http_connections_max: int = _setting("http.connections.max", "500", number(1, 100_000),
        "Of each HTTP listener; at most a sixteenth of the descriptors that the process may have.")
    cluster_id: str = _setting("cluster.id", "frazil", NAME,
        "Name of the cluster; store and log are marked with it, and refused when it differs.")
    node_id: int = _setting("node.id", "-1", number(-1, (1 << 31) - 1),
        "This agent's id in Kafka's protocol. -1: the one its name had, else a free one.")
    node_name: str = _setting("node.name", "", OPTIONAL_NAME,
        "This agent's name, kept over restarts: a new agent of a name replaces the old one."
        " Empty: the address that clients are told of the first listener, with the machine's name"
        " before it where that is loopback.")
    workers: int | None = _setting("workers", "1", WORKERS,
        "Processes of `frazil serve`, each of them an agent; auto: one a core. cache.bytes,"
        " produce.buffer.bytes and telemetry.metrics.bytes are of all of them together.")
    workers_port_step: int = _setting("workers.port.step", "100", number(1, 10_000),
        "Of several workers the first is told to clients with the port of a listener and this (9192),"
        " the second with twice this (9292), …: there each is reached alone, at the port itself any.")
    nodes_per_agent: int = _setting(listeners.NODES_SETTING, listeners.NODES_DEFAULT, NODE_COUNT,
        "As how many brokers producers of librdkafka are shown this agent. They have one partition in"
        " a request, and five requests open per broker: a connection to each lets more of many"
        " partitions be under way. Below `listener.name.<name>.` it is of one listener.")
    zone: str = _setting("zone", "", OPTIONAL_NAME,
        "Availability zone of this agent. Consumers whose client.rack it is are sent here by"
        " Fetch (KIP-392), and clients whose client.id says it (`app,zone=eu-1a`) by Metadata.")
    store_url: str = _setting("store", "", url(*STORE_SCHEMES),
        "Object storage: `s3://bucket/prefix` or `file:///directory`.")
    store_endpoint: str | None = _setting("store.endpoint", "", HTTP_URL,
        "S3 server other than Amazon's: `http://host:9000`.")
    store_region: str | None = _setting("store.region", "", TEXT,
        "Region of the bucket; empty: from the environment's AWS configuration.")
    store_access_key: str | None = _setting("store.access.key", "", TEXT,
        "Access key; empty: found as AWS tools do (environment, profile, web identity, role).")
    store_secret_key: str | None = _setting("store.secret.key", "", TEXT,
        "Secret of store.access.key.", secret=True)
    store_ca: str | None = _setting("store.ca", "", FILE,
        "Certificates (PEM) to trust for store.endpoint.")
    store_path_style: bool | None = _setting("store.path.style", "auto", BOOLEAN_OR_AUTO,
        "Bucket in the path instead of the host name; auto: yes with store.endpoint.")
    log_url: str = _setting("log", "", url(*LOG_SCHEMES),
        "Metadata log: `etcd://h1:2379,h2:2379/prefix`, or `sqlite:///file` for one agent.")
    log_user: str | None = _setting("log.user", "", TEXT, "User of etcd.")
    log_password: str | None = _setting("log.password", "", TEXT,
        "Password of log.user.", secret=True)
    log_password_file: str | None = _setting("log.password.file", "", FILE,
        "File with the password of log.user in one line; read again when it changes.")
    log_ca: str | None = _setting("log.ca", "", FILE,
        "Certificates (PEM) to trust for etcd; switches TLS on.")
    log_cert: str | None = _setting("log.cert", "", FILE, "Client certificate (PEM) for etcd.")
    log_key: str | None = _setting("log.key", "", FILE, "Key (PEM) of log.cert.")
    log_compact: bool = _setting("log.compact", "true", BOOLEAN,
        "Compact etcd's history after entries of the log were deleted; false when somebody else"
        " does it, or etcd is shared.")
    log_bytes_max: int = _setting("log.bytes.max", "512MiB", byte_count(MiB, 1 << 40),
        "Of the log since the older of two snapshots: beyond it, only jobs write, and clients"
        " are refused until the log was cut.")
    cache_bytes: int = _setting("cache.bytes", "256MiB", byte_count(MiB, 1 << 44),
        "Memory for chunks read and for records just written.")
    produce_buffer_bytes: int = _setting("produce.buffer.bytes", "256MiB", byte_count(MiB, 1 << 44),
        "Memory for records that wait to become durable; at the bound the agent stops reading"
        " from producers.")
    chunk_bytes_max: int = _setting("chunk.bytes", "8MiB", byte_count(64 * KiB, GiB),
        "A chunk is written when it has this size.")
    linger_ms: int = _setting("chunk.linger.ms", "0", milliseconds(0, 60_000),
        "How long a chunk waits for more. 0: no longer than the write before it takes.")
    puts_per_second: int | None = _setting("puts.per.second", "auto", number_or_auto(1, 10_000),
        "Objects per second that a lightly loaded agent may write; chunks of 64 KiB and more are"
        " not held back. auto: 10 on s3://, where each costs money, and 250 in a folder.")
    puts_in_flight_max: int = _setting("puts.in.flight", "8", number(1, 256),
        "Objects being written at the same time.")
    lease_ttl_ms: int = _setting("lease.ttl.ms", "3000", milliseconds(1000, 600_000),
        "How long the log keeps an agent's session without hearing from it: with session.read.ms"
        " it decides how soon other agents take over what a dead one coordinated.")
    session_deadline_ms: int = _setting("session.deadline.ms", "2000", milliseconds(500, 600_000),
        "How long an agent itself trusts its session; must be less than lease.ttl.ms.")
    session_read_ms: int = _setting("session.read.ms", "500", milliseconds(100, 600_000),
        "How often an agent asks the log whether its session lives.")
    stall_ms: int = _setting("stall.ms", "1000", milliseconds(100, 600_000),
        "After a stall longer than this, changes that clients may have given up are refused.")
    drain_ms: int = _setting("drain.ms", "10000", milliseconds(0, 600_000),
        "How long a leaving agent waits for requests under way.")
    jobs_enabled: bool = _setting("jobs.enabled", "true", BOOLEAN,
        "Whether this agent may run the jobs that keep the cluster bounded (snapshots,"
        " retention, merging, compaction, collection). One agent of a cluster does.")
    jobs_start_delay_ms: int = _setting("jobs.start.delay.ms", "60000", milliseconds(0, 86_400_000),
        "How long the agent that has them waits before it begins with them, unless one is asked for. The"
        " archive of the log does not wait.")
    jobs_bytes_per_second: int = _setting("jobs.bytes.per.second", "50MiB",
        byte_count(64 * KiB, 1 << 40),
        "How much all jobs together read and write, per second.")
    jobs_memory_bytes: int = _setting("jobs.memory.bytes", "0", byte_count(0, 1 << 44),
        "What the process that runs the jobs may take; it gives up before, and another agent has the jobs."
        " 0: what the memory limit of its cgroup leaves beside the agent, or the machine's memory does.")
    snapshot_interval_ms: int = _setting("snapshot.interval.ms", "600000", milliseconds(1000, 86_400_000),
        "A snapshot is made this often, if there is anything new.")
    snapshot_log_bytes: int = _setting("snapshot.log.bytes", "128MiB", byte_count(64 * KiB, GiB),
        "A snapshot is made after so much of the metadata log, however soon that is; sooner when that"
        " is more than the newest snapshot, and 8 MiB, counting 256 bytes for an entry besides its own.")
    log_archive_ms: int = _setting("log.archive.ms", "1000", milliseconds(0, 600_000),
        "How often, at most, what the metadata log has got is put into the object store, too: so much is"
        " lost, at most, when the log is. 0: never, and what came after the newest snapshot is lost.")
    snapshot_retention_ms: int = _setting("snapshot.retention.ms", "0", milliseconds(0, RETENTION_MS_MAX),
        "How long snapshots are kept to go back to, with all that they point at: six of the last hour, one"
        " an hour for a day, four a day beyond, up to 30 days. 0: only the two newest.")
    merge_interval_ms: int = _setting("merge.interval.ms", "60000", milliseconds(1000, 86_400_000),
        "How often small spans of partitions are merged into segments.")
    merge_age_ms: int = _setting("merge.age.ms", "60000", milliseconds(0, LONG_MS),
        "Only records older than this are merged.")
    segment_bytes_max: int = _setting("segment.bytes.max", "8MiB", byte_count(64 * KiB, GiB),
        "Of one partition's adjacent records in a segment, about: what a reader fetches at once.")
    spill_interval_ms: int = _setting("spill.interval.ms", "60000", milliseconds(1000, 86_400_000),
        "How often is looked whether rows of partitions should leave the memory.")
    spill_age_ms: int = _setting("spill.age.ms", "600000", milliseconds(0, LONG_MS),
        "Only rows of records older than this leave the memory.")
    spill_rows: int = _setting("spill.rows", "2000000", number(1000, 8_000_000),
        "Rows of all partitions that agents keep in memory before the oldest leave it.")
    collect_interval_ms: int = _setting("collect.interval.ms", "60000", milliseconds(1000, 86_400_000),
        "How often objects that nothing points at any more are deleted.")
    quota_scope: str = _setting("frazil.quota.scope", "agent", one_of("agent", "cluster"),
        "What a client quota is of: each agent, as Kafka's are each broker's, or all agents"
        " together, which share it out by what they report in the metadata log.")
    logs_level: str = _setting("logs.level", "info", one_of("debug", "info", "warning", "error"),
        "What this agent writes to standard error.")
    logs_format: str = _setting("logs.format", "text", one_of("text", "json"),
        "`key=value` lines, or a JSON object per line.")
    registry_listen: tuple[Address, ...] = _setting("schema.registry.listeners", "", HTTP_LISTENERS,
        "Where the embedded schema registry answers: `http://0.0.0.0:8081`, or `https://` for TLS,"
        " several with commas. Empty: nowhere. All agents that have it answer alike.")
    registry_advertised: str | None = _setting("schema.registry.advertised.url", "", HTTP_ENDPOINT,
        "Where exporters are told that the schema registry is. Empty: at the first of"
        " schema.registry.listeners, by the name that the exporter has for this agent; one that only"
        " this machine reaches is told nobody else.")
    registry_users: tuple[tuple[str, str], ...] = _setting(
        "schema.registry.basic.auth.user.info", "", USERS,
        "Users of the schema registry, several with commas. Where it has none, and no"
        " schema.registry.tokens either, nobody is asked who they are.", secret=True)
    registry_tokens: tuple[tuple[str, str], ...] = _setting(
        "schema.registry.tokens", "", TOKEN_FILES,
        "Users of the schema registry that say a token, as http.tokens.")
    telemetry_metrics_bytes: int = _setting("telemetry.metrics.bytes", "4MiB", byte_count(0, GiB),
        "Memory for what clients push (KIP-714), which /metrics tells; 300 bytes a series, about."
        " What has no room is left out. 0: /metrics tells nothing of it.")
    telemetry_otlp_endpoint: str | None = _setting("telemetry.otlp.endpoint", "", HTTP_ENDPOINT,
        "A collector of OpenTelemetry that gets what clients push, over OTLP/HTTP:"
        " `http://collector:4318`. Without a path: /v1/metrics.")
    telemetry_otlp_headers: tuple[tuple[str, str], ...] = _setting("telemetry.otlp.headers", "",
        HTTP_HEADERS, "For telemetry.otlp.endpoint: `name=value`, several with commas.", secret=True)
    telemetry_otlp_ca: str | None = _setting("telemetry.otlp.ca", "", FILE,
        "Certificates (PEM) to trust for telemetry.otlp.endpoint; empty: those of the system.")
    first_users: tuple[FirstUser, ...] = _setting("first.users", "", FIRST_USERS,
        "Users of SCRAM that are made where there never was one:"
        " `SCRAM-SHA-512=[name=alice,password=…]`, several with commas, as"
        " `kafka-storage.sh format --add-scram` has them.", secret=True)
    # fmt: on
    kafka: KafkaSettings
    nodes_of_listeners: Mapping[str, int] = field(default_factory=dict)
    """`nodes_per_agent` of single listeners, by name."""

    def http_addresses(self, name: str) -> tuple[Address, ...]:
        """Where the HTTP listener "http" or "registry" is; () when it is off."""
        if name == "registry":
            return self.registry_listen
        return () if self.http is None else (self.http,)

    def https_listeners(self) -> frozenset[str]:
        """Names of the HTTP listeners that speak TLS."""
        names = ("http", "registry")
        return frozenset(name for name in names if any(a.secure for a in self.http_addresses(name)))


TABLE: dict[str, Setting] = {
    item.name: item.metadata["row"] for item in fields(Settings) if item.metadata
}
"""By the field that it fills."""
BY_NAME: dict[str, Setting] = {row.name: row for row in TABLE.values()}


def token_of(settings: Settings, read: Callable[[str], str]) -> str | None:
    """A token of an operator: http.token, or the first one in a file. Raises SettingsError, and what
    `read` raises."""
    if settings.http_token is not None:
        return settings.http_token
    of_users = [(f"User:{name}", file) for name, file in settings.http_tokens]
    files = [file for name, file in of_users if name in settings.http_roles_operator]
    for file in filter(None, [settings.http_token_file, *files]):
        try:
            return tokens_in(read(file))[0]
        except ValueError as error:
            raise SettingsError([f"{file}: {error}"]) from error
    return None


class Loaded(NamedTuple):
    settings: Settings
    warnings: tuple[str, ...]


def load(
    *,
    defaults: Mapping[str, str],
    toml: tuple[str, str] | None,
    environ: Mapping[str, str],
    flags: Sequence[str],
    properties: tuple[str, str] | None = None,
) -> Loaded:
    """Settings from all sources, later ones winning.

    `defaults` replaces the table's defaults (a command's own), `toml` is (file name, text), so is
    `properties` (a `server.properties` of Kafka), `flags` are the `name=value` of `--set`. Raises
    SettingsError with all mistakes.
    """
    mistakes: list[str] = []
    warnings: list[str] = []
    given = {name: Given(text, sources.DEFAULT) for name, text in defaults.items()}
    try:
        if toml is not None:
            _lay(given, sources.of_toml(*toml, mistakes, is_kafkas=_is_kafkas_alone))
        if properties is not None:
            _lay(given, _known(sources.of_properties(*properties), warnings))
    except ValueError as error:
        # What the file would have said is not known, so there is nothing more to judge.
        raise SettingsError([str(error)]) from error
    _lay(given, sources.of_environ(environ))
    _lay(given, sources.of_flags(flags, mistakes))
    ours, kafkas = _sort_out(given, mistakes)
    nodes = listeners.take_node_counts(kafkas, mistakes)
    parsed = kafka_settings.parse({name: item.text for name, item in kafkas.items()})
    mistakes += parsed.mistakes
    warnings += parsed.warnings
    parsed_ours: dict[str, Any] = {"nodes_of_listeners": nodes}
    for name, row in TABLE.items():
        item = ours.get(row.name, Given(row.default, sources.DEFAULT))
        try:
            parsed_ours[name] = row.type.parse(item.text)
        except ValueError as error:
            wanted = f"the value is not usable (it should be {row.type.kind})"
            shown = wanted if row.secret else error
            mistakes.append(f"{row.name} (from {item.origin}): {shown}")
    own = [name for name in ("listen", "advertise") if sources.is_given(ours.get(name))]
    warnings += _take_listeners(parsed_ours, parsed.settings, own, mistakes)
    names = [address.name for address in parsed_ours.get("listen", ())]
    mistakes += listeners.nobodys_node_counts(nodes, names)
    mistakes += _http_mistakes(parsed_ours, parsed.settings.given)
    mistakes += _contradictions(parsed_ours)
    if mistakes:
        raise SettingsError(mistakes)
    return Loaded(Settings(kafka=parsed.settings, **parsed_ours), tuple(warnings))


def listeners_of(settings: Settings) -> tuple[ListenerSettings, ...]:
    """The Kafka listeners, as Kafka's settings or ours ask for them."""
    given = settings.kafka.given
    return listeners.listeners_of(
        given, listen=settings.listen, advertise=settings.advertise
    ).listeners


def http_listener_of(settings: Settings, name: str) -> HttpListenerSettings:
    """What "http" or "registry" needs to know of TLS and of users."""
    found, _ = listeners.http_listener(
        settings.kafka.given,
        name,
        secure=any(each.secure for each in settings.http_addresses(name)),
    )
    return found


def _http_mistakes(ours: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    """Of the settings that only HTTP listeners have."""
    found: list[str] = []
    addresses = {
        "http": tuple(filter(None, [ours.get("http")])),
        "registry": ours.get("registry_listen", ()),
    }
    asks = {"http": bool(ours.get("http_tokens"))}
    for name, each in addresses.items():
        secure = any(address.secure for address in each)
        listener, mistakes = listeners.http_listener(given, name, secure=secure)
        found += mistakes
        asks[name] = asks.get(name, False) or listener.asks
    roles = [
        name
        for name in ("exporter", "metrics", "operator", "viewer")
        if ours.get(f"http_roles_{name}")
    ]
    if roles and not asks["http"]:
        found.append(
            f"http.roles.{roles[0]} is set and nobody can say who they are: set http.tokens,"
            " listener.name.http.sasl.enabled.mechanisms or listener.name.http.ssl.client.auth"
        )
    return found


def _take_listeners(
    ours: dict[str, Any], kafka: KafkaSettings, own: Sequence[str], mistakes: list[str]
) -> list[str]:
    """Has Kafka's listeners stand in `listen` and `advertise`; warnings.

    `own`: those of the two that somebody has set.
    """
    names = [name for name in ("listeners", "advertised.listeners") if name in kafka.given]
    if own and names:
        mistakes.append(
            f"{own[0]} and {names[0]} are both set: leave Kafka's listeners out, or Frazil's own"
        )
        return []
    found = listeners.listeners_of(
        kafka.given, listen=ours.get("listen", ()), advertise=ours.get("advertise", ())
    )
    mistakes += found.mistakes
    if names:
        ours["listen"] = tuple(
            NamedAddress(each.name, each.host, each.port) for each in found.listeners
        )
        ours["advertise"] = tuple(each.advertised for each in found.listeners if each.advertised)
    return found.warnings


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


def _contradictions(ours: Mapping[str, Any]) -> list[str]:
    """Settings that are right one by one and wrong together, or needed and not there."""
    found = []
    if ours.get("store_url") == "":
        found.append("store is not set (examples: s3://bucket/prefix, file:///var/lib/frazil)")
    if ours.get("log_url") == "":
        found.append("log is not set (examples: etcd://host:2379/prefix, sqlite:///var/lib/f.db)")
    if ours.get("http_token") and ours.get("http_token_file"):
        found.append("http.token and http.token.file are both set: leave one of them out")
    deadline, ttl = ours.get("session_deadline_ms"), ours.get("lease_ttl_ms")
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
    buffer, chunk = ours.get("produce_buffer_bytes"), ours.get("chunk_bytes_max")
    if buffer is not None and chunk is not None and buffer < 2 * chunk:
        found.append(
            f"produce.buffer.bytes ({buffer}) must be at least twice chunk.bytes ({chunk}):"
            " one chunk is filled while another is written"
        )
    names = [address.name for address in ours.get("listen", ())]
    found.extend(
        f"advertise: no listener is called {address.name}; listen has {', '.join(names)}"
        for address in ours.get("advertise", ())
        if names and address.name not in names
    )
    return found


def _lay(given: dict[str, Given], later: Mapping[str, Given]) -> None:
    """Put a later source over the earlier ones. Its names go to the end: one setting may have two
    names (with `kafka.` before it, and without), and the last of them counts."""
    for name, item in later.items():
        given.pop(name, None)
        given[name] = item


def _sort_out(
    given: Mapping[str, Given], mistakes: list[str]
) -> tuple[dict[str, Given], dict[str, Given]]:
    """Ours and Kafka's. A name without `kafka.` before it is ours first (node.id)."""
    ours: dict[str, Given] = {}
    kafkas: dict[str, Given] = {}
    for name, item in given.items():
        if name.startswith("kafka."):
            _lay(kafkas, {name.removeprefix("kafka."): item})
        elif name in BY_NAME:
            ours[name] = item
        elif kafka_settings.is_known(name):
            _lay(kafkas, {name: item})
        else:
            hint = values.did_you_mean(name, [*BY_NAME, *kafka_settings.TABLE])
            text = f'there is no setting named "{name}" (from {item.origin}){hint}'
            mistakes.append(values.unknown_setting(text))
    return ours, kafkas


def _known(given: Mapping[str, Given], warnings: list[str]) -> dict[str, Given]:
    """Those of a `server.properties` that mean something. Kafka takes any name, so a warning is
    all that others get."""
    found = {}
    for name, item in given.items():
        if name in BY_NAME or name.startswith("kafka.") or kafka_settings.is_known(name):
            found[name] = item
        else:
            warnings.append(f"{name}: means nothing here: Kafka 4.3 has no such setting")
    return found


def _is_kafkas_alone(name: str) -> bool:
    return kafka_settings.is_known(name) and name not in BY_NAME
