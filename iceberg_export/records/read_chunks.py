"""Bytes of spans from the object store, read by the tasks themselves: thin, synchronous.

The agents' own adapters are asynchronous and write; a task only reads ranges, so this is a port
of one call with two adapters, folder and S3. Credentials come from the task's own surroundings
(settings, then the usual chain: environment, profile, web identity, instance role), since a plan
never carries them. Reads of one chunk that lie near each other become one.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from iceberg_export.errors import StoreReadError
from iceberg_export.plan.splits import PlannedSpan, StoreAddress
from protocol.fault_codes import FaultCode
from storage.stores.retry_policy import moving_s

GAP_BYTES_MAX = 256 * 1024
"""Unwanted bytes that are cheaper to read than a second request."""
WASTE_BYTES_MAX = 4 * 1024 * 1024
"""Unwanted bytes of one request, which are in memory until it has come."""
READ_BYTES_MAX = 64 * 1024 * 1024
READS_IN_FLIGHT_MAX = 16
RETRIES_MAX = 5
ANSWER_SECONDS_MAX = 60.0
"""Without a byte; a slow and steady way has time for all of them."""


class ChunkReader(Protocol):
    """Ranges of immutable objects."""

    def read(self, key: str, start: int, length: int) -> memoryview:
        """Bytes [start, start + length), never fewer. Raises StoreReadError."""
        ...


class Read(NamedTuple):
    """One request, and the spans whose bytes it brings."""

    key: str
    start: int
    length: int
    spans: tuple[PlannedSpan, ...]


def merge_reads(spans: Sequence[PlannedSpan]) -> list[Read]:
    """Few requests that bring all the spans; their order is that of the first span needed."""
    order = {(span.key, span.start): place for place, span in enumerate(spans)}
    reads: list[list[PlannedSpan]] = []
    waste = 0
    for span in sorted(spans, key=lambda span: (span.key, span.start)):
        if reads:
            first, last = reads[-1][0], reads[-1][-1]
            gap = max(0, span.start - last.start - last.length)
            near = span.key == last.key and gap <= GAP_BYTES_MAX and waste + gap <= WASTE_BYTES_MAX
            if near and span.start + span.length - first.start <= READ_BYTES_MAX:
                reads[-1].append(span)
                waste += gap
                continue
        reads.append([span])
        waste = 0
    merged = []
    for group in reads:
        end = max(span.start + span.length for span in group)
        merged.append(Read(group[0].key, group[0].start, end - group[0].start, tuple(group)))
    merged.sort(key=lambda read: min(order[span.key, span.start] for span in read.spans))
    return merged


def span_bytes(
    reader: ChunkReader, spans: Sequence[PlannedSpan]
) -> Iterator[tuple[PlannedSpan, memoryview]]:
    """Each span, in the order given, with its bytes; reads run ahead in parallel.

    Holds the bytes read but not yet handed out: at most those of all `spans`, and what requests in
    flight bring beside them.
    """
    reads = merge_reads(spans)
    read_of = {span: number for number, read in enumerate(reads) for span in read.spans}
    left = [len(read.spans) for read in reads]
    with ThreadPoolExecutor(READS_IN_FLIGHT_MAX) as pool:
        try:
            futures: dict[int, Any] = {
                number: pool.submit(_read_spans, reader, read) for number, read in enumerate(reads)
            }
            for span in spans:
                number = read_of[span]
                yield span, futures[number].result()[span]
                left[number] -= 1
                if left[number] == 0:
                    del futures[number]
        finally:
            pool.shutdown(cancel_futures=True)


def _read_spans(reader: ChunkReader, read: Read) -> dict[PlannedSpan, memoryview]:
    """The bytes of each span, without what lies between."""
    data = reader.read(read.key, read.start, read.length)
    found = {}
    for span in read.spans:
        at = span.start - read.start
        found[span] = data[at : at + span.length]
    if sum(map(len, found.values())) < len(data):
        found = {span: memoryview(bytes(part)) for span, part in found.items()}
    return found


class FolderReader:
    """Objects in a folder of this machine (or one that every executor mounts)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: str, start: int, length: int) -> memoryview:
        path = self._folder / key
        data = bytearray(length)
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(start)
                got = 0
                while got < length:
                    count = file.readinto(memoryview(data)[got:])
                    if not count:
                        break
                    got += count
        except OSError as error:
            raise StoreReadError(
                f"cannot read chunk {path}: {error.strerror or error}",
                fault=FaultCode.DATA_FOLDER_DENIED if isinstance(error, PermissionError) else None,
            ) from error
        return _checked_length(memoryview(data)[:got], key, start, length)


def _checked_length(data: memoryview, key: str, start: int, length: int) -> memoryview:
    """The data. Raises StoreReadError when some of it is missing."""
    if len(data) != length:
        raise StoreReadError(
            f"chunk {key} is too short: {len(data)} of {length} bytes at byte {start}"
        )
    return data


class S3Reader:
    """Objects in a bucket, through obstore, which reads off the interpreter's lock."""

    def __init__(self, store: Any, name: str) -> None:
        self._store = store
        self._name = name

    def read(self, key: str, start: int, length: int) -> memoryview:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        denials = (PermissionError, PermissionDeniedError, UnauthenticatedError)
        try:
            data = memoryview(self._store.get_range(key, start=start, length=length))
        except (FileNotFoundError, PermissionError) as error:
            missing = isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error)
            raise StoreReadError(
                f"cannot read {self._name}/{key}: {_line(error)}",
                fault=None if missing else FaultCode.STORE_DENIED,
            ) from error
        except (BaseError, OSError, ValueError) as error:
            denied = isinstance(error, denials)
            raise StoreReadError(
                f"cannot read {self._name}/{key}: {_line(error)}",
                again=True,
                fault=FaultCode.STORE_DENIED if denied else FaultCode.STORE_UNREACHABLE,
            ) from error
        return _checked_length(data, key, start, length)


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _credential_provider() -> Callable[[], dict[str, Any]] | None:
    """What botocore's chain finds, refreshed by it; None when it finds nothing."""
    from botocore.session import Session

    credentials = Session().get_credentials()
    if credentials is None:
        return None

    def provide() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        expires: dt.datetime | None = getattr(credentials, "_expiry_time", None)
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": expires,
        }

    return provide


def _default_region() -> str:
    """As AWS's own tools find it."""
    from botocore.session import Session

    return Session().get_config_variable("region") or "us-east-1"


def _open_s3(address: StoreAddress, options: Mapping[str, str]) -> S3Reader:
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    url = urlsplit(address.url)
    bucket, prefix = url.netloc, url.path.strip("/")
    endpoint = options.get("store.endpoint") or address.endpoint
    # An endpoint of our own is not the one that the agent's style was meant for.
    path_style = address.path_style or bool(options.get("store.endpoint"))
    style = options.get("store.path.style") or str(path_style).lower()
    arguments: dict[str, Any] = {
        "prefix": prefix or None,
        "region": options.get("store.region") or address.region or _default_region(),
        "virtual_hosted_style_request": style != "true",
        "client_options": {
            "timeout": dt.timedelta(seconds=ANSWER_SECONDS_MAX + moving_s(READ_BYTES_MAX)),
            "read_timeout": dt.timedelta(seconds=ANSWER_SECONDS_MAX),
            "connect_timeout": "5s",
        },
        "retry_config": {
            "max_retries": RETRIES_MAX,
            "retry_timeout": dt.timedelta(seconds=60),
        },
    }
    if endpoint:
        host = urlsplit(endpoint)
        # In the other style obstore expects the bucket in the endpoint's own name.
        virtual = f"{host.scheme}://{bucket}.{host.netloc}"
        arguments["endpoint"] = endpoint if style == "true" else virtual
        if endpoint.startswith("http://"):
            arguments["client_options"]["allow_http"] = True
    if ca := options.get("store.ca"):
        try:
            arguments["client_options"]["root_certificate"] = Path(ca).read_bytes()
        except OSError as error:
            raise StoreReadError(f"cannot read store.ca {ca}: {error.strerror}") from error
    if options.get("store.access.key"):
        arguments["access_key_id"] = options["store.access.key"]
        arguments["secret_access_key"] = options.get("store.secret.key", "")
    elif provider := _credential_provider():
        arguments["credential_provider"] = provider
    try:
        return S3Reader(S3Store(bucket, **arguments), address.url.rstrip("/"))
    except (BaseError, ValueError, TypeError) as error:
        raise StoreReadError(f"cannot use the store {address.url}: {_line(error)}") from error


def open_reader(address: StoreAddress, options: Mapping[str, str]) -> ChunkReader:
    """A reader of the agents' store; `options` are the settings `store.*`.

    Raises StoreReadError for a store that cannot be read from outside an agent.
    """
    url = urlsplit(address.url)
    if url.scheme == "file":
        return FolderReader(Path(unquote(url.path)))
    if url.scheme == "s3":
        return _open_s3(address, options)
    raise StoreReadError(
        f"chunks in {address.url} cannot be read from outside the agent; "
        "export needs a store of file:// or s3://"
    )
