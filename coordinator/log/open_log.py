"""From the `log` setting to an adapter of MetadataLog.

    etcd://host:2379,host:2379/prefix     plain; with log.ca, log.cert or log.key: TLS
    etcds://host:2379,host:2379/prefix    TLS, checked against the system's roots or log.ca
    sqlite:///absolute/path  sqlite://./relative/path
    memory://                             gone with the process; for tests

Without a prefix keys lie under /frazil.
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from coordinator.log.etcd import EtcdLog
from coordinator.log.etcd_client import Endpoint, EtcdClient, EtcdOptions
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import MetadataLog
from coordinator.log.sqlite import SqliteLog
from protocol.types import ERA

PREFIX_DEFAULT = "/frazil"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What the settings log.user, log.password, log.ca, log.cert, log.key, log.compact say."""

    user: str | None = None
    password: str | None = None
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
    if options.password is not None and options.user is None:
        raise ValueError("log.password is set, log.user is not")
    if (options.cert_file is None) != (options.key_file is None):
        raise ValueError("log.cert and log.key are set together, or neither is")
    files = {"log.ca": options.ca_file, "log.cert": options.cert_file, "log.key": options.key_file}
    ca, cert, key = (_pem(name, path) for name, path in files.items())
    tls = parts.scheme == "etcds" or ca is not None or cert is not None
    prefix = parts.path.rstrip("/") or PREFIX_DEFAULT
    client = EtcdClient(
        endpoints,
        EtcdOptions(
            user=options.user, password=options.password, tls=tls, ca=ca, cert=cert, key=key
        ),
    )
    return EtcdLog(client, prefix=prefix, cluster=cluster, era=ERA, compact=options.compact)


def _pem(name: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: {path} cannot be read: {error.strerror or error}") from error
