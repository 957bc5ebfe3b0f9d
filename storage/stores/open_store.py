"""From a URL to an object store: the only module that names the adapters.

file:///folder        a folder of this machine
s3://bucket/prefix    a bucket, with the options below
memory://             nothing lasts; for tests and trials
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from storage.stores.adapter_rules import check_prefix
from storage.stores.object_store import ObjectStore

CHECKSUMS: Final = ("crc64nvme", "sha256", "none")
_FORMS: Final = "file:///folder, s3://bucket/prefix or memory://"


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings of a store that its URL has no place for; only s3:// needs them."""

    endpoint: str | None = None
    """URL of an S3 server that is not AWS."""
    region: str | None = None
    access_key: str | None = None
    """With `secret_key`; None: as AWS's own tools find them (environment, files, roles)."""
    secret_key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    """PEM file of certificates to trust."""
    path_style: bool | None = None
    """None: path style exactly with an own endpoint."""
    checksum: str = "crc64nvme"
    """One of CHECKSUMS, sent with every PUT."""


def open_store(
    url: str, options: StoreOptions, *, now_ms: Callable[[], int] | None = None
) -> ObjectStore:
    """The store at `url`, not contacted yet. `now_ms` dates the objects of memory://.

    Raises ValueError, with a sentence for the user, for a URL or options that make no sense.
    """
    parts = urlsplit(url)
    match parts.scheme:
        case "file":
            return _open_disk(url, parts)
        case "s3":
            return _open_s3(url, parts, options)
        case "memory":
            from storage.stores.memory import MemoryStore

            return MemoryStore() if now_ms is None else MemoryStore(now_ms)
        case _:
            raise ValueError(f"{url!r} is not the URL of an object store; use {_FORMS}")


def _open_disk(url: str, parts: SplitResult) -> ObjectStore:
    from storage.stores.disk import DiskStore

    if parts.netloc not in {"", "localhost"} or len(parts.path) < 2:
        raise ValueError(f"{url!r} names no folder; write file:///the/folder, three slashes")
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} has a '?' or '#', which a folder's URL cannot have")
    return DiskStore(Path(unquote(parts.path)))


def _open_s3(url: str, parts: SplitResult, options: StoreOptions) -> ObjectStore:
    from storage.stores.s3 import S3Address, S3Store

    if "@" in parts.netloc:
        # The URL is not repeated: it may hold a secret, and errors end in logs.
        raise ValueError("credentials do not belong into the URL of a store, they are settings")
    if not parts.netloc or ":" in parts.netloc:
        raise ValueError(f"{url!r} does not name a bucket; write s3://bucket/prefix")
    prefix = parts.path.strip("/")
    try:
        check_prefix(prefix)
    except ValueError:
        raise ValueError(f"{prefix!r} in {url!r} cannot begin the keys of objects") from None
    if parts.query or parts.fragment:
        raise ValueError(f"{url!r} has a '?' or '#'; what it should say is a setting of its own")
    if (options.access_key is None) != (options.secret_key is None):
        raise ValueError("of the access key and the secret key only one is given")
    if options.endpoint is not None:
        endpoint = urlsplit(options.endpoint)
        if endpoint.scheme not in {"http", "https"} or not endpoint.netloc:
            raise ValueError(f"the endpoint {options.endpoint!r} is not an http(s):// URL")
    if options.ca_file is not None and not options.ca_file.is_file():
        raise ValueError(f"there is no file {options.ca_file} of certificates")
    if options.checksum not in CHECKSUMS:
        raise ValueError(f"the checksum {options.checksum!r} is none of {', '.join(CHECKSUMS)}")
    return S3Store(
        S3Address(
            bucket=parts.netloc,
            prefix=prefix,
            endpoint=options.endpoint,
            region=options.region,
            access_key=options.access_key,
            secret_key=options.secret_key,
            ca_file=options.ca_file,
            path_style=options.path_style,
            checksum=None if options.checksum == "none" else options.checksum,
        )
    )
