"""From the `log` setting to an adapter of MetadataLog.

    etcd://host:2379,host:2379/prefix     plain; with log.ca, log.cert or log.key: TLS
    etcds://host:2379,host:2379/prefix    TLS, checked against the system's roots or log.ca
    sqlite:///absolute/path  sqlite://./relative/path
    memory://                             gone with the process; for tests

Without a prefix keys lie under /frazil.
"""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from coordinator.log.etcd import EtcdLog
from coordinator.log.etcd_client import Endpoint, EtcdClient, EtcdOptions
from coordinator.log.etcd_files import EtcdFiles, EtcdPaths
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import MetadataLog
from coordinator.log.sqlite import SqliteLog
from protocol.types import ERA

PREFIX_DEFAULT = "/frazil"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What the settings log.user, log.password, log.password.file, log.ca, log.cert, log.key and
    log.compact say."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    """Instead of `password`; read again when it changes, as the other files are."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    compact: bool = True
    """A cut compacts etcd's history, of all that is in that etcd."""


def open_log(url: str, options: LogOptions, cluster: str) -> MetadataLog:
    """The adapter for `url`; nothing is connected or opened yet.

    Raises ValueError with a sentence for the operator.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"the log {url!r}: only scheme, addresses and path are understood")
    match parts.scheme:
        case "etcd" | "etcds":
            return _etcd(url, options, cluster)
        case "sqlite":
            if parts.netloc not in {"", "."} or parts.path in {"", "/"}:
                raise ValueError(f"the log {url!r} names no file, like sqlite:///var/lib/log.db")
            return SqliteLog(Path(parts.netloc + parts.path), era=ERA)
        case "memory":
            return MemoryLog(MemoryLogCluster(era=ERA))
        case _:
            raise ValueError(f"the log {url!r} is none of etcd://, etcds://, sqlite://, memory://")


def _etcd(url: str, options: LogOptions, cluster: str) -> EtcdLog:
    parts = urlsplit(url)
    endpoints = [Endpoint.parse(each) for each in parts.netloc.split(",")]
    if not cluster or "/" in cluster:
        raise ValueError(f"the cluster id {cluster!r} cannot be part of etcd's keys")
    has_file = options.password_file is not None
    if has_file and options.password is not None:
        raise ValueError("log.password and log.password.file are both set")
    if (has_file or options.password is not None) and options.user is None:
        name = "log.password.file" if has_file else "log.password"
        raise ValueError(f"{name} is set, log.user is not")
    if (options.cert_file is None) != (options.key_file is None):
        raise ValueError("log.cert and log.key are set together, or neither is")
    tls = parts.scheme == "etcds" or bool(options.ca_file or options.cert_file)
    files = EtcdFiles(
        EtcdOptions(user=options.user, password=options.password, tls=tls),
        EtcdPaths(
            password=options.password_file,
            ca=options.ca_file,
            cert=options.cert_file,
            key=options.key_file,
        ),
    )
    look = files.look if files.are_there else None
    client = EtcdClient(endpoints, files.read(), look)
    prefix = parts.path.rstrip("/") or PREFIX_DEFAULT
    return EtcdLog(client, prefix=prefix, cluster=cluster, era=ERA, compact=options.compact)
